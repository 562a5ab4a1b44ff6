"""Workspaces removed at a person's wish, and removals finished that amuxd did not live to finish."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from amuxd import processes
from amuxd.errors import (
    AmuxError,
    InvalidArgument,
    InvalidTransition,
    NoSuchWorkspace,
    WorkspaceBusy,
    WorkspaceDirty,
)
from amuxd.records import Session, Workspace
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import LIVE, Liveness, State
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE
from amuxd.threads import alone
from amuxd.workspaces import aside, directories, planning, worktrees
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.orphans import depends, end_wait, orphan
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.repositories import Repositories
from amuxd.workspaces.worktrees import Removed

_BEING_PUT_BACK = "was being removed when amuxd ended, and is just being put back"
_CAN_BE_ENDED = {State.RUNNING, State.STALE}

logger = logging.getLogger(__name__)


class Remover:
    def __init__(self, runs: Runs, workspaces: Workspaces, repositories: Repositories) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._workspaces = workspaces
        self._repositories = repositories

    async def remove(self, workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
        async with self._workspaces.closed(workspace):
            if self._workspaces.get(workspace.id) is None:
                raise NoSuchWorkspace(f"the workspace {workspace.name} was removed already")
            live = await self._refuse_used(workspace, force)
            is_in_reach = await self._is_in_reach(workspace, force)
            goes = is_in_reach and bool(workspace.repository)
            if live and goes:
                # Nothing is ended for a removal that is refused then.
                async with self._repositories.turn_of_caller(await self._repository_of(workspace)):
                    await self._repositories.work(worktrees.keep_ahead, workspace, force, with_ignored)
            ended = self._what_ends(workspace, live)
            for entry in live:
                await self._end(entry)
            removed = Removed([], [])
            if not is_in_reach:
                removed = Removed([], [f"{workspace.directory}, which is out of reach"])
            elif goes:
                removed = await self._taken_away(workspace, bool(live), force, with_ignored)
                if not await self._repositories.work(os.path.lexists, workspace.directory):
                    self._workspaces.was_taken_away(workspace)
                    ended += self._what_is_orphaned(workspace, live)
                    for entry in filter(depends, self._workspaces.sessions_in(workspace.id)):
                        await orphan(self._runs, entry, workspace.directory)
            waiting = self._workspaces.waiting_in(workspace.id)
            await self._workspaces.forget(workspace)
            for entry in waiting:
                await end_wait(self._runs, entry)
            return Removed([*ended, *removed.lost], list(dict.fromkeys(removed.kept)))

    async def _taken_away(
        self, workspace: Workspace, has_begun: bool, force: bool, with_ignored: bool
    ) -> Removed:
        # Of what has ended for it already it is the removal that is owed, whoever is there for it.
        turn = self._repositories.turn if has_begun else self._repositories.turn_of_caller
        async with turn(await self._repository_of(workspace)):
            removed = await self._repositories.work(worktrees.take_away, workspace, force, with_ignored)
        # Deleting may take long: amuxd ends meanwhile, and the next one goes on with it.
        left = await alone(partial(aside.delete, workspace))
        return replace(removed, kept=[*removed.kept, *left])

    async def _repository_of(self, workspace: Workspace) -> Path:
        """Each of two that go at once would count on the other to have a commit as well: they take turns."""
        try:
            return await self._repositories.work(planning.common_directory, workspace.repository)
        except InvalidArgument:
            # Whoever looks into it next says what is wrong with it.
            return Path(workspace.repository)

    async def would_lose(self, workspace: Workspace, force: bool, with_ignored: bool = False) -> list[str]:
        """What remove() would throw away, or what it would raise."""
        self._workspaces.refuse_closed(workspace)
        live = await self._refuse_used(workspace, force)
        ended = self._what_ends(workspace, live)
        if not await self._is_in_reach(workspace, force) or not workspace.repository:
            return ended
        would = await self._repositories.work(worktrees.would_lose, workspace, force, with_ignored)
        orphaned = [] if would.kept else self._what_is_orphaned(workspace, live)
        return [*ended, *orphaned, *would.lost]

    async def _is_in_reach(self, workspace: Workspace, force: bool) -> bool:
        """Asked before git would wait for it: without an answer it is forgotten by force alone."""
        if not workspace.repository:
            return True
        directory = workspace.directory
        if await directories.look_in_time(directory, None) is not Presence.UNKNOWN:
            return True
        if not force:
            raise WorkspaceDirty(f"nobody can tell what is in {workspace.name}: {directory} is out of reach")
        return False

    async def _refuse_used(self, workspace: Workspace, force: bool) -> list[Entry]:
        """Those who are at work in it, and can be ended."""
        is_within = await self._what_lies_in(workspace)
        self._refuse_unreadable(workspace, is_within)
        self._refuse_others(workspace, is_within)
        live = [entry for entry in self._workspaces.sessions_in(workspace.id) if self._is_at_work(entry)]
        if live and not force:
            raise WorkspaceDirty(f"{workspace.name} has live sessions: {self._named(live)}")
        for entry in live:
            if not self._can_be_ended(entry):
                raise self._cannot_be_ended(entry)
        return live

    async def _what_lies_in(self, workspace: Workspace) -> Callable[[str], bool]:
        """Tells of a directory whether it goes with the worktree, whatever links lead to it."""
        if not workspace.repository:
            return lambda _: False
        registry = self._supervisor.registry
        places = {other.directory for other in self._workspaces}
        places |= {*self._workspaces.directories_promised, *self._workspaces.guests_beginning.values()}
        places |= {entry.session.directory for entry in registry if self._is_at_work(entry)}
        places |= {unread.session.directory for unread in registry.not_readable.values() if unread.session}
        asked = list(places | {workspace.directory})
        real = dict(zip(asked, await asyncio.gather(*map(directories.real_in_time, asked)), strict=True))
        tops = (workspace.directory, real[workspace.directory])

        def is_within(place: str) -> bool:
            paths = (Path(place), Path(real.get(place, place)))
            return any(path.is_relative_to(top) for path in paths for top in tops)

        return is_within

    def _refuse_unreadable(self, workspace: Workspace, is_within: Callable[[str], bool]) -> None:
        """Sessions of whose files less can be read than of their processes can be seen."""
        known = self._workspaces.get(workspace.id) or workspace
        holders = {place.session_id for place in known.holders}

        def is_of_it(session: Session | None) -> bool:
            if session is None:
                return False
            return session.workspace_id == workspace.id or is_within(session.directory)

        unreadable = [
            session.name
            for session in self._supervisor.registry.not_readable.values()
            if session.host_alive is not Liveness.DEAD
            and (session.id in holders or is_of_it(session.session))
        ]
        if unreadable:
            raise WorkspaceDirty(
                f"sessions that cannot be read may be at work in {workspace.name}: {', '.join(unreadable)}; "
                "stop them first"
            )

    def _refuse_others(self, workspace: Workspace, is_within: Callable[[str], bool]) -> None:
        """What goes with the worktree, though it is not the workspace's own."""
        others = [
            other.name
            for other in self._workspaces
            if other.id != workspace.id and is_within(other.directory)
        ]
        promised = self._workspaces.directories_promised
        others += [name for directory, name in promised.items() if is_within(directory)]
        if others:
            raise WorkspaceDirty(f"other workspaces lie in {workspace.name}: {', '.join(others)}")
        guests = [
            entry
            for entry in self._supervisor.registry
            if entry.session.workspace_id != workspace.id
            and (self._is_at_work(entry) or entry.id in self._workspaces.guests_beginning)
            and is_within(entry.session.directory)
        ]
        if guests:
            raise WorkspaceDirty(f"other live sessions work in {workspace.name}: {self._named(guests)}")

    def _is_at_work(self, entry: Entry) -> bool:
        """Also one whose processes work on while nobody looks after it, or in a shell that stayed open."""
        if entry.state.state in LIVE or entry.may_live:
            return True
        shell = entry.state.command
        return entry.shell_open and shell is not None and processes.may_have_children(shell)

    def _can_be_ended(self, entry: Entry) -> bool:
        return entry.state.state in _CAN_BE_ENDED or entry.shell_open

    async def _end(self, entry: Entry) -> None:
        if self._can_be_ended(entry):
            await self._runs.stop(entry, None)
        if self._is_at_work(entry):
            raise self._cannot_be_ended(entry)

    def _cannot_be_ended(self, entry: Entry) -> InvalidTransition:
        return InvalidTransition(f"{entry.session.name} is {_stand(entry)}: it cannot be ended now")

    def _what_ends(self, workspace: Workspace, live: list[Entry]) -> list[str]:
        waiting = [entry for entry in self._workspaces.waiting_in(workspace.id) if entry.waits_for_slot]
        return [
            *(f"what {entry.session.name} does ({_stand(entry)}): it is stopped" for entry in live),
            *(f"the place of {entry.session.name} in the queue: it is orphaned" for entry in waiting),
        ]

    def _what_is_orphaned(self, workspace: Workspace, live: list[Entry]) -> list[str]:
        """With its directory, and neither at work there nor in the queue."""
        named = [*live, *self._workspaces.waiting_in(workspace.id)]
        others = [e for e in self._workspaces.sessions_in(workspace.id) if depends(e) and e not in named]
        return [
            f"the place of {entry.session.name} to work in ({_stand(entry)}): it is orphaned"
            for entry in others
        ]

    def _named(self, entries: list[Entry]) -> str:
        return ", ".join(f"{entry.session.name} ({_stand(entry)})" for entry in entries)

    async def recover(self) -> None:
        """amuxd ended while it removed some: these are where they were, or deleted."""
        removable: dict[str, list[Workspace]] = {}
        for workspace in self._workspaces:
            if workspace.repository:
                removable.setdefault(str(Path(workspace.directory).parent), []).append(workspace)
        await asyncio.gather(*(self._recover_in(*each, RETRY_PAUSE) for each in removable.items()))

    async def _recover_in(self, parent: str, removable: list[Workspace], pause: float) -> None:
        seen = await self._seen_in(parent, removable)
        if unseen := [workspace for workspace in removable if workspace.id not in seen]:
            self._supervisor.spawn(self._recover_later(parent, unseen, pause))
        # All at once: each is closed from now on, however long the others take.
        left = [workspace for workspace in removable if seen.get(workspace.id)]
        await asyncio.gather(*(self._put_back(workspace) for workspace in left))

    async def _recover_later(self, parent: str, unseen: list[Workspace], pause: float) -> None:
        """Those that are neither here nor there may be on a file system that is mounted later."""
        await asyncio.sleep(pause)
        if known := [workspace for workspace in unseen if self._workspaces.get(workspace.id)]:
            await self._recover_in(parent, known, min(2 * pause, LONGEST_PAUSE))

    async def _seen_in(self, parent: str, removable: list[Workspace]) -> dict[str, bool]:
        pause, said = RETRY_PAUSE, ""
        while True:
            try:
                return await directories.ask(parent, aside.seen_in, removable)
            except OSError as error:
                why = error.strerror or "it does not answer"
            if why != said:
                logger.warning("whether %s has more than can be seen is not known: %s", parent, why)
            said = why
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _put_back(self, workspace: Workspace) -> None:
        # Whoever removes it at this moment does that first.
        with contextlib.suppress(WorkspaceBusy):
            async with self._workspaces.closed(workspace, _BEING_PUT_BACK) as closing:
                pause, said = RETRY_PAUSE, ""
                while why := await _why_not_put_back(workspace):
                    if why != said:
                        logger.error("%s", why)
                    said = why
                    if await directories.look_in_time(workspace.directory, None) is Presence.PRESENT:
                        # Somebody has made it anew, and works in that.
                        return
                    closing.why = f"was being removed when amuxd ended, and is not back yet: {why}"
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)


async def _why_not_put_back(workspace: Workspace) -> str:
    try:
        await alone(partial(aside.recover, workspace))
    except (AmuxError, OSError) as error:
        return str(error)
    return ""


def _stand(entry: Entry) -> str:
    return f"{entry.state.state}{', with a shell at work' if entry.shell_open else ''}"
