"""Workspaces made at a person's wish, and the set-up command of their repository."""

import asyncio
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from amuxd.errors import AmuxError, Internal, InvalidArgument
from amuxd.files import StoreError
from amuxd.git import GitFailed, without_own
from amuxd.helpers import INHERITED, is_stopping
from amuxd.records import Session, Workspace
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE, now
from amuxd.workspaces import directories, planning, worktrees
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.planning import Wish
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.repositories import Repositories
from amuxd.workspaces.worktrees import NotTakenBack

logger = logging.getLogger(__name__)


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
    def __init__(self, runs: Runs, workspaces: Workspaces, repositories: Repositories) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._workspaces = workspaces
        self._repositories = repositories
        # The repositories that the configuration has links to, and how it names them.
        self._linked: dict[str, str] = {}

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
                made = replace(bare, directory=await _given(asked.path))
                with self._workspaces.promised_directory(made):
                    made = await self._workspaces.write(made)
                    self._workspaces.know(made)
                return made
            return await self._worktree(bare, asked)

    async def _worktree(self, bare: Workspace, asked: Asked) -> Workspace:
        settings = self._runs.settings.workspaces
        environment = without_own(asked.environment)
        wish = Wish(asked.repository, asked.branch, asked.base, settings.copy, environment, asked.umask)
        repository = await self._repositories.work(planning.repository_around, asked.repository)
        places = planning.looked_at(bare, settings.directory, repository)
        await _refuse_hung(places)
        async with self._repositories.turn_of_caller(repository):
            # That may have come while others had their turn.
            await _refuse_hung(places)
            planned = await self._repositories.work(
                planning.planned, bare, wish, settings.directory, repository
            )
            if self._workspaces.whose(planned.directory):
                # Of another repository of the same name, say, whose worktree is just being made.
                planned = replace(planned, directory=planning.place_of_its_own(planned.directory, planned))
            with self._workspaces.promised_directory(planned):
                await self._workspaces.write(planned)
                try:
                    made = await self._repositories.work(worktrees.make, planned, wish)
                except Exception as error:
                    # Where amuxd is stopping git takes nothing back any more, and the next amuxd does.
                    if not is_stopping():
                        await self._dismiss(planned, error)
                    raise
                try:
                    made = await self._workspaces.write(made)
                except Exception as error:
                    self._take_back(planned, str(error))
                    raise
                self._workspaces.know(made)
                return made

    async def _dismiss(self, planned: Workspace, why: Exception) -> None:
        if isinstance(why, NotTakenBack):
            self._take_back(planned, str(why))
            return
        try:
            await self._workspaces.forget(planned)
        except Internal as error:
            self._take_back(planned, str(error))

    def _take_back(self, planned: Workspace, why: str) -> None:
        """Its file says that it is being made still: it is dealt with as after a crash."""
        self._workspaces.not_finished(planned, why)
        self._supervisor.spawn(self.recover(planned))

    async def recover(self, unfinished: Workspace) -> None:
        """amuxd ended while this was being made; somebody may have worked in it since all the same."""
        pause = RETRY_PAUSE
        while True:
            # Who removes it waits for that, or it is done.
            async with self._workspaces.turn(unfinished.id):
                if unfinished.id not in self._workspaces.not_readable:
                    return
                if not (why := await self._try_to_recover(unfinished)):
                    return
                self._workspaces.is_unfinished(unfinished, why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try_to_recover(self, unfinished: Workspace) -> str:
        """Why what became of it is not known; where it is, it is a workspace, or nothing of it is left."""
        if not await _answers(unfinished):
            return "its directory or its repository is out of reach"
        try:
            if await self._recovered(unfinished):
                made = replace(unfinished, being_made=False)
                made = await self._workspaces.write(made)
                self._workspaces.know(made)
                return ""
        except (AmuxError, GitFailed, OSError) as error:
            if not await _is_gone(unfinished):
                return str(error)
        try:
            await self._workspaces.forget(unfinished)
        except Internal as error:
            return str(error)
        return ""

    async def _recovered(self, unfinished: Workspace) -> bool:
        if any(other.directory == unfinished.directory for other in self._workspaces):
            # An amuxd that knew nothing of this one has made that.
            return False
        repository = await self._repositories.work(planning.common_directory, unfinished.repository)
        async with self._repositories.turn(repository):
            return await self._repositories.work(worktrees.recovered, unfinished)

    async def resolve_paths(self) -> None:
        """An amuxd before this one wrote down what leads to a worktree, and git lists what that leads to."""
        await asyncio.gather(*(self._resolve_path(w) for w in self._workspaces if w.repository))

    async def _resolve_path(self, workspace: Workspace) -> None:
        directory = Path(workspace.directory)
        real = str(Path(await directories.real_in_time(str(directory.parent)), directory.name))
        if real != workspace.directory:
            try:
                planning.require_text("directory", real)
                await self._workspaces.write_directory(workspace, real)
            except (InvalidArgument, StoreError) as error:
                logger.error("workspace %s keeps the path of a link: %s", workspace.name, error)

    async def find_linked(self) -> None:
        """Where the links lead by now that the configuration names repositories by."""
        settings = self._runs.settings.workspaces
        named = [name for name in settings.setup if name]
        real = await asyncio.gather(*map(directories.real_in_time, named))
        # Whoever has configured others meanwhile finds those.
        if self._runs.settings.workspaces is settings:
            self._linked = {place: name for place, name in zip(real, named, strict=True) if place != name}

    def setup_of(self, workspace: Workspace) -> str:
        settings, repository = self._runs.settings.workspaces, workspace.repository
        if not repository:
            return ""
        return settings.setup_for(
            repository if repository in settings.setup else self._linked.get(repository, repository)
        )

    def is_allowed(self, workspace: Workspace, command: str) -> bool:
        return self._workspaces.ledger.is_allowed(workspace.repository, command)

    async def allow(self, workspace: Workspace, command: str) -> None:
        ledger = self._workspaces.ledger
        try:
            await self._supervisor.on_disk(ledger.allow, workspace.repository, command)
        except StoreError as error:
            raise Internal(f"{command!r} is not allowed: {error}") from error

    async def set_up(
        self, workspace: Workspace, command: str, environment: dict[str, str], umask: int = INHERITED
    ) -> Entry:
        """The command in a session of its own: with a log, an end that is told, and a place in the list."""
        await self._workspaces.refuse_displaced(workspace)
        registry = self._supervisor.registry
        name = registry.promise_name("", f"set-up of {workspace.name}")
        session = Session(
            id=registry.new_id(),
            name=name,
            command=["/bin/sh", "-c", command],
            directory=workspace.directory,
            created_at=now(),
            description=f"sets up the workspace {workspace.name}",
            workspace_id=workspace.id,
            queue=True,
            umask=umask,
            environment=environment,
        )
        try:
            entry = await self._supervisor.create(session, None)
        finally:
            registry.forget_promise(name)
        await self._runs.start_new(entry)
        return entry


async def _is_gone(workspace: Workspace) -> bool:
    """With its repository, so that nothing of it can be left."""
    looks = (directories.look_in_time(place, None) for place in (workspace.directory, workspace.repository))
    return set(await asyncio.gather(*looks)) == {Presence.GONE}


async def _answers(workspace: Workspace) -> bool:
    """Asked before git, which would wait."""
    places = (workspace.repository, f"{workspace.repository}/.git", workspace.directory)
    looks = (directories.look_in_time(place, None) for place in places)
    return Presence.UNKNOWN not in await asyncio.gather(*looks)


async def _refuse_hung(places: Iterable[Path]) -> None:
    """Asked before the threads that work on repositories would wait for it."""
    for place in places:
        try:
            await directories.ask(str(place), os.path.exists)
        except TimeoutError as error:
            raise _out_of_reach(place, error) from error


async def _given(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidArgument(f"the directory must be absolute, and {path!r} is not")
    try:
        real = await directories.ask(path, _real)
    except OSError as error:
        raise _out_of_reach(path, error) from error
    planning.require_text("directory", real)
    return real


def _out_of_reach(path: Path | str, error: OSError) -> Internal:
    return Internal(f"{path} is out of reach: {error.strerror or 'it does not answer'}")


def _real(path: str) -> str:
    real = os.path.realpath(path)
    if not Path(real).is_dir():
        raise InvalidArgument(f"{path} is no directory")
    return real
