"""What goes to the bus: at once, and what follows in the same turn of the loop together."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amuxd.bus.outbox import Outbox


class Counting:
    """The socket of a bus, which notes what each write took."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.writes: list[int] = []
        self.refusals: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, data: memoryview) -> int:
        if self.refusals:
            number = self.refusals.pop()
            raise OSError(number, os.strerror(number))
        sent = self._sock.send(data)
        self.writes.append(sent)
        return sent


@contextmanager
def sockets() -> Iterator[tuple[Counting, socket.socket]]:
    ours, bus = socket.socketpair()
    with ours, bus:
        ours.setblocking(False)
        bus.settimeout(10)
        yield Counting(ours), bus


def told(story: Callable[[Outbox, Counting, socket.socket], Coroutine[Any, Any, None]]) -> list[str]:
    """Why the bus counts as lost."""
    reasons: list[str] = []

    async def with_outbox() -> None:
        def fail(why: str) -> None:
            """As the connection does: once, and at once."""
            if not reasons:
                reasons.append(why)
                outbox.close()

        with sockets() as (ours, bus):
            outbox = Outbox(ours, fail, limit=1 << 20)  # type: ignore[arg-type]
            try:
                await story(outbox, ours, bus)
            finally:
                outbox.close()

    asyncio.run(with_outbox())
    return reasons


def test_the_first_goes_at_once_and_what_follows_in_its_turn_goes_together() -> None:
    async def story(outbox: Outbox, ours: Counting, bus: socket.socket) -> None:
        for message in (b"a", b"bb", b"ccc"):
            outbox.put(message)
        assert ours.writes == [1]
        await outbox.flush()
        assert ours.writes == [1, 5]
        outbox.put(b"d")
        assert ours.writes == [1, 5, 1]
        assert bus.recv(100) == b"abbcccd"

    assert told(story) == []


def test_what_was_put_just_before_the_end_goes_still() -> None:
    async def story(outbox: Outbox, ours: Counting, bus: socket.socket) -> None:
        outbox.put(b"a")
        outbox.put(b"b")
        outbox.close()
        outbox.put(b"c")
        await asyncio.sleep(0)
        assert bus.recv(100) == b"ab"
        assert ours.writes == [1, 1]

    assert told(story) == []


def test_a_bus_that_reads_late_gets_everything_in_its_order() -> None:
    async def story(outbox: Outbox, ours: Counting, bus: socket.socket) -> None:
        sent = [bytes([number]) * 10_000 for number in range(90)]
        for message in sent:
            outbox.put(message)
            if message[0] % 7 == 0:
                await asyncio.sleep(0)
        read = bytearray()
        flushed = asyncio.create_task(outbox.flush())
        while len(read) < 900_000:
            read += await asyncio.to_thread(bus.recv, 1 << 16)
        await flushed
        assert read == b"".join(sent)

    assert told(story) == []


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("refused", [errno.EPIPE, errno.EBADF, errno.ENOBUFS])
def test_one_that_cannot_be_written_to_is_lost_and_that_is_said(before: int, refused: int) -> None:
    async def story(outbox: Outbox, ours: Counting, bus: socket.socket) -> None:
        for _ in range(before):
            outbox.put(b"a")
        ours.refusals = [refused]
        if refused == errno.EBADF:
            # As dbus-fast closes it, once the bus is gone.
            ours.close()
        outbox.put(b"b")
        async with asyncio.timeout(10):
            await outbox.flush()
        outbox.put(b"c")

    assert told(story) == [f"the bus cannot be written to: {os.strerror(refused)}"]


def test_one_that_takes_nothing_for_good_is_lost() -> None:
    async def story(outbox: Outbox, ours: Counting, bus: socket.socket) -> None:
        for _ in range(30):
            outbox.put(bytes(100_000))

    [why] = told(story)
    assert why.startswith("the bus has not taken ")
