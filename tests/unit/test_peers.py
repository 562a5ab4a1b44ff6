"""A program at the socket, where a real amuxd would take too long to go wrong."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from standin_host import World, in_world

from amuxd import peers
from amuxd.events import Events, activated_socket
from amuxd.peers import Peer

ROOT = Path(__file__).parents[2]
Answer = Callable[[Peer, bytes], Awaitable[None]]


async def talk(directory: Path, answer: Answer, *sent: bytes) -> list[dict[str, str]]:
    """What a client is answered until it is left."""
    left: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
    path = directory / "socket"

    def new() -> Peer:
        return Peer(lambda _peer, _transport: None, answer, left.set_result, asyncio.ensure_future)

    server = await asyncio.get_running_loop().create_unix_server(new, str(path))
    reader, writer = await asyncio.open_unix_connection(str(path))
    for data in sent:
        writer.write(data)
    lines = (await asyncio.wait_for(reader.read(), 10)).splitlines()
    writer.close()
    await asyncio.wait_for(left, 10)
    server.close()
    return [json.loads(line) for line in lines]


async def no_answer(_peer: Peer, _line: bytes) -> None:
    raise AssertionError("nothing whole was sent")


def test_half_a_line_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "HALF_LINE_DEADLINE", 0.05)
    [answer] = asyncio.run(talk(tmp_path, no_answer, b'{"type":'))
    assert answer["code"] == "InvalidArgument"
    assert "whole" in answer["message"]


def test_who_sends_a_byte_now_and_then_is_not_waited_for_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "HALF_LINE_DEADLINE", 0.2)
    path = tmp_path / "socket"

    async def drip(client: socket.socket) -> None:
        # The streams of asyncio lose an answer that comes just before a write that fails.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                await asyncio.get_running_loop().sock_sendall(client, b"x")
                await asyncio.sleep(0.02)

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(
            lambda: Peer(lambda _peer, _transport: None, no_answer, lambda _: None, asyncio.ensure_future),
            str(path),
        )
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            await loop.sock_connect(client, str(path))
            dripping = asyncio.ensure_future(drip(client))
            answer = await asyncio.wait_for(loop.sock_recv(client, 4096), 10)
            dripping.cancel()
        server.close()
        return answer

    assert "whole" in json.loads(asyncio.run(main()))["message"]


def test_a_fault_of_ours_is_answered_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fails_once(peer: Peer, line: bytes) -> None:
        if line == b"first":
            raise ZeroDivisionError
        peer.close()

    [answer] = asyncio.run(talk(tmp_path, fails_once, b"first\n", b"second\n"))
    assert answer["code"] == "Internal"
    assert "ZeroDivisionError" in caplog.text


def test_what_was_begun_for_who_left_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        begun, gone, may_end, done = (asyncio.Event() for _ in range(4))

        async def slow(peer: Peer, _line: bytes) -> None:
            begun.set()
            await may_end.wait()
            peer.send(b"there is nobody to read this\n")
            done.set()

        transports: list[asyncio.BaseTransport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(
            lambda: Peer(
                lambda _, transport: transports.append(transport),
                slow,
                lambda _: gone.set(),
                asyncio.ensure_future,
            ),
            str(path),
        )
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"{}\n")
        await begun.wait()
        assert isinstance(transports[0], asyncio.Transport)
        transports[0].abort()
        await asyncio.wait_for(gone.wait(), 10)
        may_end.set()
        await asyncio.wait_for(done.wait(), 10)
        writer.close()
        server.close()

    asyncio.run(main())


def test_who_is_slow_gets_all_that_it_was_told_before_it_was_left(tmp_path: Path) -> None:
    told = [b"%d %s\n" % (number, b"x" * 1000) for number in range(1000)]

    async def tell(peer: Peer, _line: bytes) -> None:
        for line in told:
            peer.send(line)
        assert peer._unread
        peer.close()

    async def main() -> bytes:
        path = tmp_path / "socket"
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(
            lambda: Peer(lambda _peer, _transport: None, tell, lambda _: None, asyncio.ensure_future),
            str(path),
        )
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"{}\n")
        heard = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        server.close()
        return heard

    assert asyncio.run(main()) == b"".join(told)


class Gone:
    """One whose connection is no more."""

    stays = False

    def send(self, _data: bytes) -> None: ...


def test_who_left_before_its_word_was_read_is_no_subscriber(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        gone = Gone()
        await Events(world.runs)._answer(cast(Peer, gone), b'{"type":"subscribe"}')
        assert not gone.stays

    asyncio.run(in_world(tmp_path, story))


def test_the_umask_of_all_threads_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_mask: int) -> int:
        raise AssertionError("what another thread makes meanwhile gets it as well")

    monkeypatch.setattr(os, "umask", forbidden)
    path = tmp_path / "socket"

    async def story(world: World) -> None:
        events = Events(world.runs)
        await events.listen(path)
        assert path.stat().st_mode & 0o777 == 0o600
        events.close()
        assert not path.exists()

    asyncio.run(in_world(tmp_path, story))


def test_without_activation_there_is_no_socket_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", "1")
    assert activated_socket() is None


ACTIVATED_WRONGLY = """
import os, socket
from amuxd.events import activated_socket
wrong = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
os.dup2(wrong.fileno(), 3)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
print(activated_socket(), "LISTEN_FDS" in os.environ)
"""


def test_a_socket_of_another_kind_is_left_alone() -> None:
    """In a process of its own, for descriptor 3 of this one may be what the tests are run through."""
    program = [sys.executable, "-c", ACTIVATED_WRONGLY]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"
    assert "not the events socket" in done.stderr


BEGUN_WITH_MORE = """
import os
from amuxd.daemon import keep_descriptors
inherited = os.open(os.devnull, os.O_RDONLY)
os.set_inheritable(inherited, True)
keep_descriptors()
print(*map(os.get_inheritable, (0, 1, 2, inherited)))
"""


def test_what_amuxd_was_begun_with_is_not_for_what_it_begins() -> None:
    program = [sys.executable, "-c", BEGUN_WITH_MORE]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True True True False\n"
