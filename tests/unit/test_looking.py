"""A look at a run, or into its directory, that does not come to an end takes nothing from the others."""

import asyncio
import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import moments, processes, states
from amuxd.hosts import Alive, Ended, Finding, LaunchRefused, LoggerUnknown, launcher, local, loggers, outputs
from amuxd.hosts.bare import Bare
from amuxd.hosts.local import LocalHost
from amuxd.reconcile import reconcile
from amuxd.records import Process, RunState, Session
from amuxd.states import End, State
from amuxd.store import Store
from amuxd.supervisor import AMUXD

NOBODY = Process(2**22 + 1, 1)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(Bare(tmp_path), Store(tmp_path / "state"), tmp_path / "run", 1 << 22)


def session(directory: str = "/") -> Session:
    return Session("abc", "abc", ["true"], directory, 1)


def myself() -> Process:
    process = processes.identify(os.getpid())
    assert process is not None
    return process


def standing(server: Process) -> RunState:
    return RunState("abc", State.RUNNING, 1, 1, 1, "", "", command=myself(), server=server)


def held() -> int:
    # What other tests let go of is closed now, and not in between.
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("enclosure_answers", [True, False])
def test_a_look_holds_on_to_what_it_found_alone(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, enclosure_answers: bool
) -> None:
    async def look() -> None:
        before = held()
        if enclosure_answers:
            found = await host.find(session(), standing(myself()))
            assert isinstance(found, Alive)
            assert held() == before + 2
            found.home.close()
        else:
            with pytest.raises(RuntimeError, match="the bus"):
                await host.find(session(), standing(myself()))
        assert not isinstance(await host.find(session(), standing(NOBODY)), Alive)
        assert held() == before

    async def watch(_: str) -> None:
        if not enclosure_answers:
            raise RuntimeError("the bus does not answer")

    monkeypatch.setattr(host._enclosure, "watch", watch)
    asyncio.run(look())


def test_a_terminal_that_goes_away_as_it_opens_leaves_nothing_held() -> None:
    before = held()
    with pytest.raises(LaunchRefused, match="its terminal went away"):
        launcher._home(f"{os.getpid()} {NOBODY.pid}")
    assert held() == before


def test_directories_that_do_not_answer_keep_nothing_else_waiting(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(local, "check", lambda *_: answers.wait())

    async def story() -> None:
        monkeypatch.setattr(local, "CHECK_DEADLINE", 1000.0)
        starting = [asyncio.create_task(host.launch(session("/far"), 1, False)) for _ in range(100)]
        # Each of them has begun.
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await host.tear_down("other")
        assert not any(task.done() for task in starting)
        for task in starting:
            task.cancel()
        await asyncio.wait(starting)
        monkeypatch.setattr(local, "CHECK_DEADLINE", 1.0)
        late = "its directory /far, or its program, did not answer within 1 s"
        with pytest.raises(LaunchRefused, match=late):
            await host.launch(session("/far"), 1, False)

    try:
        asyncio.run(story())
    finally:
        answers.set()


class Silent:
    """The names of processes that do not answer, as where the memory of one hangs on its network."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.questions = 0

    def command_line(self, pid: int) -> list[str]:
        self.questions += 1
        self.asked.set()
        self.answers.wait(20)
        return ["/bin/sh", "logger.sh", str(self.log)]


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Silent:
    silent = Silent(Store(tmp_path / "state").log("abc", 1))
    monkeypatch.setattr(processes, "command_line", silent.command_line)
    return silent


@pytest.fixture
def child() -> Iterator[Process]:
    process = subprocess.Popen(["sleep", "infinity"])
    identity = processes.identify(process.pid)
    assert identity is not None
    yield identity
    process.kill()
    process.wait()


def test_nobody_waits_while_the_processes_of_a_terminal_do_not_tell_their_names(
    host: LocalHost, silent: Silent, child: Process
) -> None:
    async def look() -> None:
        looking = asyncio.create_task(host.logger("abc", 1, myself()))
        assert await asyncio.to_thread(silent.asked.wait, 20)
        assert not looking.done()
        silent.answers.set()
        assert await looking == child

    asyncio.run(look())


def test_nobody_waits_while_the_directory_of_a_run_does_not_tell_when_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    others_went_on = []

    def last_changed(path: Path) -> int:
        asked.set()
        others_went_on.append(answers.wait(20))
        return 0

    async def story(world: World) -> None:
        async def ended(session: Session, state: RunState) -> Finding:
            return Ended(End(code=3))

        entry = await world.create(None, "sleep", "infinity")
        await world.runs.start(entry)
        await world.supervisor.apply(entry, states.DaemonStopping(), AMUXD)
        world.runs.homes.leave(entry)
        monkeypatch.setattr(world.host, "find", ended)
        monkeypatch.setattr(moments, "last_changed", last_changed)
        looking = asyncio.create_task(reconcile(world.runs))
        assert await asyncio.to_thread(asked.wait, 20)
        assert not looking.done()
        answers.set()
        await looking
        assert entry.state.state is State.FAILED
        assert all(others_went_on)

    asyncio.run(in_world(tmp_path, story))


def test_what_does_not_answer_holds_up_one_thread(
    host: LocalHost, silent: Silent, child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look() -> None:
        with monkeypatch.context() as hurried:
            hurried.setattr(outputs, "LOOK_DEADLINE", 0.05)
            for _ in range(3):
                with pytest.raises(LoggerUnknown, match="did not answer"):
                    await host.logger("abc", 1, myself())
        assert silent.questions == 1
        silent.answers.set()
        assert await host.logger("abc", 1, myself()) == child

    asyncio.run(look())


@pytest.mark.parametrize(
    ("flags", "deleted", "has_lost"),
    [
        (os.O_WRONLY | os.O_APPEND, True, True),
        (os.O_WRONLY | os.O_APPEND, False, False),
        # What is read as it becomes the one that stands in, and what tells amuxd that this is ready.
        (os.O_RDONLY, True, False),
        (os.O_WRONLY, True, False),
    ],
)
def test_a_log_is_lost_where_what_is_appended_to_is_another(
    tmp_path: Path, flags: int, deleted: bool, has_lost: bool
) -> None:
    log = tmp_path / "output.log"
    log.touch()
    fd = os.open(log, flags)
    if deleted:
        log.unlink()
        log.touch()
    # Where it is open for the logger.
    words = ["sh", "-c", "exec 3<&0 </dev/null; echo; exec sleep infinity"]
    process = subprocess.Popen(words, stdin=fd, stdout=subprocess.PIPE)
    os.close(fd)
    assert process.stdout is not None
    process.stdout.readline()
    identity = processes.identify(process.pid)
    assert identity is not None
    assert loggers.has_lost_log(identity, log) == has_lost
    process.kill()
    process.communicate()
