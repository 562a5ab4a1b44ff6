"""Who takes down a session's output is killed, or has no log or no process: what is lost is told."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness.client import Client, Session
from harness.daemon import Amux
from harness.waiting import until

from amuxd.hosts.outputs import SILENCE

ENDED = "[amux: what took down the output had ended, some of it may be missing here]"
ECHO = ["sh", "-c", "stty -echo; echo ready; while read -r word; do echo $word; done"]


def echoing(amux: Client) -> Session:
    session = amux.create(ECHO)
    until(lambda: "ready" in session.log())
    return session


def takers(session: Session) -> list[psutil.Process]:
    """The shell that takes down the output, and what copies for it."""
    log = session.get("LogPath")
    found: list[psutil.Process] = []
    for process in session.amux.machine.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if log in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found += [process, *process.children()]
    return found


def kill(*processes: psutil.Process) -> None:
    for process in processes:
        # What copies for a shell may end with it.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=60)


def lines(session: Session) -> list[str]:
    return [line for line in session.log().replace("\r", "").split("\n") if line]


def is_begun_again(session: Session, killed: list[psutil.Process]) -> bool:
    return bool(takers(session)) and not {p.pid for p in killed} & {p.pid for p in takers(session)}


@pytest.mark.parametrize("all_of_it", [True, False], ids=["all", "the shell alone"])
def test_one_that_is_killed_is_begun_again_and_the_log_says_so(anywhere: Client, all_of_it: bool) -> None:
    session = echoing(anywhere)
    session.send("one")
    until(lambda: "one" in session.log())
    before = takers(session)
    kill(*(before if all_of_it else before[:1]))
    until(lambda: ENDED in session.log())
    session.send("two")
    until(lambda: "two" in session.log())
    assert lines(session) == ["ready", "one", ENDED, "two"]
    session.stop()
    assert session.get("State") == "stopped"
    assert session.certificate()["last_lines"] == ["ready", "one", "", ENDED, "two"]


def test_each_that_is_killed_is_begun_again(amux: Amux) -> None:
    session = echoing(amux)
    for number in range(1, 4):
        before = takers(session)
        kill(*before)
        until(lambda number=number: session.log().count(ENDED) == number)
    session.send("on")
    until(lambda: "on" in lines(session))


def test_one_that_was_killed_while_amuxd_was_away_is_begun_again(amux_everywhere: Amux) -> None:
    session = echoing(amux_everywhere)
    present = takers(session)
    amux_everywhere.stop()
    kill(*present)
    amux_everywhere.start()
    until(lambda: ENDED in session.log())
    session.send("two")
    until(lambda: "two" in session.log())
    assert lines(session) == ["ready", ENDED, "two"]


def test_nobody_waits_for_the_output_of_one_that_was_killed(amux: Amux) -> None:
    """The session ends before amuxd could do anything about it."""
    session = amux.create(["sh", "-c", "stty -echo; echo ready; read -r word; exit 3"])
    until(lambda: "ready" in session.log())
    log = Path(session.get("LogPath"))
    present = takers(session)
    amux.stop()
    kill(*present)
    session_log = log.read_text()
    socket = amux.runtime / f"tmux/{session.id}.sock"
    amux.machine.run(["tmux", "-S", socket, "send-keys", "x", "Enter"])
    until(session.command_has_ended)
    began = time.monotonic()
    amux.start()
    session.wait_state("failed")
    ended = session.certificate()
    assert time.monotonic() - began < SILENCE
    assert session.get("ExitCode") == 3
    assert ended["last_lines"] == ["ready", "", ENDED]
    assert log.read_text().startswith(session_log)


def test_nobody_waits_for_where_a_shell_opened_if_that_was_not_taken_down(amux: Amux) -> None:
    session = amux.create(
        ["stty -echo; echo ready; read -r word; exit 3"], shell=True, env={"SHELL": "/bin/sh"}
    )
    until(lambda: "ready" in session.log())
    present = takers(session)
    amux.stop()
    kill(*present)
    socket = amux.runtime / f"tmux/{session.id}.sock"
    amux.machine.run(["tmux", "-S", socket, "send-keys", "x", "Enter"])
    until((amux.state / f"sessions/{session.id}/runs/1/exit_status").exists)
    began = time.monotonic()
    amux.start()
    session.wait_state("failed")
    ended = session.certificate()
    assert time.monotonic() - began < SILENCE
    assert session.get("ShellOpen")
    assert ended["last_lines"][-1] == ENDED


def test_what_ends_in_order_is_not_said_to_be_missing(anywhere: Client) -> None:
    for _ in range(5):
        ends, stopped, killed = (anywhere.create(command) for command in (["seq", "1000"], ECHO, ECHO))
        ends.wait_state("completed")
        stopped.stop()
        killed.call("Stop", "a{sv}", {"grace": ("d", 0.0)})
        for session in (ends, stopped, killed):
            session.certificate()
            assert "[amux" not in session.log()


def test_a_log_that_was_deleted_goes_on_with_its_bells_and_activity(amux: Amux) -> None:
    script = r'stty -echo; echo ready; while read -r word; do printf "$word\n"; done'
    session = amux.create(["sh", "-c", script])
    log = Path(session.get("LogPath"))
    until(lambda: "ready" in log.read_text())
    for number in range(3):
        before = session.get("LastActivityUSec")
        log.unlink()
        session.send(rf"bell {number}\a")
        until(lambda: session.get("Attention") == "bell")
        until(lambda before=before: session.get("LastActivityUSec") > before)
        until(lambda number=number: log.exists() and f"bell {number}" in log.read_text())
        assert lines(session)[0] == "[amux: the log was deleted or moved away, and is begun anew here]"
        session.send("gone on")
        until(lambda: session.get("Attention") == "")


# Prints and takes each process that it can have, so that nobody else gets one that ends.
GREEDY = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
for number in range(20_000):
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        pass
    print(number, flush=True)
while word := sys.stdin.readline():
    print(word, flush=True)
"""


class Group:
    """Holds a session to a number of processes: in its own unit, as tasks_max does, or in a group beside it,
    where systemd was not given the controller.
    """

    def __init__(self, amux: Amux) -> None:
        self.run = amux.machine.run
        self._mount = amux.machine.temporary / "pids"
        self._path: Path
        self._is_mounted = False

    def take(self, session: Session, more: int) -> None:
        name = ["show", "--property=ControlGroup", "--value", session.get("Unit")]
        unit = Path("/sys/fs/cgroup" + session.amux.machine.systemctl(*name).strip())
        if self.run(["test", "-e", unit / "pids.max"], check=False).returncode == 0:
            self._path = unit
        else:
            self._path = self._mounted()
            script = 'for pid in $(cat "$1"); do echo "$pid" >"$0/cgroup.procs"; done'
            self.run(["sh", "-c", script, self._path, unit / "cgroup.procs"])
        present = self.run(["cat", self._path / "pids.current"]).stdout
        self.allow(str(int(present) + more))

    def _mounted(self) -> Path:
        self.run(["mkdir", "-p", self._mount])
        mounted = self.run(["mount", "-t", "cgroup", "-o", "pids", "pids", self._mount], check=False)
        if mounted.returncode:
            pytest.skip("the controller of processes is not to be had here")
        self._is_mounted = True
        group = self._mount / f"amux-tests-{os.getpid()}"
        self.run(["mkdir", group])
        return group

    def allow(self, processes: str) -> None:
        self.run(["sh", "-c", 'echo "$1" >"$0/pids.max"', self._path, processes])

    def close(self) -> None:
        """A group beside it is known to all of the machine that tests, and must not outlive the test."""
        if self._is_mounted:
            self.allow("max")
            script = 'until rmdir "$0" 2>/dev/null; do kill -KILL $(cat "$0/cgroup.procs"); sleep 0.1; done'
            self.run(["sh", "-c", script, self._path])
            self.run(["umount", self._mount])


def scripts(session: Session) -> set[str]:
    """What takes down the output."""
    log = session.get("LogPath")
    running = (words for words in session.amux.machine.command_lines().values() if log in words)
    return {
        Path(word).name for words in running for word in words if word.endswith(("logger.sh", "logger.py"))
    }


@pytest.fixture
def group(amux: Amux) -> Iterator[Group]:
    group = Group(amux)
    try:
        yield group
    finally:
        group.close()


def test_a_session_at_its_own_limit_loses_no_output(amux: Amux, group: Group) -> None:
    program = [str(amux.machine.bindir / "python3"), "-c", GREEDY]
    session = amux.create(["sh", "-c", 'stty -echo -onlcr; exec "$@"', "sh", *program])
    until(lambda: "ready" in session.log())
    group.take(session, 5)
    session.send("go")
    until(lambda: session.log().endswith("19999\n"), timeout=60)
    whole = ["ready", *map(str, range(20_000))]
    assert session.log().splitlines() == whole
    assert scripts(session) == {"spare_logger.py"}
    group.allow("max")
    session.send("more")
    until(lambda: scripts(session) == {"logger.sh"})
    session.send("and more")
    until(lambda: session.log().endswith("and more\n\n"))
    assert [line for line in session.log().splitlines() if line] == [*whole, "more", "and more"]
    session.stop()
    assert session.certificate()["last_lines"][-1] == "and more"


def test_where_none_can_be_begun_it_is_tried_again_and_nobody_waits(amux: Amux, group: Group) -> None:
    session = echoing(amux)
    present = takers(session)
    group.take(session, -len(present))
    kill(*present)
    until(lambda: "nobody takes down its output" in json.dumps(amux.journal(AMUX_SESSION=session.id)))
    assert ENDED not in session.log()
    group.allow("max")
    until(lambda: ENDED in session.log())
    session.send("two")
    until(lambda: "two" in session.log())
    group.allow("1")
    kill(*takers(session))
    began = time.monotonic()
    session.stop()
    certificate = session.certificate()
    assert time.monotonic() - began < SILENCE
    assert lines(session) == ["ready", ENDED, "two", ENDED]
    assert certificate["last_lines"][-1] == ENDED


def test_one_that_begins_without_a_process_for_its_programs_says_what_it_has_to(
    amux: Amux, group: Group
) -> None:
    session = echoing(amux)
    present = takers(session)
    group.take(session, 1 - len(present))
    kill(*present)
    until(lambda: ENDED in session.log())
    session.send("two")
    until(lambda: "two" in session.log())
    assert scripts(session) == {"spare_logger.py"}
    assert lines(session) == ["ready", ENDED, "two"]
    session.stop()
