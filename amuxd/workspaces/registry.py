"""The workspaces that amuxd knows, and the slots that sessions take in them."""

import asyncio
import contextlib
import difflib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from amuxd.errors import (
    Ambiguous,
    Displaced,
    Internal,
    InvalidArgument,
    InvalidTransition,
    NameTaken,
    NoSuchWorkspace,
    WorkspaceBusy,
)
from amuxd.files import StoreError
from amuxd.lengths import shortened
from amuxd.records import Ground, NotReadable, Place, Process, RunState, Session, Workspace
from amuxd.registry import Entry, check_name, fresh_id, is_beginning, is_id
from amuxd.states import Liveness, State
from amuxd.supervisor import LONGEST_PAUSE, LONGEST_REASON, RETRY_PAUSE, Supervisor
from amuxd.workspaces import marks, slots
from amuxd.workspaces.directories import Identity, Presence, ask, identify, look_in_time, real_in_time
from amuxd.workspaces.ledger import Ledger, UnreadableWorkspace, unfinished
from amuxd.workspaces.slots import Queued, ordinal

logger = logging.getLogger(__name__)


@dataclass
class Closing:
    """Why nobody gets a slot in a workspace for now."""

    why: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


class WorkspaceListener(Protocol):
    """Told after the disk was; who inherits this overrides what it listens to."""

    def workspace_appeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        return

    def workspace_disappeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        return

    def workspace_changed(self, workspace: Workspace) -> None:
        return

    def directory_changed(self, workspace: Workspace) -> None:
        return

    def presence_changed(self, workspace: Workspace) -> None:
        return


class Workspaces:
    def __init__(self, supervisor: Supervisor, ledger: Ledger) -> None:
        self.supervisor = supervisor
        self.ledger = ledger
        ledger.seen_of = self._seen_of
        # Of those whose directory is looked for.
        self.presence: dict[str, Presence] = {}
        # Whose directory was there at some time on this boot.
        self.seen: set[str] = set()
        self._known: dict[str, Workspace] = {}
        self.not_readable: dict[str, UnreadableWorkspace] = {}
        self._names_promised: set[str] = set()
        self._directories_promised: dict[str, str] = {}
        # Where sessions that are of no workspace are just beginning.
        self.guests_beginning: dict[str, str] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._telling: dict[str, asyncio.Lock] = {}
        self._to_be_told: set[str] = set()
        self._closed: dict[str, Closing] = {}
        self._closings = 0
        self._listeners: list[WorkspaceListener] = []

    async def load(self) -> list[Workspace]:
        """Returned is what was being made when amuxd ended: it is listed until its making is over."""
        being_made = []
        for found in await self.supervisor.on_disk(self.ledger.load_all):
            if isinstance(found, UnreadableWorkspace):
                logger.error("workspace %s is left as it is: %s", found.id, found.why)
                if is_id(found.id):
                    self.not_readable[found.id] = found
            elif found.being_made:
                being_made.append(found)
                self.not_readable[found.id] = unfinished(found, "amuxd ended meanwhile")
            else:
                self._known[found.id] = found
                if self.ledger.was_seen(found):
                    self.seen.add(found.id)
        for workspace_id in self._every:
            self._tell_places(workspace_id)
        return being_made

    def listen(self, listener: WorkspaceListener) -> None:
        self._listeners.append(listener)

    def __iter__(self) -> Iterator[Workspace]:
        return iter(sorted(self._known.values(), key=lambda w: (w.created_at, w.id)))

    def get(self, workspace_id: str) -> Workspace | None:
        return self._known.get(workspace_id)

    def of(self, entry: Entry) -> Workspace | None:
        return self._known.get(entry.session.workspace_id)

    def shown_of(self, entry: Entry) -> Workspace | UnreadableWorkspace | None:
        """Also one that cannot be read: it is still the session's."""
        return self._every.get(entry.session.workspace_id)

    def sessions_in(self, workspace_id: str) -> list[Entry]:
        return [e for e in self.supervisor.registry if e.session.workspace_id == workspace_id]

    def waiting_in(self, workspace_id: str) -> list[Entry]:
        """In their order. Who cannot be read keeps its place, and holds up none of the others."""
        workspace = self._known.get(workspace_id)
        queue = workspace.queue if workspace else []
        entries = (self.supervisor.registry.get(place.session_id) for place in queue)
        return [entry for entry in entries if entry is not None]

    def find_readable(self, word: str) -> Workspace:
        found = self.find(word)
        if isinstance(found, UnreadableWorkspace):
            raise InvalidTransition(f"the workspace {found.name} {found.state}: {found.why}")
        return found

    def find(self, word: str) -> Workspace | UnreadableWorkspace:
        every = self._every
        if word in every:
            return every[word]
        named = [w for w in every.values() if w.name == word]
        for candidates in (named, [w for w in every.values() if is_beginning(word, w.id)]):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                which = ", ".join(f"{w.id} ({w.name})" for w in candidates[:5])
                raise Ambiguous(f"{word!r} could be any of {which}")
        if word in self._names_promised:
            raise NoSuchWorkspace(f"the workspace {word!r} is just being made")
        near = difflib.get_close_matches(word, {w.name for w in every.values()}, n=1)
        raise NoSuchWorkspace(
            f"there is no workspace {word!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        )

    def new_id(self) -> str:
        every = self._every
        return fresh_id({*every, *(w.name for w in every.values())})

    @property
    def _every(self) -> dict[str, Workspace | UnreadableWorkspace]:
        return {**self._known, **self.not_readable}

    @contextlib.contextmanager
    def promised(self, name: str) -> Iterator[None]:
        """Keeps the name for the caller while what bears it is made."""
        check_name(name)
        every = self._every
        if name in every:
            raise NameTaken(f"{name!r} is the id of a workspace")
        if name in self._names_promised:
            raise NameTaken(f"a workspace named {name!r} is just being made")
        if any(w.name == name for w in every.values()):
            raise NameTaken(f"there is a workspace named {name!r} already")
        self._names_promised.add(name)
        try:
            yield
        finally:
            self._names_promised.discard(name)

    def whose(self, directory: str) -> str:
        """The name of the workspace that has it, or for which it is just being made."""
        known = (w.name for w in self._every.values() if w.directory == directory)
        return next(known, self._directories_promised.get(directory, ""))

    @property
    def directories_promised(self) -> Mapping[str, str]:
        """With the names of the workspaces that are just being made of them."""
        return self._directories_promised

    @contextlib.contextmanager
    def promised_directory(self, workspace: Workspace) -> Iterator[None]:
        """Keeps the directory for a workspace until it is known."""
        directory = workspace.directory
        if name := self.whose(directory):
            raise InvalidArgument(f"{directory} is the workspace {name} already")
        self._refuse_going(directory)
        self._directories_promised[directory] = workspace.name
        try:
            yield
        finally:
            del self._directories_promised[directory]

    def not_finished(self, workspace: Workspace, why: str) -> None:
        """Its making is over, and its file says otherwise: it is listed until that is mended."""
        unread = self.not_readable[workspace.id] = unfinished(workspace, why)
        for listener in self._listeners:
            listener.workspace_appeared(unread)

    def is_unfinished(self, workspace: Workspace, why: str) -> None:
        """Its making is not over, and the next look at it comes later."""
        if (known := self.not_readable[workspace.id]).why != why:
            logger.error("what was made of workspace %s stays: %s", known.name, why)
            self.not_readable[workspace.id] = replace(known, why=why)

    async def write(self, workspace: Workspace) -> Workspace:
        """First as what is being made: a crash after this leaves nothing that nobody knows of."""
        try:
            written: Workspace = await self.supervisor.on_disk(self.ledger.define, workspace)
        except StoreError as error:
            raise Internal(f"the workspace {workspace.name} is not made: {error}") from error
        return written

    async def write_directory(self, workspace: Workspace, directory: str) -> None:
        """The same directory by another path."""
        moved = await self.supervisor.on_disk(self.ledger.moved, workspace.id, directory)
        self._take_in(moved)
        for listener in self._listeners:
            listener.directory_changed(moved)

    def know(self, workspace: Workspace) -> None:
        self._finish(workspace)
        self._known[workspace.id] = workspace
        self._tell_places(workspace.id)
        self.seen.add(workspace.id)
        logger.info("workspace %s: added, %s", workspace.name, workspace.directory)
        for listener in self._listeners:
            listener.workspace_appeared(workspace)

    async def forget(self, workspace: Workspace) -> None:
        try:
            await self.supervisor.on_disk(self.ledger.remove, workspace.id)
        except StoreError as error:
            raise Internal(f"the workspace {workspace.name} is not forgotten: {error}") from error
        self.presence.pop(workspace.id, None)
        self.seen.discard(workspace.id)
        self._finish(workspace)
        if self._known.pop(workspace.id, None):
            self._tell_places(workspace.id)
            logger.info("workspace %s: removed", workspace.name)
            for listener in self._listeners:
                listener.workspace_disappeared(workspace)

    def _finish(self, workspace: Workspace | UnreadableWorkspace) -> None:
        if was := self.not_readable.pop(workspace.id, None):
            self._tell_places(workspace.id)
            for listener in self._listeners:
                listener.workspace_disappeared(was)

    async def put_aside(self, workspace: UnreadableWorkspace) -> Path:
        async with self.turn(workspace.id):
            if workspace.id in self._known:
                raise InvalidTransition(f"the workspace {workspace.name} has just been made, and is whole")
            if workspace.id not in self.not_readable:
                raise NoSuchWorkspace(f"the workspace {workspace.name} was removed already")
            try:
                where: Path = await self.supervisor.on_disk(self.ledger.put_aside, workspace.id)
            except StoreError as error:
                raise Internal(f"the workspace {workspace.name} stays: {error}") from error
            self._finish(workspace)
        logger.warning("workspace %s: removed unread, its file is %s", workspace.name, where)
        return where

    def found(self, workspace: Workspace, presence: Presence) -> None:
        if presence is Presence.PRESENT and workspace.id not in self.seen:
            self.seen.add(workspace.id)
            self.supervisor.spawn(self._write_seen(workspace))
        for entry in self.sessions_in(workspace.id):
            self._tell_entry(entry, presence)
        if workspace.id in self._known and self.presence.get(workspace.id) is not presence:
            self.presence[workspace.id] = presence
            self._presence_changed(workspace)

    async def _write_seen(self, workspace: Workspace) -> None:
        """For the next amuxd, which could else not tell what was deleted from what is still to come."""
        try:
            self._take_in(await self.supervisor.on_disk(self.ledger.saw, workspace.id))
        except (StoreError, NotReadable) as error:
            logger.error("that %s was there is not kept: %s", workspace.directory, error)

    def looked_for_by_nobody(self, workspace: Workspace) -> None:
        """Whether its directory is there is not known any more."""
        if self.presence.pop(workspace.id, None):
            self._presence_changed(workspace)

    def _presence_changed(self, workspace: Workspace) -> None:
        for listener in self._listeners:
            listener.presence_changed(workspace)

    def was_taken_away(self, workspace: Workspace) -> None:
        """With its directory; nobody looks for that any more."""
        for entry in self.sessions_in(workspace.id):
            self._tell_entry(entry, Presence.GONE)

    def turn(self, workspace_id: str) -> asyncio.Lock:
        return self._turns.setdefault(workspace_id, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def closed(self, workspace: Workspace, why: str = "is being removed") -> AsyncIterator[Closing]:
        """Nobody gets a slot in it meanwhile; whoever got one before is known to be live.

        Who asks is refused, not kept waiting: the one who closed it may wait for that session's operation.
        """
        self.refuse_closed(workspace)
        closing = self._closed[workspace.id] = Closing(why)
        self._closings += 1
        try:
            async with self.turn(workspace.id):
                pass
            yield closing
        finally:
            del self._closed[workspace.id]
            closing.over.set()

    def refuse_closed(self, workspace: Workspace) -> None:
        if closing := self._closed.get(workspace.id):
            raise WorkspaceBusy(f"the workspace {workspace.name} {closing.why}")

    async def until_open(self, workspace_id: str) -> None:
        while closing := self._closed.get(workspace_id):
            await closing.over.wait()

    async def look_while_open(self, workspace: Workspace, known: Identity | None) -> Presence:
        """Who removes it moves its directory away, and puts it back perhaps."""
        while True:
            await self.until_open(workspace.id)
            before = self._closings
            presence = await look_in_time(workspace.directory, known)
            if self._closings == before:
                return presence

    def _changed(self, workspace: Workspace) -> None:
        for listener in self._listeners:
            listener.workspace_changed(workspace)

    # What the runs of sessions ask for.

    async def look(self, entry: Entry) -> bool:
        """Whether the directory that a session works in is there."""
        presence = await look_in_time(entry.session.directory, None)
        self._tell_entry(entry, presence)
        return presence is Presence.PRESENT

    async def ground(self, entry: Entry, command: Process) -> Ground | None:
        workspace = self.of(entry)
        identity = None
        if workspace is not None:
            with contextlib.suppress(TimeoutError):
                identity = await ask(workspace.directory, identify)
        return Ground(command, *identity) if identity else None

    def _tell_entry(self, entry: Entry, presence: Presence) -> None:
        exists = presence is Presence.PRESENT
        if presence is not Presence.UNKNOWN and entry.workspace_exists != exists:
            entry.workspace_exists = exists
            self.supervisor.changed(entry, "Resumable")

    async def check(self, entry: Entry) -> None:
        if workspace := self.of(entry):
            await self.refuse_displaced(workspace)

    async def refuse_displaced(self, workspace: Workspace) -> None:
        """Who works in what stands in the place of a worktree may work for any repository around it."""
        if not workspace.repository:
            return
        # Where nobody can tell, the start itself says why.
        with contextlib.suppress(OSError, ValueError):
            if why := await ask(workspace.directory, marks.why_another, workspace.repository):
                raise Displaced(f"nobody can work in {workspace.name}: {why}")

    async def refuse_busy(self, workspace: Workspace) -> None:
        """Before a session is made for it in vain."""
        try:
            busy = await self.supervisor.on_disk(self.ledger.would_be_busy, workspace.id)
        except StoreError as error:
            raise Internal(f"the slots of {workspace.name} are not known: {error}") from error
        if busy:
            raise self._busy(workspace, busy)

    @contextlib.asynccontextmanager
    async def slot(self, entry: Entry, run: int, patient: bool) -> AsyncIterator[bool]:
        """A slot for a run that begins in the meantime; False: it has a place in the queue instead."""
        workspace_id = entry.session.workspace_id
        if unread := self.not_readable.get(workspace_id):
            raise Internal(f"the workspace of {entry.session.name} {unread.state}: {unread.why}")
        workspace = self._known.get(workspace_id)
        if workspace is None:
            self.guests_beginning[entry.id] = entry.session.directory
            try:
                await self._refuse_guest(entry.session)
                yield True
            finally:
                del self.guests_beginning[entry.id]
            return
        await self.refuse_displaced(workspace)
        # One at a time, so that those that may start at once start in their order.
        async with self.turn(workspace.id):
            self.refuse_closed(workspace)
            if workspace.id not in self._known:
                raise NoSuchWorkspace(f"the workspace {workspace.name} has just been removed")
            with self.ledger.taking(entry.id, run):
                try:
                    outcome = await self.supervisor.on_disk(
                        self.ledger.take, workspace.id, entry.id, run, patient
                    )
                except StoreError as error:
                    raise Internal(f"{entry.session.name} gets no slot: {error}") from error
                if isinstance(outcome, slots.Busy):
                    raise self._busy(workspace, outcome)
                self._take_in(outcome.workspace)
                try:
                    yield not isinstance(outcome, Queued)
                except BaseException:
                    self.supervisor.spawn(self._take_back(workspace.id))
                    raise
        if isinstance(outcome, Queued):
            # Who asked for it reads there what has come of it.
            await self.tell_positions(workspace_id)
        elif outcome.workspace.queue:
            # One has left the queue, perhaps; its start waits for no telling of that.
            self.supervisor.spawn(self.tell_positions(workspace_id))

    async def _refuse_guest(self, session: Session) -> None:
        """What goes with a worktree that is removed is no place to begin in."""
        if self._closed:
            self._refuse_going(session.directory)
            self._refuse_going(await real_in_time(session.directory))

    def _refuse_going(self, directory: str) -> None:
        for workspace in filter(None, map(self._known.get, self._closed)):
            if workspace.repository and Path(directory).is_relative_to(workspace.directory):
                self.refuse_closed(workspace)

    def _seen_of(self, session_id: str, on_disk: RunState | None, why_unreadable: str) -> RunState | None:
        """One that cannot be read, or could not when amuxd began, may work on in its slot all the same."""
        registry = self.supervisor.registry
        if unread := registry.not_readable.get(session_id):
            raise slots.NotKnown(unread.why, may_live=unread.host_alive is not Liveness.DEAD)
        if on_disk is not None:
            return on_disk
        if entry := registry.get(session_id):
            return entry.state
        if why_unreadable:
            raise slots.NotKnown(why_unreadable)
        return None

    async def _take_back(self, workspace_id: str) -> None:
        with contextlib.suppress(StoreError):
            await self.tidy(workspace_id)

    async def tidy(self, workspace_id: str) -> Workspace:
        """As it is once the slots of those that are live no longer are taken back."""
        workspace = await self.supervisor.on_disk(self.ledger.tidy, workspace_id)
        self._take_in(workspace)
        return workspace

    async def tell_positions(self, workspace_id: str) -> None:
        """Each has its place whether it can be told or not; where the disk refuses, it is told later."""
        untold = await self._untold(workspace_id)
        if untold and workspace_id not in self._to_be_told:
            for name, error in untold.items():
                logger.error("of %s it cannot be told what it waits for: %s", name, error)
            self._to_be_told.add(workspace_id)
            self.supervisor.spawn(self._tell_later(workspace_id))

    async def _untold(self, workspace_id: str) -> dict[str, StoreError]:
        # One teller at a time, each with the queue as it is by then: the last word is the latest.
        async with self._telling.setdefault(workspace_id, asyncio.Lock()):
            untold: dict[str, StoreError] = {}
            if (workspace := self._known.get(workspace_id)) is None:
                return untold
            for number, entry in enumerate(self.waiting_in(workspace_id), 1):
                place = f"{slots.WAITING} {workspace.name} ({ordinal(number)})"
                reason = f"{place}{self._outlook(workspace, entry)}"
                try:
                    await self.supervisor.explain(entry, State.CREATED, shortened(reason, LONGEST_REASON))
                except StoreError as error:
                    untold[entry.session.name] = error
            return untold

    def _outlook(self, workspace: Workspace, entry: Entry) -> str:
        if not self._is_there(workspace):
            return f"; begins once {workspace.directory} is there"
        return f"; cannot begin: {entry.obstacle}" if entry.obstacle else ""

    async def _tell_later(self, workspace_id: str) -> None:
        pause = RETRY_PAUSE
        try:
            await asyncio.sleep(pause)
            while await self._untold(workspace_id):
                pause = min(2 * pause, LONGEST_PAUSE)
                await asyncio.sleep(pause)
        finally:
            self._to_be_told.discard(workspace_id)

    def _take_in(self, workspace: Workspace) -> None:
        if workspace.id in self._known and self._known[workspace.id] != workspace:
            self._known[workspace.id] = workspace
            self._tell_places(workspace.id)
            self._changed(workspace)

    def _tell_places(self, workspace_id: str) -> None:
        workspace = self._every.get(workspace_id)
        places = slots.queued(workspace) if isinstance(workspace, Workspace) else []
        runs = {place.session_id: place.run for place in places}
        for entry in self.sessions_in(workspace_id):
            # Where the queue cannot be read, any of them may be in it.
            may_wait = isinstance(workspace, UnreadableWorkspace)
            entry.queued_run = entry.state.run if may_wait else runs.get(entry.id, 0)

    def _busy(self, workspace: Workspace, busy: slots.Busy) -> WorkspaceBusy:
        number = f"{workspace.name} has {workspace.slots} slot{'s' if workspace.slots > 1 else ''}"
        holders = f", held by {self._named(busy.holders)}" if busy.holders else ""
        waiting = f"; waiting before you: {self._named(busy.ahead)}" if busy.ahead else ""
        away = "" if self._is_there(workspace) else f"; {workspace.directory} is not there"
        return WorkspaceBusy(f"{number}{holders}{waiting}{away}")

    def _is_there(self, workspace: Workspace) -> bool:
        """For all that is known."""
        return self.presence.get(workspace.id, Presence.PRESENT) is Presence.PRESENT

    def _named(self, places: list[Place]) -> str:
        names = []
        for place in places:
            entry = self.supervisor.registry.get(place.session_id)
            names.append(f"{entry.session.name} ({entry.id})" if entry else place.session_id)
        return ", ".join(names)
