"""A process whose first thread has left the others looks like one that has ended, and has not."""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.first_thread import LEFT_BY_ITS_FIRST
from harness.waiting import until

from amuxd import processes
from amuxd.hosts import Alive, Ended, Unknown, local
from amuxd.hosts.bare import Bare
from amuxd.hosts.local import LocalHost
from amuxd.records import Process, RunState, Session
from amuxd.states import End, State
from amuxd.store import Store

SESSION = Session("abc", "abc", LEFT_BY_ITS_FIRST, "/", 1)
_PTRACE_SEIZE = 0x4206
_WALL = 0x40000000


class Program:
    def __init__(self) -> None:
        self.child = subprocess.Popen(LEFT_BY_ITS_FIRST, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.child.stdout
        self.thread = int(self.child.stdout.readline().split()[1])
        process = processes.identify(self.child.pid)
        assert process is not None
        self.process = process

    def end(self, code: int) -> None:
        assert self.child.stdin
        self.child.stdin.write(b"%d\n" % code)
        self.child.stdin.flush()
        os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.child.kill()
    program.child.communicate()


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(Bare(tmp_path / "tmux"), Store(tmp_path / "state"), tmp_path / "run", 1)


def standing(command: Process) -> RunState:
    server = processes.identify(os.getpid())
    return RunState("abc", State.SUSPENDED, 1, 1, 1, "", "", command=command, server=server)


def test_it_lives_until_its_last_thread_has_ended(program: Program, host: LocalHost) -> None:
    pidfd = processes.open_process(program.process)
    assert pidfd is not None
    assert not processes.is_dying(program.process)
    assert processes.may_live(program.process)
    assert processes.end_of(pidfd, program.process) is None
    found = asyncio.run(host.find(SESSION, standing(program.process)))
    assert isinstance(found, Alive)
    found.home.close()
    program.end(3)
    assert processes.is_dying(program.process)
    assert processes.end_of(pidfd, program.process) == End(code=3)
    assert asyncio.run(host.find(SESSION, standing(program.process))) == Ended(End(code=3))
    os.close(pidfd)


def test_without_systemd_it_is_ended_with_its_session(host: LocalHost) -> None:
    """What the first thread left no more tells whose it is; its parent does."""
    parent = subprocess.Popen(
        ["sh", "-c", '"$@"; true', "sh", *LEFT_BY_ITS_FIRST],
        env={**os.environ, "AMUX_SESSION_ID": SESSION.id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    [child] = processes.children(parent.pid)
    assert sorted(asyncio.run(host.members(SESSION.id))) == sorted([parent.pid, child])
    asyncio.run(host.tear_down(SESSION.id, at_once=True))
    parent.communicate()
    assert asyncio.run(host.members(SESSION.id)) == []


def test_what_is_killed_and_has_not_ended_yet_is_not_told_how(
    program: Program, host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "STATUS_DEADLINE", 0.05)
    # What is traced stays until whoever traces it has heard of its end.
    assert ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_SEIZE, program.thread, 0, 0) == 0
    pidfd = processes.open_process(program.process)
    assert pidfd is not None
    try:
        program.child.send_signal(signal.SIGKILL)
        until(lambda: processes.is_dying(program.process))
        assert processes.end_of(pidfd, program.process) is None
        found = asyncio.run(host.find(SESSION, standing(program.process)))
        assert found == Unknown("its command is being killed, and has not ended yet")
    finally:
        os.waitpid(program.thread, _WALL)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    assert processes.end_of(pidfd, program.process) == End(signal="SIGKILL", core_dumped=False)
    os.close(pidfd)


def test_of_what_is_not_held_any_more_no_end_is_read() -> None:
    assert processes.end_of(-1, Process(os.getpid(), 1)) is None
