"""Sessions whose workspace is deleted, moved or unmounted under them."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from amuxd import processes
from amuxd.errors import Internal
from amuxd.hosts import Alive, Ended, Unknown
from amuxd.records import Workspace, end_of_parked
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import (
    ENDED,
    WITHIN_A_RUN,
    End,
    Fact,
    Liveness,
    State,
    Transition,
    WorkspaceDeleted,
    WorkspaceRemoved,
)
from amuxd.supervisor import KERNEL, RETRY_PAUSE, Listener
from amuxd.workspaces.directories import Directories, Identity, Presence, look_in_time
from amuxd.workspaces.ledger import UnreadableWorkspace
from amuxd.workspaces.registry import WorkspaceListener, Workspaces
from amuxd.workspaces.slots import WAITING

SWEEP = 60.0

logger = logging.getLogger(__name__)


class Orphans(Listener, WorkspaceListener):
    """Watches the directories of those workspaces that a session depends on."""

    def __init__(self, runs: Runs, workspaces: Workspaces) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._workspaces = workspaces
        self._directories = Directories(self._suspect)
        # By workspace: that of the next one may be another directory at the same path.
        self._identities: dict[str, Identity | None] = {}
        self._being_looked_at: set[str] = set()
        self._look_again: set[str] = set()
        self._out_of_reach: set[str] = set()
        self._reported: set[str] = set()

    def close(self) -> None:
        self._directories.close()

    def begin(self) -> None:
        for workspace in self._workspaces:
            self._cover(workspace)
        for entry in self._supervisor.registry:
            if self._waits_in_vain(entry):
                # amuxd ended before it could tell it that.
                self._supervisor.spawn(end_wait(self._runs, entry))
            has_lost_its_own = entry.session.workspace_id and entry.state.state in ENDED
            if has_lost_its_own and self._workspaces.shown_of(entry) is None:
                self._supervisor.spawn(self._workspaces.look(entry))

    async def run(self) -> None:
        """For the directory of which no event tells."""
        while True:
            await asyncio.sleep(SWEEP)
            for workspace in self._workspaces:
                self._suspect(workspace.id)

    def _waits_in_vain(self, entry: Entry) -> bool:
        """The queue went with the workspace: that it was in it is told by its reason alone."""
        waited = entry.state.state is State.CREATED and entry.state.reason.startswith(WAITING)
        return waited and self._workspaces.shown_of(entry) is None

    def appeared(self, entry: Entry) -> None:
        if workspace := self._workspaces.of(entry):
            self._cover(workspace)

    def disappeared(self, entry: Entry) -> None:
        if workspace := self._workspaces.of(entry):
            self._cover(workspace)

    def moved(self, entry: Entry, transition: Transition) -> None:
        if workspace := self._workspaces.of(entry):
            self._cover(workspace)

    def changed(self, entry: Entry, *properties: str) -> None:
        ground = _ground_of(entry) if "SessionAlive" in properties else None
        workspace = self._workspaces.of(entry)
        if ground and workspace and not ground.is_same(self._identities.get(workspace.id)):
            # It began before the directory was watched.
            self._suspect(workspace.id)

    def workspace_disappeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        if isinstance(workspace, Workspace):
            self._uncover(workspace)
            self._reported.discard(workspace.id)

    def directory_changed(self, workspace: Workspace) -> None:
        self._cover(workspace)

    def _cover(self, workspace: Workspace) -> None:
        if not self._is_needed(workspace):
            self._uncover(workspace)
        elif not self._directories.are_watched(workspace.directory, workspace.id):
            self._supervisor.spawn(self._check(workspace))

    def _is_needed(self, workspace: Workspace) -> bool:
        if self._workspaces.get(workspace.id) is None:
            return False
        sessions = self._workspaces.sessions_in(workspace.id)
        # For one that is orphaned already it can come back.
        return any(depends(entry) or entry.state.state is State.ORPHANED for entry in sessions)

    def _uncover(self, workspace: Workspace) -> None:
        self._directories.forget(workspace.id)
        self._identities.pop(workspace.id, None)
        self._workspaces.looked_for_by_nobody(workspace)

    def _suspect(self, workspace_id: str) -> None:
        workspace = self._workspaces.get(workspace_id)
        if workspace is not None and self._is_needed(workspace):
            self._supervisor.spawn(self._check(workspace))

    async def _check(self, workspace: Workspace) -> None:
        if workspace.id in self._being_looked_at:
            self._look_again.add(workspace.id)
            return
        self._being_looked_at.add(workspace.id)
        try:
            while True:
                self._look_again.discard(workspace.id)
                # Its directory may be known by another path meanwhile.
                await self._look(self._workspaces.get(workspace.id) or workspace)
                if workspace.id not in self._look_again:
                    return
        finally:
            self._being_looked_at.discard(workspace.id)

    async def _look(self, workspace: Workspace) -> None:
        identity = self._identities.get(workspace.id)
        presence = await self._workspaces.look_while_open(workspace, identity)
        if presence is Presence.PRESENT:
            presence = await self._look_at_grounds(workspace)
        if self._workspaces.get(workspace.id) is None:
            self._uncover(workspace)
            return
        self._workspaces.found(workspace, presence)
        if presence is Presence.GONE and self._was_there(workspace):
            self._orphan(workspace, self._workspaces.sessions_in(workspace.id))
        if presence is Presence.UNKNOWN:
            self._look_later(workspace)
            return
        self._reported.discard(workspace.id)
        is_watched = self._directories.are_watched(workspace.directory, workspace.id)
        if presence is Presence.GONE or self._identities.get(workspace.id) is None or not is_watched:
            await self._arm(workspace, presence)

    async def _look_at_grounds(self, workspace: Workspace) -> Presence:
        """Those that live may have begun in another directory, which went before this one was seen."""
        seen = self._identities.get(workspace.id)
        sessions = self._workspaces.sessions_in(workspace.id)
        presence = Presence.PRESENT
        for ground in {ground for entry in sessions if (ground := _ground_of(entry))}:
            if ground.is_same(seen):
                continue
            found = await self._workspaces.look_while_open(workspace, ground)
            if found is Presence.GONE:
                self._orphan(workspace, [entry for entry in sessions if _ground_of(entry) == ground])
            elif found is Presence.UNKNOWN:
                # Something is mounted over it.
                presence = found
        return presence

    def _was_there(self, workspace: Workspace) -> bool:
        """It was seen, or somebody lives who began in it. Else, after a boot, it may be mounted yet."""
        live = (entry.session_alive is Liveness.ALIVE for entry in self._workspaces.sessions_in(workspace.id))
        return workspace.id in self._workspaces.seen or any(live)

    def _orphan(self, workspace: Workspace, entries: Iterable[Entry]) -> None:
        for entry in filter(depends, entries):
            self._supervisor.spawn(orphan_dependent(self._runs, entry, workspace.directory))

    async def _arm(self, workspace: Workspace, presence: Presence) -> None:
        self._directories.forget(workspace.id)
        try:
            known = await self._directories.watch(workspace.directory, workspace.id)
        except TimeoutError:
            self._workspaces.found(workspace, Presence.UNKNOWN)
            self._look_later(workspace)
            return
        known = self._identities[workspace.id] = known if presence is Presence.PRESENT else None
        if await self._workspaces.look_while_open(workspace, known) is not presence:
            # It came or went before it was watched.
            self._look_again.add(workspace.id)
        # Who needed it may be gone meanwhile.
        self._cover(self._workspaces.get(workspace.id) or workspace)

    def _look_later(self, workspace: Workspace) -> None:
        if workspace.id not in self._reported:
            where = workspace.directory
            logger.warning("%s, the directory of workspace %s, is out of reach", where, workspace.name)
            self._reported.add(workspace.id)
        if workspace.id not in self._out_of_reach:
            self._out_of_reach.add(workspace.id)
            asyncio.get_running_loop().call_later(RETRY_PAUSE, self._reach_again, workspace.id)

    def _reach_again(self, workspace_id: str) -> None:
        self._out_of_reach.discard(workspace_id)
        self._suspect(workspace_id)


def depends(entry: Entry) -> bool:
    """Whether it would lose its place to work in."""
    return State.ORPHANED in WITHIN_A_RUN[entry.state.state]


def _ground_of(entry: Entry) -> Identity | None:
    """What it began in, as long as that process lives."""
    ground, home = entry.state.ground, entry.home
    if ground is None or home is None or ground.command != home.command or not depends(entry):
        return None
    return Identity(ground.device, ground.inode, ground.mount)


async def orphan(runs: Runs, entry: Entry, directory: str) -> None:
    """The directory that it works in is gone: said at once, then it is ended as if it had been stopped."""
    async with entry.operation:
        await _orphan(runs, entry, WorkspaceDeleted(directory))


async def end_wait(runs: Runs, entry: Entry) -> None:
    """The workspace that it waited for is no more. Where the directory stands it can be begun again."""
    async with entry.operation:
        await _orphan(runs, entry, WorkspaceRemoved())
    await runs.places.look(entry)


async def orphan_dependent(runs: Runs, entry: Entry, directory: str) -> None:
    """Who waits for a slot keeps its place, and begins once the directory is back."""
    async with entry.operation:
        if not entry.waits_for_slot and not await _has_begun_anew(entry, directory):
            await _orphan(runs, entry, WorkspaceDeleted(directory))


async def _has_begun_anew(entry: Entry, directory: str) -> bool:
    """In what has come in the place of what is gone, while it was waited for the operation."""
    ground = _ground_of(entry)
    return ground is not None and await look_in_time(directory, ground) is Presence.PRESENT


async def _orphan(runs: Runs, entry: Entry, fact: Fact) -> None:
    if runs.supervisor.registry.get(entry.id) is not entry:
        return
    # Of one that is parked the process has ended already.
    end, ended_at = end_of_parked(entry.state) if entry.parked else (None, 0)
    known: dict[str, Any] = {"end": end, "ended_at": ended_at, "parked": False, "parked_at": 0}
    # What cannot be written now is told later.
    with contextlib.suppress(Internal):
        await runs.tell(entry, partial(_tell, runs, entry, fact, known))


async def _tell(runs: Runs, entry: Entry, fact: Fact, known: dict[str, Any]) -> None:
    if await runs.supervisor.apply_surely(entry, fact, KERNEL, **known):
        runs.aftermath.follow(entry, partial(end_orphan, runs, entry))


async def end_orphan(runs: Runs, entry: Entry) -> None:
    """Ends what is left of it, also what an amuxd before this one had begun to end."""
    if entry.certificate is not None and entry.certificate.complete:
        # It ended by itself just then, and that was settled.
        return
    end = entry.state.end or End()
    try:
        if entry.home is None:
            match await runs.host.find(entry.session, entry.state):
                case Alive(home=home):
                    runs.homes.take(entry, home)
                case Ended(end=told):
                    end = told
                case Unknown(why=why):
                    raise Internal(why)
    except Exception as error:
        logger.exception("%s could not be looked at", entry.session.name)
        # And is looked at again.
        entry.miss(error)
        runs.supervisor.changed(entry, "SessionAlive", "HostAlive")
        return
    try:
        ended = await runs.end_processes(entry, runs.grace_of(entry))
        end = ended if ended.known else end
    except Exception:
        logger.exception("what is left of %s could not be ended", entry.session.name)
        if (left := entry.home) is not None:
            if not entry.ended.is_set():
                # It lives on, and is certified when it ends.
                return
            seen = processes.end_of(left.command_fd, left.command)
            end = seen or runs.host.end_on_record(entry.session, entry.state.run) or end
    runs.homes.leave(entry)
    entry.keeps_terminal = False
    entry.attached = 0
    if entry.certificate is not None:
        # Told to be orphaned at once, it had its grace after that.
        ended_at = max(entry.certificate.ended_at, entry.ended_at)
        entry.certificate = replace(entry.certificate, end=end, ended_at=ended_at)
    await runs.supervisor.certify(entry)
    differing = ("Pid", "Attached", "ExitCode", "ExitSignal", "HowEnded", "SessionAlive", "HostAlive")
    runs.supervisor.changed(entry, *differing)
