"""Whatever happens to amuxd, what runs goes on, and is told of truly afterwards."""

import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psutil
import pytest
from away_fixtures import settings, stays_down
from harness.bus import Bus, CallFailed
from harness.client import BUS_NAME, Client, Session
from harness.daemon import Amux, Embedded
from harness.machine import Machine
from harness.waiting import until

from amuxd.daemon import OTHER_DAEMON_DEADLINE

ENDLESS = ["sh", "-c", "echo ready; exec sleep 1000"]

# Waits for a word, and ends as it says.
OBEDIENT = ["sh", "-c", "ulimit -c 0; echo ready; read word; eval $word"]

COUNTING = """
import sys
print("begun", flush=True)
for line in sys.stdin:
    for number in range(int(line)):
        print(f"line {number}")
    print("done", flush=True)
"""


def ready(session: Session) -> None:
    until(lambda: "ready" in session.log())


def state_of(amux: Client, session: Session) -> dict[str, Any]:
    data = json.loads((amux.state / "sessions" / session.id / "state.json").read_text())
    assert isinstance(data, dict)
    return data


def rewrite_state(amux: Client, session: Session, **changes: Any) -> None:
    path = amux.state / "sessions" / session.id / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def history(session: Session) -> list[tuple[str, str]]:
    return [(entry[3], entry[4]) for entry in session.call("History")]


def type_into(amux: Client, session: Session, *keys: str) -> None:
    """As a person at the terminal, while amuxd is down."""
    socket = amux.runtime / "tmux" / f"{session.id}.sock"
    amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", *keys])


def back_after_kill(amux: Amux) -> None:
    """systemd starts it again by itself."""
    before = amux.pid
    amux.kill(signal.SIGKILL)
    until(lambda: amux.pid not in (0, before))
    until(lambda: amux.machine.systemctl("is-active", "amuxd", check=False) == "active")


def restarted(amux: Amux) -> None:
    amux.restart()


RESTARTS = [pytest.param(restarted, id="restart"), pytest.param(back_after_kill, id="kill-9")]


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_restart_changes_nothing_for_what_runs(
    amux_everywhere: Amux, restart: Callable[[Amux], None]
) -> None:
    amux = amux_everywhere
    sessions = [amux.create(ENDLESS, name=f"one {number}") for number in range(5)]
    for session in sessions:
        ready(session)
    before = [state_of(amux, session) for session in sessions]
    with amux.events() as events:
        for _ in range(3):
            restart(amux)
            for session, was in zip(sessions, before, strict=True):
                session.wait_state("running")
                assert session.get("Pid") == was["command"]["pid"]
                state = state_of(amux, session)
                assert (state["command"], state["server"], state["run"]) == (was["command"], was["server"], 1)
        assert events.named("SessionExited") == []
    for session in sessions:
        assert amux.machine.systemctl("is-active", session.get("Unit")) == "active"
        states = [state for state, _ in history(session)]
        assert states[:3] == ["created", "starting", "running"]
        # Told to stop it marked them suspended; killed outright it could not.
        assert states[3:] == (["suspended", "running"] * 3 if restart is restarted else [])
        session.call("Kill", "s", "SIGTERM")
        session.wait_state("failed")
        assert session.get("Reason") == "killed by SIGTERM"


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_log_goes_on_without_gap_or_repetition(amux: Amux, restart: Callable[[Amux], None]) -> None:
    command = [
        "sh",
        "-c",
        'stty raw -echo; exec "$0" -c "$1"',
        str(amux.machine.bindir / "python3"),
        COUNTING,
    ]
    session = amux.create(command)
    until(lambda: "begun" in session.log())
    session.send("300000", enter=False)
    type_into(amux, session, "C-j")
    until(lambda: "line 1000\n" in session.log())
    for _ in range(2):
        restart(amux)
    session.wait_state("running")
    until(lambda: session.log().endswith("done\n"), timeout=60)
    assert session.log() == "".join(["begun\n", *(f"line {n}\n" for n in range(300_000)), "done\n"])
    assert session.get("LastActivityUSec") > 0


ENDS = {
    "exit 0": ("completed", "exited with code 0", 0, ""),
    "exit 7": ("failed", "exited with code 7", 7, ""),
    "kill -SEGV $$": ("failed", "killed by SIGSEGV", -1, "SIGSEGV"),
    "kill -KILL $$": ("failed", "killed by SIGKILL", -1, "SIGKILL"),
}


SUSPENDING = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*SUSPENDING, signal.SIGKILL)


@pytest.mark.parametrize("number", SIGNALS)
def test_ends_while_amuxd_is_down_are_told_truly(amux_everywhere: Amux, number: int) -> None:
    amux = amux_everywhere
    sessions = {word: amux.create(OBEDIENT) for word in ENDS}
    for session in sessions.values():
        ready(session)
    with stays_down(amux, number), amux.events() as events:
        for word, session in sessions.items():
            assert state_of(amux, session)["state"] == ("suspended" if number in SUSPENDING else "running")
            pid = state_of(amux, session)["command"]["pid"]
            outside = psutil.Process(amux.machine.outside_pid(pid))
            type_into(amux, session, word, "Enter")
            until(lambda outside=outside: gone(outside))
        amux.start()
        for word, session in sessions.items():
            session.wait_state("completed", "failed")
            told = (session.state, session.get("Reason"), session.get("ExitCode"), session.get("ExitSignal"))
            assert told == ENDS[word]
            assert session.certificate()["last_lines"] == ["ready", word]
            assert history(session)[-1] == ENDS[word][:2]
        exited = [event.body[1] for event in events.named("SessionExited")]
        # Those that were told of before the name was taken are in the states alone.
        assert len(exited) == len(set(exited))


def gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_sessions_that_just_start_when_amuxd_is_killed(amux: Amux) -> None:
    created = [amux.create(ENDLESS, start=False) for _ in range(6)]
    failures: list[str] = []

    def start(session: Session) -> None:
        # The call may die with amuxd; the session must not. A connection each: calls on one take turns.
        bus = Bus(amux.bus_address)
        try:
            bus.call(BUS_NAME, session.path, session.interface, "Start")
        except CallFailed as error:
            failures.append(error.name)
        finally:
            bus.close()

    threads = [threading.Thread(target=start, args=(session,)) for session in created]
    for thread in threads:
        thread.start()
    until(lambda: any(state_of(amux, session)["state"] != "created" for session in created), interval=0.0005)
    back_after_kill(amux)
    for thread in threads:
        thread.join(30)
    for session in created:
        if session.state == "created":
            # The kill came before its start was asked for.
            session.call("Start")
        session.wait_state("running", timeout=60)
        ready(session)
        assert session.log() == "ready\n"
        assert session.get("Run") == 1
        units = amux.machine.systemctl("list-units", "--no-legend", session.get("Unit"))
        assert len(units.splitlines()) == 1
    assert set(failures) <= {"org.freedesktop.DBus.Error.NoReply"}


def test_a_start_that_was_half_way_comes_to_its_end(amux: Amux) -> None:
    session = amux.create(ENDLESS)
    ready(session)
    with stays_down(amux, signal.SIGKILL):
        rewrite_state(amux, session, state="starting", command=None, server=None)
        amux.start()
        session.wait_state("running")
        # The log is that of the first attempt as well, and its process is told of a moment after the state.
        until(lambda: session.get("Pid") == state_of(amux, session)["command"]["pid"])
        until(lambda: len(commands(amux, "sleep 1000")) == 1)


def test_a_stop_that_was_half_way_comes_to_its_end(amux: Amux) -> None:
    session = amux.create(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"])
    other = amux.create(ENDLESS)
    for one in (session, other):
        ready(one)
    with stays_down(amux, signal.SIGKILL):
        rewrite_state(amux, session, state="stopping")
        rewrite_state(amux, other, state="stopping")
        amux.machine.kill(state_of(amux, other)["command"]["pid"], signal.SIGTERM)
        amux.config.parent.mkdir(parents=True, exist_ok=True)
        amux.config.write_text("[sessions]\nstop_grace = 0.2\n")
        amux.start()
        assert session.wait_state("stopped", timeout=60) == "stopped"
        assert other.wait_state("stopped", timeout=60) == "stopped"
        until(lambda: commands(amux, "sleep 1000") == [])
        assert history(other)[-1][0] == "stopped"


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("usual", ["0.1s", "10m"])
def test_a_stop_keeps_its_deadline_over_a_restart(
    amux: Amux, usual: str, restart: Callable[[Amux], None]
) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[sessions]\nstop_grace = "{usual}"\n')
    session = amux.create(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"])
    ready(session)
    grace = 12
    stop = [session.path, session.interface, "Stop", "a{sv}", "1", "grace", "d", str(grace)]
    amux.machine.popen(["busctl", "--user", "call", BUS_NAME, *stop])
    until(lambda: state_of(amux, session)["state"] == "stopping")
    restart(amux)
    assert session.wait_state("stopped", timeout=60) == "stopped"
    assert session.get("Reason") == "stopped; killed by SIGKILL"
    (begun, *_), (over, *_) = session.call("History")[-2:]
    assert grace <= (over - begun) / 1e6 < 4 * grace
    assert commands(amux, "sleep 1000") == []


def commands(amux: Client, line: str) -> list[int]:
    return [pid for pid, words in amux.machine.command_lines().items() if " ".join(words) == line]


def test_one_that_nobody_suspended_and_whose_end_nobody_saw_has_failed(amux: Amux) -> None:
    session = amux.create(ENDLESS)
    ready(session)
    with stays_down(amux, signal.SIGKILL):
        assert state_of(amux, session)["state"] == "running"
        amux.machine.systemctl("kill", "--signal=KILL", f"amux-{session.id}.service")
        until(lambda: not commands(amux, "sleep 1000"))
        until(lambda: not amux.machine.systemctl("list-units", "--no-legend", "amux-*.service"))
        amux.start()
        assert (session.state, session.get("ExitCode"), session.get("ExitSignal")) == ("failed", -1, "")
        assert session.get("Reason") == "gone without a trace, its end is not known"


def test_a_session_that_is_gone_without_a_trace_stays_suspended(amux: Amux) -> None:
    session = amux.create(ENDLESS)
    ready(session)
    amux.stop()
    assert state_of(amux, session)["state"] == "suspended"
    amux.machine.systemctl("kill", "--signal=KILL", f"amux-{session.id}.service")
    until(lambda: not commands(amux, "sleep 1000"))
    until(lambda: not amux.machine.systemctl("list-units", "--no-legend", "amux-*.service"))
    amux.start()
    assert session.state == "suspended"
    assert session.get("SessionAlive") == "dead"
    session.call("Restart")
    assert (session.wait_state("running"), session.get("Run")) == ("running", 2)


def test_the_bus_of_the_daemon_vanishes(machine: Machine) -> None:
    amux = Amux(machine)
    amux.start()
    session = amux.create(ENDLESS)
    ready(session)
    daemon, command = amux.pid, session.get("Pid")
    amux.bus.close()
    amux._bus = None
    machine.systemctl("restart", "dbus.service")
    until(lambda: is_another(machine, daemon), timeout=60)
    exits = [entry for entry in amux.journal() if "the bus went away" in entry["MESSAGE"]]
    assert exits
    assert session.id in amux.sessions()
    session = amux.session(session.id)
    assert session.wait_state("running") == "running"
    assert session.get("Pid") == command
    told = history(session)
    assert [state for state, _ in told[-2:]] == ["suspended", "running"]
    # Nobody stopped it.
    assert told[-2][1] == "amuxd lost its bus"
    # The other bus is no session's.
    amux._before |= machine.pids_of("dbus-daemon")
    amux.close()


def is_another(machine: Machine, before: int) -> bool:
    show = machine.systemctl("show", "--property=MainPID,ActiveState", "amuxd.service", check=False)
    fields = dict(line.split("=", 1) for line in show.splitlines() if "=" in line)
    return fields.get("ActiveState") == "active" and int(fields["MainPID"]) not in (0, before)


# Its loop does nothing any more, while other threads of its own may go on.
LOOP_HANGS_BY_SIGNAL = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(1000))
"""


def watched(amux: Amux) -> AbstractContextManager[None]:
    """An amuxd that is soon replaced where it hangs, and that can be made to."""
    python, _, program = (amux.bindir / "amuxd").read_text().partition("\n")
    may_hang = amux.machine.temporary / "amuxd-that-may-hang"
    may_hang.write_text(python + LOOP_HANGS_BY_SIGNAL + program)
    may_hang.chmod(0o755)
    watchdog = "WatchdogSec=10\nWatchdogSignal=SIGKILL"
    return settings(amux, f"[Service]\n{watchdog}\nExecStart=\nExecStart={may_hang}\n")


@contextmanager
def stopped(amux: Amux, daemon: int) -> Iterator[None]:
    os.kill(amux.machine.outside_pid(daemon), signal.SIGSTOP)
    yield


@contextmanager
def loop_hangs(amux: Amux, daemon: int) -> Iterator[None]:
    os.kill(amux.machine.outside_pid(daemon), signal.SIGUSR1)
    yield


@contextmanager
def bus_hangs(amux: Amux, daemon: int) -> Iterator[None]:
    """Until amuxd was ended for it: another one needs the bus as well."""
    [bus] = amux.machine.pids_of("dbus-daemon")
    os.kill(bus, signal.SIGSTOP)
    try:
        until(lambda: amux.pid != daemon, timeout=120)
        yield
    finally:
        os.kill(bus, signal.SIGCONT)


@pytest.mark.parametrize("hang", [stopped, loop_hangs, bus_hangs])
def test_an_amuxd_that_hangs_is_replaced(
    amux: Amux, hang: Callable[[Amux, int], AbstractContextManager[None]]
) -> None:
    with watched(amux):
        amux.restart()
        session = amux.create(ENDLESS)
        ready(session)
        daemon, command = amux.pid, session.get("Pid")
        with hang(amux, daemon):
            pass
        until(lambda: is_another(amux.machine, daemon), timeout=120)
        assert session.wait_state("running") == "running"
        assert session.get("Pid") == command
        assert any("atchdog" in entry["MESSAGE"] for entry in unit_messages(amux))


def unit_messages(amux: Amux) -> list[dict[str, Any]]:
    return amux.machine.journal(f"--since=@{amux._since}", USER_UNIT="amuxd.service")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_restart_without_systemd(embedded: Embedded, number: int) -> None:
    embedded.cli("ls")
    session = embedded.create(ENDLESS)
    ending = embedded.create(OBEDIENT)
    for one in (session, ending):
        ready(one)
    command = session.get("Pid")
    daemon = int((embedded.state / "amuxd.lock").read_text())
    embedded.machine.kill(daemon, number)
    assert state_of(embedded, session)["state"] == ("suspended" if number in SUSPENDING else "running")
    pid = state_of(embedded, ending)["command"]["pid"]
    outside = psutil.Process(embedded.machine.outside_pid(pid))
    type_into(embedded, ending, "exit 7", "Enter")
    until(lambda: gone(outside))
    embedded.cli("ls")
    assert int((embedded.state / "amuxd.lock").read_text()) != daemon
    assert session.wait_state("running") == "running"
    assert session.get("Pid") == command
    assert ending.wait_state("failed") == "failed"
    assert ending.get("ExitCode") == 7
    session.stop()
    assert commands(embedded, "sleep 1000") == []


def test_what_is_on_disk_is_private(amux: Amux) -> None:
    session = amux.create(ENDLESS)
    ready(session)
    open_to_others = [
        str(path)
        for path in [amux.state, *amux.state.rglob("*")]
        if path.stat().st_mode & 0o077 and path.is_dir()
    ]
    assert open_to_others == []


def test_a_second_one_says_at_once_that_one_runs(amux: Amux) -> None:
    session = amux.create(["sleep", "1000"])
    serving = amux.pid
    before = time.monotonic()
    second = amux.machine.run([amux.bindir / "amuxd"], check=False, env=amux.environment)
    # The start of Python is a part of it; for one that may be about to end it waits all of this.
    assert time.monotonic() - before < 0.8 * OTHER_DAEMON_DEADLINE
    assert second.returncode == 78
    assert second.stderr.rstrip().endswith(f"amuxd runs already (pid {serving}): amux ls")
    assert len(second.stderr.splitlines()) == 1
    assert (amux.pid, session.state) == (serving, "running")


def test_one_that_runs_by_hand_keeps_the_unit_out_and_systemd_does_not_insist(amux: Amux) -> None:
    amux.stop()
    by_hand = amux.machine.popen([amux.bindir / "amuxd"], env=amux.environment, stderr=subprocess.DEVNULL)
    try:
        bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
        until(lambda: amux.bus.call(*bus, "NameHasOwner", "s", BUS_NAME), timeout=60)
        amux.machine.systemctl("start", "amuxd.service", check=False)
        assert amux.machine.systemctl("show", "--property=NRestarts", "--value", "amuxd.service") == "0"
        assert by_hand.poll() is None
    finally:
        by_hand.terminate()
        by_hand.wait(20)
    assert amux.cli("ls").returncode == 0
    assert amux.pid


def test_one_that_is_about_to_end_is_waited_for(amux: Amux) -> None:
    amux.stop()
    lock = (amux.state / "amuxd.lock").open("r+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    starting = amux.machine.popen(["systemctl", "--user", "start", "amuxd.service"])
    until(lambda: amux.machine.systemctl("is-active", "amuxd.service", check=False) == "activating")
    lock.close()
    assert starting.wait(20) == 0
    assert amux.cli("ls").returncode == 0
