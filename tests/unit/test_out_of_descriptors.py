"""An amuxd that may open no more files knows less, and calls nothing dead that lives."""

import asyncio
import errno
import gc
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from amuxd import conversations, processes
from amuxd.agents import Kept
from amuxd.hosts import EXIT_STATUS, Alive, Enclosure, Ended, LoggerUnknown
from amuxd.hosts.bare import Bare
from amuxd.hosts.launcher import hold
from amuxd.hosts.layout import Layout
from amuxd.hosts.local import LocalHost
from amuxd.hosts.outputs import Outputs
from amuxd.hosts.pipes import readable_within
from amuxd.records import Process, RunState, Session
from amuxd.states import End, State
from amuxd.store import Store

SESSION = Session("abc", "abc", ["sleep", "1000"], "/", 1)
KEPT = Kept("CODEX_HOME", ".codex", "sessions/{conversation}.jsonl")
# As many as it takes to look at a session, and then some.
ENOUGH = 8


def held() -> set[Path]:
    # With what it is asked through itself, which bears the same number each time.
    return set(Path("/proc/self/fd").iterdir())


@contextmanager
def files_left(count: int) -> Iterator[None]:
    # What other tests let go of is closed now, and not in between.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = held()
    free = (number for number in range(soft) if not Path(f"/proc/self/fd/{number}").is_symlink())
    limit = next(islice(free, count, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert held() == before, "something was left open"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    running = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    yield running
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def known(children: list[subprocess.Popen[bytes]]) -> tuple[Process, Process]:
    command, server = (processes.identify(process.pid) for process in children)
    assert command
    assert server
    return command, server


@pytest.fixture
def enclosure(tmp_path: Path) -> Bare:
    return Bare(tmp_path / "tmux")


@pytest.fixture
def host(tmp_path: Path, enclosure: Enclosure) -> LocalHost:
    return LocalHost(enclosure, Store(tmp_path / "state"), tmp_path / "run", 1)


def answers(question: Callable[[], Any]) -> list[Any]:
    """With no file left, one, two…; None where it could not be asked."""

    def ask(left: int) -> Any:
        with files_left(left):
            try:
                return question()
            except OSError as error:
                if error.errno == errno.EMFILE:
                    return None
                raise

    given = [ask(left) for left in range(ENOUGH)]
    assert given[0] is None
    assert given[-1] is not None
    return [answer for answer in given if answer is not None]


def standing(state: State, command: Process, server: Process) -> RunState:
    return RunState("abc", state, 1, 1, 1, "", "", command=command, server=server)


@pytest.mark.parametrize("state", [State.RUNNING, State.SUSPENDED])
def test_one_that_lives_is_found_or_not_seen(
    host: LocalHost, known: tuple[Process, Process], state: State
) -> None:
    with asyncio.Runner() as runner:

        def look() -> type:
            found = runner.run(host.find(SESSION, standing(state, *known)))
            if isinstance(found, Alive):
                found.home.close()
            return type(found)

        assert set(answers(look)) == {Alive}


def test_the_end_of_one_is_told_or_not_known(
    host: LocalHost, known: tuple[Process, Process], children: list[subprocess.Popen[bytes]]
) -> None:
    home = hold(*known)
    assert home
    children[0].send_signal(signal.SIGTERM)
    os.waitid(os.P_PIDFD, home.command_fd, os.WEXITED | os.WNOWAIT)
    with asyncio.Runner() as runner:
        told = answers(lambda: runner.run(host.end_of(SESSION, 1, home)))
        assert set(told) == {End(signal="SIGTERM", core_dumped=False)}
    home.close()


def test_what_a_shell_has_written_down_is_read_or_not_known(
    tmp_path: Path, host: LocalHost, known: tuple[Process, Process], children: list[subprocess.Popen[bytes]]
) -> None:
    """Its shell is gone, and nothing else tells."""
    run = Store(tmp_path / "state").run_directory("abc", 1)
    run.mkdir(parents=True)
    (run / EXIT_STATUS).write_text("  3\n")
    children[0].kill()
    children[0].wait()
    session = Session("abc", "abc", ["exit 3"], "/", 1, shell=True)
    with asyncio.Runner() as runner:
        found = answers(lambda: runner.run(host.find(session, standing(State.RUNNING, *known))))
        assert found
        assert all(finding == Ended(End(code=3)) for finding in found)


def test_both_processes_are_held_or_none(known: tuple[Process, Process]) -> None:
    def take() -> bool:
        home = hold(*known)
        assert home
        home.close()
        return True

    assert answers(take)


def test_what_is_asked_of_processes_is_answered_truly_or_not_at_all(known: tuple[Process, Process]) -> None:
    me = processes.identify(os.getpid())
    assert me
    questions: list[tuple[Callable[[], Any], Callable[[Any], bool]]] = [
        (lambda: processes.identify(me.pid), lambda answer: answer == me),
        (lambda: processes.children(me.pid), lambda answer: {known[0].pid, known[1].pid} <= set(answer)),
        (lambda: processes.command_line(known[0].pid), lambda answer: answer == ["sleep", "1000"]),
        (lambda: processes.environment(me), lambda answer: bool(answer)),
        (lambda: processes.is_dying(me), lambda answer: answer is False),
        (processes.boot_id, lambda answer: answer == whole),
    ]
    whole = processes.boot_id()
    for question, is_true in questions:
        assert all(map(is_true, answers(question)))


def test_what_cannot_be_asked_may_live(known: tuple[Process, Process]) -> None:
    me = processes.identify(os.getpid())
    assert me
    for left in range(ENOUGH):
        with files_left(left):
            assert processes.may_live(me)
            assert processes.may_have_children(me)
            assert conversations.find(me.pid, KEPT) == ""
            # It was not stopped, and whether it was is nothing to fail for.
            processes.go_on(me)
            assert not processes.ignores(me.pid, signal.SIGUSR1)


def test_who_takes_down_the_output_is_not_known(tmp_path: Path, known: tuple[Process, Process]) -> None:
    outputs = Outputs(Store(tmp_path / "state"), Layout(tmp_path / "run"), 1)
    log = tmp_path / "output.log"
    with asyncio.Runner() as runner:
        runner.run(outputs._look_for_logger(known[1], log))
        with files_left(0), pytest.raises(LoggerUnknown, match="cannot be seen: Too many open files"):
            runner.run(outputs._look_for_logger(known[1], log))


def test_whether_a_process_ends_in_time_is_not_known(known: tuple[Process, Process]) -> None:
    fd = processes.open_process(known[0])
    assert fd is not None
    with asyncio.Runner() as runner, files_left(0), pytest.raises(OSError, match="Too many open files"):
        runner.run(readable_within(fd, 20))
    os.close(fd)


def test_without_systemd_what_belongs_to_a_session_is_not_known(
    enclosure: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: psutil.Process) -> dict[str, str]:
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr(psutil.Process, "environ", refuse)
    with pytest.raises(OSError, match="in system"):
        asyncio.run(enclosure.members("abc"))
    with pytest.raises(OSError, match="in system"):
        asyncio.run(enclosure.stop("abc"))
