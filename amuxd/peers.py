"""A program at the events socket: its lines one at a time, and never more of it in memory than is its due."""

import asyncio
import json
import logging
import select
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from amuxd.errors import AmuxError, Internal, InvalidArgument
from amuxd.lengths import shortened

logger = logging.getLogger(__name__)

LONGEST_LINE = 64 * 1024
LONGEST_MESSAGE = 1024
# What a reader has not taken yet. One that leaves more is dropped, and asks anew when it is well.
MOST_UNREAD = 1024 * 1024
HALF_LINE_DEADLINE = 30.0


class Garbage(InvalidArgument):
    """No request at all: whoever sends it is not understood, and is left."""


class Peer(asyncio.Protocol):
    def __init__(
        self,
        welcome: Callable[["Peer", asyncio.BaseTransport], None],
        answer: Callable[["Peer", bytes], Awaitable[None]],
        left: Callable[["Peer"], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._welcome = welcome
        self._answer = answer
        self._left = left
        self._spawn = spawn
        self._received = bytearray()
        self._answering = False
        self._half_line: asyncio.TimerHandle | None = None
        self._ended = False
        # What it is behind with: shared with all who are, where they are told the same.
        self._unread: deque[bytes] = deque()
        self._unread_size = 0
        self._is_behind = False
        # Whether there is something to tell it beside its answers.
        self.stays = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        try:
            self._welcome(self, transport)
        except AmuxError as error:
            self.leave(error)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._go_on()

    def eof_received(self) -> bool:
        """It has said all, and may still want to read."""
        self._ended = True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), 0)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            # Nobody is there to be told anything; what it asked for is done all the same.
            self.stays = False
        self._go_on()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        self._stop_waiting()
        self._unread.clear()
        # What it asked for is done to its end: a session is not left half way because nobody waits for it.
        self._left(self)

    def send(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if not self._is_behind:
            self._transport.write(data)
        elif self._unread_size > MOST_UNREAD:
            self._unread.clear()
            self._transport.abort()
        else:
            self._unread.append(data)
            self._unread_size += len(data)

    def pause_writing(self) -> None:
        self._is_behind = True

    def resume_writing(self) -> None:
        self._is_behind = False
        while self._unread and not self._is_behind and not self._transport.is_closing():
            data = self._unread.popleft()
            self._unread_size -= len(data)
            self._transport.write(data)

    def refuse(self, error: AmuxError) -> None:
        answer = {"type": "error", "code": error.name, "message": shortened(str(error), LONGEST_MESSAGE)}
        self.send(json.dumps(answer, ensure_ascii=False).encode(errors="replace") + b"\n")

    def close(self) -> None:
        """It gets what it is behind with still, as far as it wants to."""
        if self._unread:
            self._transport.write(b"".join(self._unread))
            self._unread.clear()
        self._transport.close()

    @property
    def waits(self) -> bool:
        """Nothing that it said is still to be answered, and it asked for nothing that is still to come."""
        return not self.stays and not self._answering

    def leave(self, error: AmuxError) -> None:
        self.refuse(error)
        self.close()

    def _go_on(self) -> None:
        if self._answering or self._transport.is_closing():
            return
        line, newline, rest = self._received.partition(b"\n")
        if len(line) > LONGEST_LINE:
            self.leave(Garbage(f"a line has at most {LONGEST_LINE} bytes"))
        elif newline:
            self._stop_waiting()
            self._received = rest
            # What comes meanwhile stays with the kernel.
            self._transport.pause_reading()
            self._answering = True
            self._spawn(self._answer_one(bytes(line)))
        elif line and self._ended:
            self.leave(Garbage("the last line has no end"))
        elif self._ended:
            if not self.stays:
                self.close()
        elif line and self._half_line is None:
            # Not begun anew by each byte that comes.
            loop = asyncio.get_running_loop()
            late = Garbage(f"a line must be whole within {HALF_LINE_DEADLINE:.0f} s")
            self._half_line = loop.call_later(HALF_LINE_DEADLINE, self.leave, late)

    async def _answer_one(self, line: bytes) -> None:
        try:
            await self._answer(self, line)
        except Garbage as error:
            self.leave(error)
        except Exception:
            logger.exception("a request could not be answered")
            self.refuse(Internal("amuxd could not answer; its log says why"))
        finally:
            self._answering = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._go_on()

    def _stop_waiting(self) -> None:
        if self._half_line is not None:
            self._half_line.cancel()
            self._half_line = None
