"""What is on its way to a bus that may take its time."""

import asyncio
import socket
from collections.abc import Callable

LIMIT = 64 * 1024 * 1024
CHUNK = 256 * 1024


class Outbox:
    """Writes at once while the socket takes it, and otherwise waits until it does.

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
        self._flushes: list[asyncio.Future[None]] = []
        self._closed = False

    def put(self, data: bytes | bytearray) -> None:
        if self._closed:
            return
        if not self._waiting:
            sent = self._write(memoryview(data))
            if sent == len(data) or self._closed:
                return
            self._waiting += memoryview(data)[sent:]
            self._loop.add_writer(self._descriptor, self._write_more)
        elif len(self._waiting) > self._limit:
            self._fail(f"the bus has not taken {len(self._waiting)} bytes")
        else:
            self._waiting += data

    async def flush(self) -> None:
        if self._waiting:
            written: asyncio.Future[None] = self._loop.create_future()
            self._flushes.append(written)
            await written

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
        self._waiting = bytearray()
        self._end_flushes()

    def _write_more(self) -> None:
        with memoryview(self._waiting) as everything, everything[:CHUNK] as part:
            sent = self._write(part)
        if self._closed:
            return
        del self._waiting[:sent]
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            self._end_flushes()

    def _write(self, data: memoryview) -> int:
        try:
            return self._sock.send(data)
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
