"""What is on its way to a bus that may take its time."""

import asyncio
import socket
from collections.abc import Callable

LIMIT = 64 * 1024 * 1024
CHUNK = 256 * 1024


class Outbox:
    """Writes at once while the socket takes it, and otherwise waits until it does.

    What follows in the same turn of the loop is written together at its end: each write wakes the bus.

    Nothing in it is ever dropped, since each signal may be the only word of a change: a bus that leaves more
    than the limit waiting is stuck for good, and counts as lost.
    """

    def __init__(self, sock: socket.socket, fail: Callable[[str], None], limit: int = LIMIT) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._descriptor = sock.fileno()
        self._fail = fail
        self._limit = limit
        self._waiting = bytearray()
        self._has_written = False
        self._is_full = False
        self._flushes: list[asyncio.Future[None]] = []
        self._closed = False

    def put(self, data: bytes | bytearray) -> None:
        if self._closed:
            return
        if len(self._waiting) > self._limit:
            self._fail(f"the bus has not taken {len(self._waiting)} bytes")
            return
        self._waiting += data
        if not (self._has_written or self._is_full):
            self._has_written = True
            self._loop.call_soon(self._end_turn)
            self._write_more()

    async def flush(self) -> None:
        if self._waiting:
            written: asyncio.Future[None] = self._loop.create_future()
            self._flushes.append(written)
            await written

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._has_written and not self._is_full:
            self._write_part()
        self._set_full(False)
        self._waiting = bytearray()
        self._end_flushes()

    def _end_turn(self) -> None:
        self._has_written = False
        if self._waiting and not (self._is_full or self._closed):
            self._write_more()

    def _write_more(self) -> None:
        sent = self._write_part()
        if self._closed:
            return
        del self._waiting[:sent]
        self._set_full(bool(self._waiting))
        if not self._waiting:
            self._end_flushes()

    def _set_full(self, is_full: bool) -> None:
        if is_full == self._is_full:
            return
        self._is_full = is_full
        if is_full:
            self._loop.add_writer(self._descriptor, self._write_more)
        else:
            self._loop.remove_writer(self._descriptor)

    def _write_part(self) -> int:
        try:
            with memoryview(self._waiting) as everything, everything[:CHUNK] as part:
                return self._sock.send(part)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._fail(f"the bus cannot be written to: {error.strerror}")
            return 0

    def _end_flushes(self) -> None:
        for written in self._flushes:
            if not written.done():
                written.set_result(None)
        self._flushes.clear()
