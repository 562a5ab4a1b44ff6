"""An amuxd within the test, which can be killed at whatever it is about to do, and be begun again."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from standin_host import StandinHost, World, home_of

from amuxd import reconcile
from amuxd.config import Settings, WorkspaceSettings
from amuxd.hosts import Alive, Finding, Gone, Home
from amuxd.records import RunState, Session, Workspace
from amuxd.states import ENDED, State
from amuxd.store import Store
from amuxd.supervisor import now
from amuxd.workspaces.making import Maker
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.repositories import Repositories

DEADLINE = 60.0
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# git is called by whoever wants it to do something, or to tell of what is done next.
_EFFECTS = {
    f"os.{name}" for name in ("rename", "mkdir", "rmdir", "remove", "link", "symlink", "chmod", "utime")
} | {"os.posix_spawn", "subprocess.Popen"}

Answer = TypeVar("Answer")


class Killed(BaseException):
    """amuxd does nothing more from here on."""


class Moment:
    """Between two of the things that amuxd does; each of them is about to be done when it is counted."""

    present: "Moment | None" = None

    def __init__(self, at: int, then: Callable[[], None], dies: Callable[[], object]) -> None:
        self._left = at
        self._then = then
        self._dies = dies
        self._turn = threading.RLock()
        self._happens = False
        self.is_fatal = False

    def comes_nearer(self) -> None:
        with self._turn:
            if self.is_fatal:
                raise Killed
            if self._happens:
                return
            self._left -= 1
            if self._left == 0:
                self._happens = True
                try:
                    self._then()
                except Killed:
                    self.is_fatal = True
                    self._dies()
                    raise
                finally:
                    self._happens = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if Moment.present is not None and (
        event in _EFFECTS or (event == "open" and _is_for_writing(*arguments))
    ):
        Moment.present.comes_nearer()


def _is_for_writing(path: object, mode: object, flags: int) -> bool:
    return path != os.devnull and not isinstance(path, int) and bool(flags & _WRITING)


sys.addaudithook(_audit)


def kill() -> None:
    raise Killed


class LastingHost(StandinHost):
    """Its runs go on without amuxd, and the next one finds them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    async def launch(self, session: Session, run: int, keep_terminal: bool) -> Home:
        home = await super().launch(session, run, keep_terminal)
        self.running[session.id] = self.processes[-1]
        return home

    async def find(self, session: Session, state: RunState) -> Finding:
        return Alive(home_of(self.running[session.id])) if self.lives(session.id) else Gone()

    async def tear_down(self, session_id: str, at_once: bool = False) -> None:
        if at_once and (process := self.running.get(session_id)):
            process.kill()
            _wait(process)

    def lives(self, session_id: str) -> bool:
        process = self.running.get(session_id)
        return process is not None and not _wait(process, os.WNOHANG)


def _wait(process: subprocess.Popen[bytes], how: int = 0) -> bool:
    """Whether it has ended; how is for whoever asks that, unless somebody has."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | how) is not None
    except ChildProcessError:
        return True


class Amuxd:
    """One after the other, on the same files."""

    def __init__(self, state: Path, trees: Path) -> None:
        self._state = state
        self._trees = trees
        self.host = LastingHost(Store(state))
        self.begin()

    def begin(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start())

    async def _start(self) -> None:
        """As the daemon does it."""
        self._world = world = World(self._state, self.host)
        self.copies([])
        repositories = self._repositories = Repositories()
        self.maker = maker = Maker(world.runs, world.workspaces, repositories)
        self.remover = remover = Remover(world.runs, world.workspaces, repositories)
        self._death = asyncio.Event()
        async with asyncio.timeout(DEADLINE):
            await reconcile.load(world.supervisor, world.runs.settings)
            left = await world.workspaces.load()
            await asyncio.gather(*map(maker.recover, left), remover.recover(), maker.resolve_paths())
            await reconcile.reconcile(world.runs)

    def _end(self) -> None:
        self._world.supervisor.cancel_tasks()
        for entry in self._world.supervisor.registry:
            if entry.home is not None:
                self._world.runs.homes.leave(entry)
        self._world.watch.close()
        self._runner.close()
        # Its threads end with it: each is killed at whatever it is about to do next.
        self._repositories._threads.shutdown()

    def close(self) -> None:
        self._end()
        self.host.end()

    def is_killed(self) -> None:
        """While it has nothing to do."""
        self._end()
        self.begin()

    def ends_what_it_was_ending(self) -> None:
        """What the one before it had begun to stop."""
        registry = self._world.supervisor.registry
        self._runner.run(
            self._world.until(lambda: all(e.state.state is not State.STOPPING for e in registry))
        )

    def copies(self, names: list[str]) -> None:
        settings = Settings(stop_grace=5, workspaces=WorkspaceSettings(self._trees, copy=tuple(names)))
        self._world.runs.configure(settings)

    @property
    def workspaces(self) -> dict[str, Workspace]:
        return {workspace.id: workspace for workspace in self._world.workspaces}

    def do(self, asked: Awaitable[Answer], at: int = 0, then: Callable[[], None] = kill) -> Answer:
        """At a moment of it something happens; whoever kills amuxd has to begin the next one."""
        loop = self._runner.get_loop()
        moment = Moment(at, then, lambda: loop.call_soon_threadsafe(self._death.set))
        Moment.present = moment
        try:
            return self._runner.run(self._answer(asked))
        finally:
            try:
                if moment.is_fatal:
                    self._end()
            finally:
                Moment.present = None

    async def _answer(self, asked: Awaitable[Answer]) -> Answer:
        work, death = asyncio.ensure_future(asked), asyncio.ensure_future(self._death.wait())
        done, _ = await asyncio.wait({work, death}, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        assert done, "amuxd does not come to an end with it"
        if self._death.is_set():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise Killed
        death.cancel()
        return work.result()

    def run(self, directory: str, workspace: str) -> str:
        """The id of a session that lives until it is ended."""
        return self._runner.run(self._run(directory, workspace))

    async def _run(self, directory: str, workspace: str) -> str:
        supervisor = self._world.supervisor
        key = supervisor.registry.new_id()
        session = Session(key, key, ["sleep", "1h"], directory, now(), workspace_id=workspace)
        await self._world.runs.start(await supervisor.create(session, None))
        return key

    def stop(self, session_id: str) -> None:
        entry = self._world.supervisor.registry.get(session_id)
        assert entry is not None
        self._runner.run(self._world.runs.stop(entry, None))
        assert entry.state.state in ENDED
