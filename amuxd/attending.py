"""Brings what is reported, printed and typed to the decision about a session's attention."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from amuxd import attention
from amuxd.attention import AFTERGLOW, Fact, Kind
from amuxd.bells import Bells
from amuxd.registry import Entry
from amuxd.store import StoreError
from amuxd.supervisor import Supervisor, now

logger = logging.getLogger(__name__)

# Of a flood only the end is heard: what comes after a call ends it anyway.
LONGEST_PIECE = 256 * 1024
# Seconds, for the word of a terminal that was attached or left.
PATIENCE = 1.0


class Output:
    """What a log grew by since the last time, heard for calls."""

    def __init__(self, log: Path, position: int) -> None:
        self._log = log
        self._position = position
        self._bells = Bells()

    def listen(self) -> list[str]:
        calls: list[str] = []
        if _size(self._log) < self._position:
            # It was put aside at its cap, and a new one begun.
            calls += self._hear(self._log.with_name(self._log.name + ".1"))
            self._position = 0
        return calls + self._hear(self._log)

    def _hear(self, file: Path) -> list[str]:
        size = _size(file)
        if size - self._position > LONGEST_PIECE:
            self._position = size - LONGEST_PIECE
            self._bells = Bells()
        try:
            with file.open("rb") as opened:
                opened.seek(self._position)
                data = opened.read(LONGEST_PIECE)
        except OSError:
            return []
        self._position += len(data)
        return self._bells.feed(data)


@dataclass
class _Heard:
    output: Output
    printed_at: int = 0
    redrawn_at: int = 0
    listening: asyncio.Task[None] | None = None


class Attending:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._heard: dict[str, _Heard] = {}

    def begin(self, entry: Entry, log: Path) -> None:
        """From here on its output counts; what it printed while nobody watched ends a wait."""
        self._heard[entry.id] = _Heard(Output(log, _size(log)))
        if entry.state.attention and (printed := _changed_at(log)):
            self._supervisor.spawn(self._attend(entry, attention.Printed(printed)))

    def leave(self, entry: Entry) -> None:
        """Its process is gone; the session may stay, without it."""
        if self._heard.pop(entry.id, None) and entry.state.attention:
            self._supervisor.spawn(self._attend(entry, attention.Died()))

    def printed(self, entry: Entry, at: int) -> None:
        heard = self._heard.get(entry.id)
        if heard is None:
            return
        heard.printed_at = at
        if heard.listening is None or heard.listening.done():
            heard.listening = self._supervisor.spawn(self._listen(entry, heard))

    def redrawn(self, entry: Entry) -> None:
        """Somebody came or went: a program that draws its screen anew has not gone on."""
        if heard := self._heard.get(entry.id):
            heard.redrawn_at = now()

    async def typed(self, entry: Entry) -> None:
        await self._attend(entry, attention.Typed())

    async def reported(self, entry: Entry, kind: str, message: str) -> None:
        """Raises StoreError: who reports is told."""
        fact: Fact = attention.Works()
        if kind != attention.WORKING:
            fact = attention.Reported(Kind(kind), attention.one_line(message), now())
        await self._supervisor.attend(entry, fact)

    async def _listen(self, entry: Entry, heard: _Heard) -> None:
        while at := heard.printed_at:
            heard.printed_at = 0
            calls = await self._supervisor.on_disk(heard.output.listen)
            if self._heard.get(entry.id) is not heard:
                return
            if calls:
                says = next((call for call in reversed(calls) if call), "")
                await self._attend(entry, attention.Rang(attention.one_line(says), at))
            elif entry.state.attention:
                # Whoever came to look may be known of only after what their coming had drawn.
                await asyncio.sleep(PATIENCE)
                if abs(at - heard.redrawn_at) > AFTERGLOW:
                    await self._attend(entry, attention.Printed(at))

    async def _attend(self, entry: Entry, fact: Fact) -> None:
        try:
            await self._supervisor.attend(entry, fact)
        except StoreError as error:
            logger.error("%s: its attention cannot be written: %s", entry.session.name, error)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0
