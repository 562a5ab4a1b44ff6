"""Tells the desktop what a person should know of, once, and takes it back when it is over."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from amuxd import files
from amuxd.board import ATTENTION, CRITICAL, NORMAL, SUMMARY, URGENCY, Board, Changes, Note
from amuxd.bus.connection import Bus
from amuxd.desktop import Desktop
from amuxd.errors import AmuxError
from amuxd.logs import last_lines
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import State, Transition

logger = logging.getLogger(__name__)

BLOCKED = {"permission", "question"}
LONGEST_BODY = 300
# Seconds between two notifications of the same session: a desktop is not to be flooded by one that is.
PACE = 0.25

# Between these it is the same wait of the same run.
_LOOKING_AWAY = {(State.RUNNING, State.SUSPENDED), (State.SUSPENDED, State.RUNNING)}
_ATTACH, _LOG, _RESTART = ("attach", "Attach"), ("log", "Show log"), ("restart", "Restart")
_RESUME = ("resume", "Resume")
_DEFAULT = ("default", "Attach")

Open = Callable[[list[str]], Awaitable[None]]


class Notifier:
    def __init__(
        self, bus: Bus, runs: Runs, kept: Path, wanted: frozenset[str], amux: str, open_terminal: Open
    ) -> None:
        self.wanted = wanted
        self._runs = runs
        self._supervisor = runs.supervisor
        self._kept = kept
        self._amux = amux
        self._open = open_terminal
        self._desktop = Desktop(bus, self._invoked, self._closed, self._server_left)
        self._board = Board()
        self._shown: dict[str, int] = {}
        self._due: Changes = {}
        self._later: dict[str, Note] = {}
        self._told_at: dict[str, float] = {}
        self._telling: asyncio.Task[None] | None = None
        self._is_kept = True
        self._keeping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self._desktop.begin()
        if self._desktop.owner:
            self._remember()

    # What happens.

    def appeared(self, entry: Entry) -> None:
        """One that was just created is no news to whoever created it."""

    def disappeared(self, entry: Entry) -> None:
        self._show(self._board.take(entry.id))

    def moved(self, entry: Entry, transition: Transition) -> None:
        if transition.target in URGENCY and transition.target in self.wanted and not entry.attached:
            self._supervisor.spawn(self._tell_of_move(entry, transition))
        elif (transition.source, transition.target) not in _LOOKING_AWAY:
            self._show(self._board.take(entry.id))

    def exited(self, entry: Entry) -> None:
        """Its state said so."""

    def attention_changed(self, entry: Entry) -> None:
        if entry.state.attention and ATTENTION in self.wanted and not entry.attached:
            self._supervisor.spawn(self._tell_of_wait(entry))
        elif self._board.kind(entry.id) == ATTENTION:
            self._show(self._board.take(entry.id))

    def changed(self, entry: Entry, *properties: str) -> None:
        kind = self._board.kind(entry.id)
        if not kind:
            return
        if "Attached" in properties and entry.attached:
            # Who is there sees it.
            self._show(self._board.take(entry.id))
        elif "HostAlive" in properties and entry.state.state == kind:
            self._mend(entry)

    def _mend(self, entry: Entry) -> None:
        """Told at once, it may have missed the last line."""
        whole = entry.certificate
        if whole is not None and whole.complete:
            note = _of_move(entry, whole.last_lines)
            if note.body != self._board.body(entry.id):
                self._show(self._board.put(entry.id, note, time.monotonic()))

    async def _tell_of_move(self, entry: Entry, transition: Transition) -> None:
        lines = await self._supervisor.last_lines(entry, transition.run, 1)
        stands = (entry.state.state, entry.state.run) == (transition.target, transition.run)
        if stands and not entry.attached and self._supervisor.registry.get(entry.id) is entry:
            self._show(self._board.put(entry.id, _of_move(entry, lines), time.monotonic()))

    async def _tell_of_wait(self, entry: Entry) -> None:
        run, kind, message = entry.state.run, entry.state.attention, entry.state.attention_message
        lines = await self._supervisor.on_disk(last_lines, self._supervisor.store.log(entry.id, run), 1)
        stands = (entry.state.run, entry.state.attention, entry.state.attention_message) == (
            run,
            kind,
            message,
        )
        if stands and not entry.attached and self._supervisor.registry.get(entry.id) is entry:
            self._show(self._board.put(entry.id, _of_attention(entry, lines), time.monotonic()))

    # What is shown: the latest wish for each, one after another, while the server takes its time.

    def _show(self, changes: Changes) -> None:
        now = time.monotonic()
        self._told_at = {key: at for key, at in self._told_at.items() if now - at < PACE}
        for key, note in changes.items():
            if note is None:
                self._later.pop(key, None)
                self._due[key] = None
            elif at := self._told_at.get(key):
                if key not in self._later:
                    asyncio.get_running_loop().call_later(at + PACE - now, self._show_later, key)
                self._later[key] = note
            else:
                self._told_at[key] = now
                self._due[key] = note
        if self._due and (self._telling is None or self._telling.done()):
            self._telling = self._supervisor.spawn(self._tell())

    def _show_later(self, key: str) -> None:
        if note := self._later.pop(key, None):
            self._told_at.pop(key, None)
            self._show({key: note})

    async def _tell(self) -> None:
        while self._due:
            key = next(iter(self._due))
            note = self._due.pop(key)
            if note is not None:
                if number := await self._desktop.show(note, self._shown.get(key, 0)):
                    self._shown[key] = number
            elif number := self._shown.pop(key, 0):
                await self._desktop.close(number)
            self._keep()

    def _closed(self, number: int) -> None:
        if key := self._key_of(number):
            del self._shown[key]
            self._board.closed(key)
            self._keep()

    def _server_left(self) -> None:
        self._shown.clear()
        self._later.clear()
        self._board = Board()
        self._keep()

    def _key_of(self, number: int) -> str:
        return next((key for key, shown in self._shown.items() if shown == number), "")

    # What is pressed.

    def _invoked(self, number: int, action: str) -> None:
        if key := self._key_of(number):
            self._supervisor.spawn(self._act(key, action))

    async def _act(self, key: str, action: str) -> None:
        try:
            if key == SUMMARY:
                await self._open([self._amux, "ls", "--watch"])
            elif entry := self._supervisor.registry.get(key):
                await self._act_on(entry, action)
        except AmuxError as error:
            logger.warning("%s was pressed, and could not be done: %s", action, error)
            problem = Note("problem", "", f"amux: {action} did not work", str(error), NORMAL)
            self._show({f"problem-{key}": problem})

    async def _act_on(self, entry: Entry, action: str) -> None:
        match action:
            case "restart":
                await self._runs.restart(entry)
            case "resume":
                await self._runs.resume(entry)
            case "log":
                pager = '"$1" logs "$2" | ${PAGER:-less -R +G}'
                await self._open(["/bin/sh", "-c", pager, "sh", self._amux, entry.id])
            case "attach" | "default":
                await self._open([self._amux, "attach", entry.id])

    # A restart of amuxd must neither repeat a notification nor lose hold of one.

    def _keep(self) -> None:
        self._is_kept = False
        if self._keeping is None or self._keeping.done():
            self._keeping = self._supervisor.spawn(self._write_down())

    async def _write_down(self) -> None:
        while not self._is_kept:
            self._is_kept = True
            try:
                await self._supervisor.on_disk(files.replace, self._kept, self._standing())
            except OSError as error:
                logger.warning("which notifications are shown could not be kept: %s", error)

    def _standing(self) -> str:
        alone = {key: [number, self._board.kind(key)] for key, number in self._shown.items()}
        return json.dumps({"owner": self._desktop.owner, "shown": alone, "together": self._board.members()})

    def _remember(self) -> None:
        try:
            kept: dict[str, Any] = json.loads(self._kept.read_text())
            if kept["owner"] == self._desktop.owner:
                self._shown = {key: number for key, (number, _) in kept["shown"].items()}
                alone = {key: kind for key, (_, kind) in kept["shown"].items() if kind}
                self._board.remember(alone, kept["together"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("which notifications are shown is not known: %s", error)


def _of_move(entry: Entry, lines: list[str]) -> Note:
    kind = entry.state.state.value
    name = entry.session.name
    actions = (_DEFAULT, _ATTACH, _RESUME if entry.resumable else _RESTART, _LOG)
    return Note(
        kind,
        name,
        f"{name} {_VERBS.get(kind, kind)}",
        _body(entry.state.reason, lines),
        URGENCY[kind],
        actions,
    )


def _of_attention(entry: Entry, lines: list[str]) -> Note:
    kind, name = entry.state.attention, entry.session.name
    urgency = CRITICAL if kind in BLOCKED else NORMAL
    body = _body(entry.state.attention_message, lines)
    return Note(ATTENTION, name, f"{name} {_WAITS[kind]}", body, urgency, (_DEFAULT, _ATTACH, _LOG))


def _body(told: str, lines: list[str]) -> str:
    """With the last line printed, where it says something else."""
    return "\n".join(dict.fromkeys(part for part in (told, *lines[-1:]) if part))[:LONGEST_BODY]


_VERBS = {"orphaned": "lost its workspace", "stale": "is stale"}
_WAITS = {
    "permission": "asks for permission",
    "question": "has a question",
    "turn": "is done for now",
    "bell": "calls",
    "custom": "needs you",
}
