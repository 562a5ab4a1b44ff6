"""A host whose runs are plain processes, and that fails when it is told to."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any, BinaryIO

from amuxd import callers, processes
from amuxd.agents import Agent
from amuxd.callers import Caller
from amuxd.config import Settings
from amuxd.hosts import Finding, Gone, Home, LaunchRefused
from amuxd.records import Process, RunState, Session
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import End, Liveness, Transition
from amuxd.store import Store
from amuxd.supervisor import Supervisor, now
from amuxd.watch import Watch
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.registry import Workspaces


class StandinHost:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.failing: dict[str, Exception] = {}
        self.clients = 0
        self.other_panes = 0
        # In seconds between two looks.
        self.processor_use = self.processor_time_used = 0.0
        self.typed: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def _maybe_fail(self, verb: str) -> None:
        if verb in self.failing:
            raise self.failing[verb]

    def unit(self, session_id: str) -> str:
        return ""

    async def check(self, session: Session) -> None:
        self._maybe_fail("check")

    async def launch(self, session: Session, run: int, keep_terminal: bool) -> Home:
        self._maybe_fail("launch")
        directory = self.store.prepare_run(session.id, run)
        with (directory / "output.log").open("ab") as log:
            try:
                process = _started(session.command, log)
            except OSError as error:
                raise LaunchRefused(str(error.strerror)) from error
        self.processes.append(process)
        return home_of(process)

    async def environment(self, session: Session) -> dict[str, str]:
        self._maybe_fail("environment")
        return session.environment

    def release(self, session_id: str) -> None: ...

    async def find(self, session: Session, state: RunState) -> Finding:
        return Gone()

    async def standing(self) -> dict[str, str]:
        return {}

    async def members(self, session_id: str) -> list[int]:
        return []

    async def find_in_terminal(self, session_id: str) -> Home | None:
        return None

    async def end_of(self, session: Session, run: int, home: Home) -> End:
        return processes.end_of(home.command_fd, home.command) or End()

    def end_in_shell(self, session: Session, run: int) -> End | None:
        return None

    def end_on_record(self, session: Session, run: int) -> End | None:
        return None

    def is_frozen(self, home: Home) -> bool:
        return False

    def has_terminal(self, session_id: str) -> bool:
        return False

    async def logger(self, session_id: str, run: int, server: Process) -> Process | None:
        return None

    async def drain(self, session_id: str, run: int, server: Process | None) -> None: ...

    async def drain_command(self, session_id: str, run: int, command: Process, server: Process) -> None: ...

    async def show_status(self, session_id: str, text: str) -> None: ...

    async def show_end(self, session_id: str, text: str) -> None: ...

    async def ask_to_end(self, session: Session, home: Home, number: int, with_children: bool) -> None:
        self._maybe_fail("ask_to_end")
        os.kill(home.command.pid, number)

    async def signal(self, home: Home, number: int, in_shell: bool) -> None:
        self._maybe_fail("signal")
        os.kill(home.command.pid, number)

    def memory_kills(self, server: Process) -> int:
        return 0

    def memory_events(self, server: Process) -> Path | None:
        return None

    async def tear_down(self, session_id: str, at_once: bool = False) -> None:
        self._maybe_fail("tear_down")
        if at_once:
            self.end()

    async def liveness(self, session_id: str) -> Liveness:
        return Liveness.ALIVE

    async def attached(self, session_id: str) -> int:
        self._maybe_fail("attached")
        return self.clients

    def may_be_attached(self, session_id: str) -> bool:
        return True

    async def processor_time(self, session_id: str, server: Process) -> float:
        self._maybe_fail("processor_time")
        self.processor_time_used += self.processor_use
        return self.processor_time_used

    async def panes(self, session_id: str) -> int:
        self._maybe_fail("panes")
        return 1 + self.other_panes

    async def takes_only_keys(self, session_id: str) -> bool:
        return False

    async def send(self, session_id: str, text: str, enter: bool, pause: float) -> None:
        self._maybe_fail("send")
        self.typed.append(text)

    async def capture(self, session_id: str, lines: int) -> str:
        return ""

    def attach_command(self, session_id: str) -> list[str]:
        return []

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def home_of(process: subprocess.Popen[bytes]) -> Home:
    command, server = processes.identify(process.pid), processes.identify(os.getpid())
    assert command
    assert server
    return Home(command, server, os.pidfd_open(process.pid), os.pidfd_open(os.getpid()))


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log)


class Changes:
    """A listener that wakes whoever waits for any change."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()

    def appeared(self, entry: Entry) -> None:
        self.happened.set()

    def disappeared(self, entry: Entry) -> None:
        self.happened.set()

    def moved(self, entry: Entry, transition: Transition) -> None:
        self.happened.set()

    def exited(self, entry: Entry) -> None:
        self.happened.set()

    def changed(self, entry: Entry, *properties: str) -> None:
        self.happened.set()

    def attention_changed(self, entry: Entry) -> None:
        self.happened.set()


class World:
    """A supervisor with real files, and sessions of the agents that the test makes up."""

    def __init__(self, root: Path, host: StandinHost | None = None) -> None:
        self.store = Store(root)
        self.host = host or StandinHost(self.store)
        self.supervisor = Supervisor(self.store, "boot")
        self.watch = Watch()
        self.workspaces = Workspaces(self.supervisor, Ledger(root, self.store, "boot"))
        self.runs = Runs(self.supervisor, self.host, self.watch, self.workspaces, Settings(stop_grace=5))
        self.changes = Changes()
        self.supervisor.listen(self.runs.parking)
        self.supervisor.listen(self.changes)

    async def create(self, agent: Agent | None, *command: str, **options: Any) -> Entry:
        session_id = self.supervisor.registry.new_id()
        name = agent.name if agent else ""
        session = Session(session_id, session_id, list(command), "/", now(), agent=name, **options)
        return await self.supervisor.create(session, agent)

    async def until(self, predicate: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not predicate():
                self.changes.happened.clear()
                # That something was printed, say, is announced to nobody.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changes.happened.wait(), 0.05)

    async def start(self, agent: Agent) -> Entry:
        entry = await self.create(agent)
        await self.runs.start(entry)
        return entry


async def in_world(root: Path, story: Any) -> None:
    world = World(root)
    try:
        told: Coroutine[Any, Any, None] = story(world)
        await told
    finally:
        world.supervisor.cancel_tasks()
        world.host.end()
        world.watch.close()


def caller(is_there: Callable[[], Awaitable[bool]]) -> Context:
    """That of who asks for something on the bus."""

    async def pid() -> int:
        return os.getpid()

    return callers.context_of(Caller(is_there, pid))
