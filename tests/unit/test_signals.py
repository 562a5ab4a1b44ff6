"""Signals to commands, and what is in their way."""

import asyncio
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import processes
from amuxd.errors import Internal, InvalidTransition
from amuxd.hosts import local
from amuxd.hosts.bare import Bare
from amuxd.hosts.launcher import hold
from amuxd.hosts.local import LocalHost
from amuxd.records import Process
from amuxd.store import Store
from amuxd.terminals import Terminals

# Of no group of processes.
NOBODY = 2**22 + 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "could not be signalled: Too many open files"),
        (PermissionError(errno.EPERM, "Operation not permitted"), "runs as another user"),
    ],
)
def test_one_that_could_not_be_sent(tmp_path: Path, error: Exception, told: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["signal"] = error
        with pytest.raises(Internal, match=told):
            await Terminals(world.runs).kill(entry, "SIGTERM")

    asyncio.run(in_world(tmp_path, story))


def test_one_to_what_has_just_ended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["signal"] = ProcessLookupError(errno.ESRCH, "No such process")
        with pytest.raises(InvalidTransition, match="kill is not possible"):
            await Terminals(world.runs).kill(entry, "SIGTERM")

    asyncio.run(in_world(tmp_path, story))


def test_between_two_commands_of_a_line_it_is_for_whoever_runs_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost(Bare(tmp_path / "tmux"), Store(tmp_path / "state"), tmp_path / "run", 1)
    line = ["sh", "-c", "sh -c 'echo ready; read word; exit 3'; echo $?"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        shell.stdout.readline()
        home = hold(processes.identify(shell.pid), processes.identify(os.getpid()))
        assert home
        monkeypatch.setattr(processes, "foreground_group", lambda _: NOBODY)
        asyncio.run(host.signal(home, signal.SIGTERM, in_shell=True))
        assert shell.stdout.readline() == b"143\n"
        home.close()


def test_who_has_gone_meanwhile_is_in_no_group() -> None:
    assert local._group_of(NOBODY) == 0
    assert not local._signal_front(NOBODY, signal.SIGTERM)


def test_without_a_terminal_there_is_no_foreground() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as alone:
        process = processes.identify(alone.pid)
        assert process
        assert processes.foreground_group(process) is None
        assert processes.foreground_group(Process(alone.pid, process.started + 1)) is None
        alone.kill()
    assert processes.foreground_group(process) is None
