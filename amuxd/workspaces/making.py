"""Workspaces made and removed at a person's wish, and the set-up command of their repository."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from amuxd.errors import (
    AmuxError,
    Internal,
    InvalidArgument,
    InvalidTransition,
    LaunchFailed,
    NoSuchWorkspace,
    WorkspaceDirty,
)
from amuxd.files import StoreError
from amuxd.git import INHERITED, GitFailed
from amuxd.records import Session, Workspace
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import LIVE, Liveness, State
from amuxd.supervisor import RETRY_PAUSE, now
from amuxd.threads import alone
from amuxd.workspaces import directories, worktrees
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.orphans import depends, orphan
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.worktrees import Removed, Wish

_CAN_BE_ENDED = {State.RUNNING, State.STALE}

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Asked:
    """What AddWorkspace was asked for: a directory as it is, or a worktree."""

    name: str
    path: str = ""
    repository: str = ""
    branch: str = ""
    base: str = ""
    slots: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    umask: int = INHERITED


class Maker:
    def __init__(self, runs: Runs, workspaces: Workspaces) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._workspaces = workspaces
        self._adding: dict[Path, asyncio.Lock] = {}
        # Of their own: a repository that hangs holds up no session. amuxd waits for them when it ends.
        self._threads = ThreadPoolExecutor(16, "worktrees")

    async def _work(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def add(self, asked: Asked) -> Workspace:
        with self._workspaces.promised(asked.name):
            bare = Workspace(
                self._workspaces.new_id(),
                asked.name,
                "",
                now(),
                asked.slots,
                search_path=asked.environment.get("PATH", ""),
            )
            if asked.path:
                made = await _given_in_time(bare, asked.path)
                with self._workspaces.promised_directory(made):
                    await self._workspaces.write(made)
                    self._workspaces.know(made)
                return made
            return await self._worktree(bare, asked)

    async def _worktree(self, bare: Workspace, asked: Asked) -> Workspace:
        settings = self._runs.settings.workspaces
        wish = Wish(asked.repository, asked.branch, asked.base, settings.copy, asked.environment, asked.umask)
        repository = await self._work(worktrees.common_directory, asked.repository)
        async with self._one_at_a_time(repository):
            planned = await self._work(worktrees.planned, bare, wish, settings.directory, repository)
            if self._workspaces.whose(planned.directory):
                # Of another repository of the same name, say, whose worktree is just being made.
                planned = replace(planned, directory=worktrees.place_of_its_own(planned.directory, planned))
            with self._workspaces.promised_directory(planned):
                await self._workspaces.write(planned)
                try:
                    made = await self._work(worktrees.make, planned, wish)
                except AmuxError:
                    await self._workspaces.forget(planned)
                    raise
                await self._workspaces.write(made)
                self._workspaces.know(made)
                return made

    async def recover(self, unfinished: Workspace) -> None:
        """amuxd ended while this was being made; somebody may have worked in it since all the same."""
        try:
            while not await self._try_to_recover(unfinished):
                logger.warning("workspace %s, which was being made, is out of reach", unfinished.name)
                await asyncio.sleep(RETRY_PAUSE)
        except Internal as error:
            # The next amuxd tries again; this one has sessions to look after.
            logger.error("%s", error)
        finally:
            self._workspaces.let_go(unfinished)

    async def _try_to_recover(self, unfinished: Workspace) -> bool:
        """False where a place that it needs does not answer: what became of it is not known."""
        if not await _answers(unfinished):
            return False
        try:
            if await self._recovered(unfinished):
                made = replace(unfinished, being_made=False)
                await self._workspaces.write(made)
                self._workspaces.know(made)
                return True
        except (AmuxError, GitFailed, OSError) as error:
            if not await _answers(unfinished):
                return False
            logger.error("what was made of workspace %s stays: %s", unfinished.name, error)
        await self._workspaces.forget(unfinished)
        return True

    async def _recovered(self, unfinished: Workspace) -> bool:
        repository = await self._work(worktrees.common_directory, unfinished.repository)
        async with self._one_at_a_time(repository):
            return await self._work(worktrees.recovered, unfinished)

    def _one_at_a_time(self, repository: Path) -> asyncio.Lock:
        """git itself takes one worktree after the other in a repository."""
        return self._adding.setdefault(repository, asyncio.Lock())

    async def remove(self, workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
        async with self._workspaces.closed(workspace):
            if self._workspaces.get(workspace.id) is None:
                raise NoSuchWorkspace(f"the workspace {workspace.name} was removed already")
            live = self._refuse_used(workspace, force)
            is_in_reach = await self._is_in_reach(workspace, force)
            if live and workspace.repository and is_in_reach:
                # Nothing is ended for a removal that is refused then.
                await self._work(worktrees.would_lose, workspace, force, with_ignored)
            stopped = _what_stops(live)
            for entry in live:
                await self._end(entry)
            removed = Removed([], [])
            if not is_in_reach:
                removed = Removed([], [f"{workspace.directory}, which is out of reach"])
            elif workspace.repository:
                removed = await self._work(worktrees.remove, workspace, force, with_ignored)
                if not await self._work(os.path.lexists, workspace.directory):
                    for entry in filter(depends, self._workspaces.sessions_in(workspace.id)):
                        entry.workspace_exists = False
                        await orphan(self._runs, entry, workspace.directory)
            await self._workspaces.forget(workspace)
            return Removed([*stopped, *removed.lost], list(dict.fromkeys(removed.kept)))

    async def would_lose(self, workspace: Workspace, force: bool, with_ignored: bool = False) -> list[str]:
        """What remove() would throw away, or what it would raise."""
        stopped = _what_stops(self._refuse_used(workspace, force))
        if not await self._is_in_reach(workspace, force) or not workspace.repository:
            return stopped
        return stopped + await self._work(worktrees.would_lose, workspace, force, with_ignored)

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

    def _refuse_used(self, workspace: Workspace, force: bool) -> list[Entry]:
        """Those who are at work in it, and can be ended."""
        self._refuse_unreadable(workspace)
        self._refuse_others(workspace)
        live = [entry for entry in self._workspaces.sessions_in(workspace.id) if is_at_work(entry)]
        if live and not force:
            raise WorkspaceDirty(f"{workspace.name} has live sessions: {_named(live)}")
        for entry in live:
            if entry.state.state not in _CAN_BE_ENDED:
                raise _cannot_be_ended(entry)
        return live

    def _refuse_unreadable(self, workspace: Workspace) -> None:
        """Sessions of whose files less can be read than of their processes can be seen."""
        known = self._workspaces.get(workspace.id) or workspace
        holders = {place.session_id for place in known.holders}
        unreadable = [
            session.name
            for session in self._supervisor.registry.not_readable.values()
            if session.host_alive is not Liveness.DEAD
            and (session.id in holders or _is_of(session.session, workspace))
        ]
        if unreadable:
            raise WorkspaceDirty(
                f"sessions that cannot be read may be at work in {workspace.name}: {', '.join(unreadable)}; "
                "stop them first"
            )

    def _refuse_others(self, workspace: Workspace) -> None:
        """What goes with the worktree, though it is not the workspace's own."""
        if not workspace.repository:
            return
        others = [
            other.name
            for other in self._workspaces
            if other.id != workspace.id and Path(other.directory).is_relative_to(workspace.directory)
        ]
        if others:
            raise WorkspaceDirty(f"other workspaces lie in {workspace.name}: {', '.join(others)}")
        guests = [
            entry
            for entry in self._supervisor.registry
            if entry.session.workspace_id != workspace.id
            and is_at_work(entry)
            and Path(entry.session.directory).is_relative_to(workspace.directory)
        ]
        if guests:
            raise WorkspaceDirty(f"other live sessions work in {workspace.name}: {_named(guests)}")

    async def _end(self, entry: Entry) -> None:
        if entry.state.state in _CAN_BE_ENDED:
            await self._runs.stop(entry, None)
        if is_at_work(entry):
            raise _cannot_be_ended(entry)

    def setup_of(self, workspace: Workspace) -> str:
        return self._runs.settings.workspaces.setup_for(workspace.repository) if workspace.repository else ""

    def is_allowed(self, workspace: Workspace) -> bool:
        return self._workspaces.ledger.is_allowed(workspace.repository, self.setup_of(workspace))

    async def allow(self, workspace: Workspace) -> None:
        command = self.setup_of(workspace)
        ledger = self._workspaces.ledger
        try:
            await self._supervisor.on_disk(ledger.allow, workspace.repository, command)
        except StoreError as error:
            raise Internal(f"{command!r} is not allowed: {error}") from error

    async def set_up(
        self, workspace: Workspace, environment: dict[str, str], umask: int = INHERITED
    ) -> Entry:
        """The command in a session of its own: with a log, an end that is told, and a place in the list."""
        registry = self._supervisor.registry
        name = registry.promise_name("", f"set-up of {workspace.name}")
        # A session begins with the umask of the user's manager.
        first = "" if umask == INHERITED else f"umask {umask:03o}; "
        session = Session(
            id=registry.new_id(),
            name=name,
            command=["/bin/sh", "-c", first + self.setup_of(workspace)],
            directory=workspace.directory,
            created_at=now(),
            description=f"sets up the workspace {workspace.name}",
            workspace_id=workspace.id,
            queue=True,
            environment=environment,
        )
        try:
            entry = await self._supervisor.create(session, None)
        finally:
            registry.forget_promise(name)
        # One that cannot be started is there, and says why.
        with contextlib.suppress(LaunchFailed):
            await self._runs.start(entry)
        return entry


def is_at_work(entry: Entry) -> bool:
    """Also one whose processes work on while nobody looks after it."""
    return entry.state.state in LIVE or (entry.state.state is State.SUSPENDED and entry.looked_in_vain)


async def _answers(workspace: Workspace) -> bool:
    """Asked before git, which would wait."""
    places = (workspace.repository, f"{workspace.repository}/.git", workspace.directory)
    looks = (directories.look_in_time(place, None) for place in places)
    return Presence.UNKNOWN not in await asyncio.gather(*looks)


def _is_of(session: Session | None, workspace: Workspace) -> bool:
    if session is None:
        return False
    is_within = bool(workspace.repository) and Path(session.directory).is_relative_to(workspace.directory)
    return session.workspace_id == workspace.id or is_within


async def _given_in_time(workspace: Workspace, path: str) -> Workspace:
    try:
        return await alone(partial(_given, workspace, path), directories.PATIENCE)
    except OSError as error:
        raise InvalidArgument(f"{path} is out of reach: {error.strerror or 'it does not answer'}") from error


def _given(workspace: Workspace, path: str) -> Workspace:
    if not path.startswith("/"):
        raise InvalidArgument(f"the directory must be absolute, and {path!r} is not")
    real = os.path.realpath(path)
    if not Path(real).is_dir():
        raise InvalidArgument(f"{path} is no directory")
    return replace(workspace, directory=real)


def _cannot_be_ended(entry: Entry) -> InvalidTransition:
    return InvalidTransition(f"{entry.session.name} is {entry.state.state}: it cannot be ended now")


def _what_stops(live: list[Entry]) -> list[str]:
    return [f"what {entry.session.name} does ({entry.state.state}): it is stopped" for entry in live]


def _named(entries: list[Entry]) -> str:
    return ", ".join(f"{entry.session.name} ({entry.state.state})" for entry in entries)
