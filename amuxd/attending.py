"""Brings what is reported, printed and typed to the decision about a session's attention."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from amuxd import attention, conversations, hooks, processes
from amuxd.agents import program_of
from amuxd.attention import AFTERGLOW, Fact, Kind
from amuxd.bells import Bells
from amuxd.hosts import Host
from amuxd.logs import aside_of, last_changed, shows, size_of
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import StoreError
from amuxd.supervisor import Supervisor, now
from amuxd.watch import Watch

logger = logging.getLogger(__name__)

# Of a flood only the end is heard: what comes after a call ends it anyway.
LONGEST_PIECE = 256 * 1024
# Seconds, for the word of a terminal that was attached or left.
PATIENCE = 1.0


class Output:
    """What a log grew by since the last time, heard for calls; how far that was outlives amuxd."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._mark = log.with_name("heard")
        self._aside = aside_of(log)
        known = _read_mark(self._mark)
        self._position, self._file = known or (size_of(log), _file_of(log))
        if known and not self._file:
            # An amuxd that knew no better wrote only how far it was.
            self._file = _file_of(log if size_of(log) >= self._position else self._aside)
        # When somebody listened last; None: to this run nobody ever did.
        self.left_at = None if known is None else last_changed(self._mark)
        self._bells = Bells()
        # Whether anything of what was heard last can be seen.
        self.shown = False

    def listen(self) -> list[str]:
        calls: list[str] = []
        self.shown = False
        file = _file_of(self._log)
        if file != self._file:
            # It was put aside at its cap, or deleted, and a new one begun.
            if self._file and _file_of(self._aside) == self._file:
                calls += self._hear(self._aside)
            self._position, self._file = 0, file
        elif size_of(self._log) < self._position:
            # Somebody has cut it.
            self._position = 0
        return calls + self._hear(self._log)

    def catch_up(self) -> tuple[bool, list[str]]:
        """Whether anything was shown while nobody listened, and the calls in it that still hold.

        What was printed long after a call ends it. Where the times do not tell, it holds only if there is
        nothing to be seen after it.
        """
        if self.left_at is None:
            return True, []
        if (size_of(self._log), _file_of(self._log)) == (self._position, self._file):
            return False, []
        calls = self.listen()
        at_once = last_changed(self._log) <= self.left_at + AFTERGLOW
        return self.shown, calls if at_once or not self._shows_since_call() else []

    def _shows_since_call(self) -> bool:
        with contextlib.suppress(OSError, ValueError), self._log.open("rb") as file:
            file.seek(self._position - self._bells.since_call)
            return shows(file.read(self._bells.since_call))
        # The call is in what was put aside.
        return True

    def listen_and_mark(self, waits: bool) -> list[str]:
        """Marked at once where there is nothing to decide first."""
        calls = self.listen()
        if not calls and not waits:
            self.mark()
        return calls

    def mark(self) -> None:
        """All until here was heard, and is dealt with. Half a call may follow."""
        with contextlib.suppress(OSError):
            mark = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # In one piece and always as long: there is no moment at which it is not whole.
                heard = max(0, self._position - self._bells.unfinished)
                os.write(mark, b"%020d %020d\n" % (heard, self._file))
            finally:
                os.close(mark)

    def look_away(self, at: int) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._mark, ns=(at, at))

    def forget(self) -> None:
        # A disk that cannot be written must not be in the way of what is done with the session.
        with contextlib.suppress(OSError):
            self._mark.unlink()

    def _hear(self, file: Path) -> list[str]:
        size = size_of(file)
        if size - self._position > LONGEST_PIECE:
            self._position = size - LONGEST_PIECE
            self._bells = Bells(cut_off=True)
            self.shown = True
        try:
            with file.open("rb") as opened:
                opened.seek(self._position)
                data = opened.read(LONGEST_PIECE)
        except OSError:
            return []
        self._position += len(data)
        self._bells.shown = False
        calls = self._bells.feed(data)
        self.shown = self.shown or self._bells.shown
        return calls


@dataclass
class _Heard:
    output: Output
    caught_up: bool
    printed_at: int = 0
    redrawn_at: int = 0
    listening: asyncio.Task[None] | None = None
    terminal: int | None = None
    # When something was read there that may have been a key, and is not decided on yet.
    reads: list[int] = field(default_factory=list)
    taking: asyncio.Task[None] | None = None


class Attending:
    def __init__(self, supervisor: Supervisor, watch: Watch, host: Host) -> None:
        self._supervisor = supervisor
        self._watch = watch
        self._host = host
        self._heard: dict[str, _Heard] = {}

    def begin(self, entry: Entry, log: Path) -> None:
        """From here on its output counts; what it printed while nobody watched comes first."""
        output = Output(log)
        is_new = output.left_at is None and not entry.state.attention
        heard = self._heard[entry.id] = _Heard(output, caught_up=is_new)
        if is_new:
            self._supervisor.spawn(self._mark(output))
        self._watch_terminal(entry, heard)

    def leave(self, entry: Entry) -> None:
        """Its process is gone; the session may stay, without it."""
        if (heard := self._heard.pop(entry.id, None)) is None:
            return
        self._forget_terminal(heard)
        heard.output.forget()
        if entry.state.attention:
            self._supervisor.spawn(self._attend(entry, attention.Died()))

    async def look_away(self, moments: Mapping[str, int]) -> None:
        """When nobody listened any more, by the id of each session: the next amuxd goes on from there."""
        outputs = [(heard.output, at) for key, at in moments.items() if (heard := self._heard.get(key))]

        def look_away() -> None:
            for output, at in outputs:
                output.look_away(at)

        await self._supervisor.on_disk(look_away)

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
        await self._decide(entry, fact)
        self._wait_changed(entry)

    # What is printed.

    async def _listen(self, entry: Entry, heard: _Heard) -> None:
        while (at := heard.printed_at) and self._is_heard(entry, heard):
            heard.printed_at = 0
            if not heard.caught_up:
                await self._catch_up(entry, heard, at)
                continue
            waits = entry.state.attention != ""
            calls = await self._supervisor.on_disk(heard.output.listen_and_mark, waits)
            if not self._is_heard(entry, heard):
                return
            if calls:
                await self._ring(entry, calls, at)
            elif entry.state.attention and heard.output.shown:
                await asyncio.sleep(PATIENCE)
                if not self._was_redrawn(heard, at) and self._is_heard(entry, heard):
                    await self._attend(entry, attention.Printed(at))
            if (calls or waits) and self._is_heard(entry, heard):
                await self._mark(heard.output)

    async def _catch_up(self, entry: Entry, heard: _Heard, at: int) -> None:
        shown, calls = await self._supervisor.on_disk(heard.output.catch_up)
        if shown and entry.state.attention and self._is_heard(entry, heard):
            await self._attend(entry, attention.Printed(at))
        if calls and self._is_heard(entry, heard):
            await self._ring(entry, calls, at)
        if self._is_heard(entry, heard):
            heard.caught_up = True
            await self._mark(heard.output)

    async def _ring(self, entry: Entry, calls: list[str], at: int) -> None:
        says = next((call for call in reversed(calls) if call), "")
        kind = hooks.meaning(program_of(conversations.command(entry)[0]), says)
        await self._attend(entry, attention.Rang(attention.one_line(says), at, kind))

    def _is_heard(self, entry: Entry, heard: _Heard) -> bool:
        """What is printed after amuxd looked away is for the next one to hear."""
        return self._heard.get(entry.id) is heard and entry.state.state is State.RUNNING

    async def _mark(self, output: Output) -> None:
        await self._supervisor.on_disk(output.mark)

    # What is typed, also where nothing of it is printed: at a question for a password say.

    def _wait_changed(self, entry: Entry) -> None:
        if heard := self._heard.get(entry.id):
            if entry.state.attention:
                self._watch_terminal(entry, heard)
            else:
                self._forget_terminal(heard)

    def _watch_terminal(self, entry: Entry, heard: _Heard) -> None:
        if heard.terminal is not None or not entry.state.attention or entry.home is None:
            return
        if self._heard.get(entry.id) is not heard:
            return
        with contextlib.suppress(OSError):
            if path := processes.terminal_of(entry.home.command):
                heard.terminal = self._watch.terminal(
                    path, partial(self._read, entry, heard, path), partial(self._missed, entry, heard)
                )

    def _forget_terminal(self, heard: _Heard) -> None:
        if heard.terminal is not None:
            self._watch.forget_once(heard.terminal)
            heard.terminal = None

    def _read(self, entry: Entry, heard: _Heard, terminal: Path) -> None:
        """A line was an answer; key by key, what the mouse does may come as well, and that somebody looks."""
        heard.terminal = None
        if processes.reads_lines(terminal):
            self._supervisor.spawn(self._attend(entry, attention.Typed()))
        else:
            heard.reads.append(now())
            # At once: a key may follow what was none.
            self._watch_terminal(entry, heard)
            if heard.taking is None or heard.taking.done():
                heard.taking = self._supervisor.spawn(self._take_for_keys(entry, heard))

    def _missed(self, entry: Entry, heard: _Heard) -> None:
        """A wait is not ended by an answer that perhaps nobody gave: the next one ends it."""
        heard.terminal = None
        self._watch_terminal(entry, heard)

    async def _take_for_keys(self, entry: Entry, heard: _Heard) -> None:
        while reads := heard.reads:
            heard.reads = []
            await asyncio.sleep(PATIENCE)
            typed = entry.attached > 0 and await self._host.takes_only_keys(entry.id)
            keys = [at for at in reads if not self._was_redrawn(heard, at)]
            if typed and keys and self._is_heard(entry, heard):
                await self._attend(entry, attention.Pressed(keys[-1]))

    def _was_redrawn(self, heard: _Heard, at: int) -> bool:
        """Whoever came to look may be known of only a while after what their coming brings about."""
        return abs(at - heard.redrawn_at) <= AFTERGLOW

    async def _attend(self, entry: Entry, fact: Fact) -> None:
        try:
            await self._decide(entry, fact)
        except StoreError as error:
            logger.error("%s: its attention cannot be written: %s", entry.session.name, error)
        self._wait_changed(entry)

    async def _decide(self, entry: Entry, fact: Fact) -> None:
        # The time for which it waited was no idle time.
        entry.used_at = now()
        await self._supervisor.attend(entry, fact)


def _read_mark(mark: Path) -> tuple[int, int] | None:
    """How far, and in which file; 0 where that is not known."""
    try:
        position, *file = map(int, mark.read_text().split())
    except (OSError, ValueError):
        return None
    return position, file[0] if file else 0


def _file_of(path: Path) -> int:
    """What tells it from another of the same name; 0: there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
