"""What is stopped is gone, all of it; and what a command is started with is what it was to have."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.bus import PROPERTIES, CallFailed, Signal
from harness.client import SESSION, Client, Session
from harness.daemon import Amux, Embedded
from harness.terminal import Terminal
from harness.waiting import until
from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

ENDLESS = ["sh", "-c", "echo ready; exec sleep 1000"]
STUBBORN = ["sh", "-c", "trap '' TERM HUP; echo ready; while :; do sleep 1000; done"]


def ready(session: Session) -> None:
    until(lambda: "ready" in session.log())


def members(amux: Client, session: Session) -> Iterator[psutil.Process]:
    """Everything that carries the session's mark, wherever it is: a second look than that of the daemon."""
    mark = f"AMUX_SESSION_ID={session.id}".encode()
    for process in amux.machine.processes():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            socket = any(f"/tmux/{session.id}.sock" in word for word in process.cmdline())
            if mark in environment or socket:
                yield process
        except (OSError, psutil.NoSuchProcess):
            continue


def assert_nothing_is_left(amux: Client, session: Session) -> None:
    assert list(members(amux, session)) == []
    assert list(amux.machine.outside(amux.runtime / "tmux").glob(f"{session.id}*")) == []
    assert not amux.machine.outside(amux.runtime / "gates" / session.id).exists()
    if isinstance(amux, Amux):
        unit = session.get("Unit")
        assert amux.machine.systemctl("show", "--property=LoadState,ActiveState", unit) in {
            "LoadState=not-found\nActiveState=inactive",
            "ActiveState=inactive\nLoadState=not-found",
        }


def test_a_stopped_command_is_asked_first(anywhere: Client) -> None:
    script = "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with anywhere.events() as events:
        session = anywhere.create(["sh", "-c", script])
        ready(session)
        session.stop()
        assert (session.state, session.get("Reason")) == ("stopped", "stopped; exited with code 5")
        assert session.get("ExitCode") == 5
        assert session.certificate()["last_lines"] == ["ready", "asked"]
        assert_nothing_is_left(anywhere, session)
        states = [state for _, _, _, state, _, _ in session.call("History")]
        assert states == ["created", "starting", "running", "stopping", "stopped"]
        exited = events.wait(lambda event: event.member == "SessionExited")
        assert exited.body[3:5] == (5, "")


OBEDIENT = ["sh", "-c", "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done"]


def hold(amux: Amux, session: Session, held: str) -> None:
    if held == "unit":
        amux.machine.systemctl("freeze", session.get("Unit"))
        return
    state = json.loads((amux.state / "sessions" / session.id / "state.json").read_text())
    amux.machine.run(["kill", "-STOP", str(state[held]["pid"])])


@pytest.mark.parametrize("held", ["unit", "server", "command"])
def test_what_is_held_goes_on_to_be_stopped_as_any_other(amux_everywhere: Amux, held: str) -> None:
    amux = amux_everywhere
    session = amux.create(OBEDIENT)
    ready(session)
    hold(amux, session, held)
    session.stop()
    assert session.get("Reason") == "stopped; exited with code 5"
    assert session.certificate()["last_lines"] == ["ready", "asked"]
    assert_nothing_is_left(amux, session)


@pytest.mark.parametrize("held", ["unit", "server"])
def test_what_ends_while_it_is_held_has_all_of_its_output(amux_everywhere: Amux, held: str) -> None:
    amux = amux_everywhere
    session = amux.create(OBEDIENT)
    ready(session)
    hold(amux, session, held)
    amux.machine.kill(session.get("Pid"))
    session.wait_state("failed")
    assert session.get("Reason") == "killed by SIGKILL"
    assert session.certificate()["last_lines"] == ["ready"]
    session.remove()


def test_what_is_frozen_is_not_idle_and_cannot_be_attached_to(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    session = amux.create(ENDLESS)
    ready(session)
    unit = session.get("Unit")
    amux.machine.systemctl("freeze", unit)
    assert "running (frozen)" in amux.cli("ls").stdout
    assert "running (frozen)" in amux.cli("show", session.id).stdout
    for arguments in (["send", session.id, "x"], ["attach", session.id]):
        with amux.terminal(*arguments) as terminal:
            terminal.expect(f"systemctl --user thaw {unit}")
            assert terminal.wait() == 4
    amux.machine.systemctl("thaw", unit)
    assert not session.get("Frozen")
    session.send("x")


def test_a_terminal_that_hangs_is_told_of_and_keeps_no_client(amux: Amux) -> None:
    session = amux.create(ENDLESS)
    ready(session)
    hold(amux, session, "server")
    for arguments in (["send", session.id, "x"], ["attach", session.id]):
        with amux.terminal(*arguments) as terminal:
            terminal.expect("tmux did not answer within 5 s")
            assert terminal.wait() == 1
    assert "running" in amux.cli("show", session.id).stdout
    session.remove(force=True, timeout=20)


def test_a_command_that_does_not_obey_is_killed_after_the_grace(anywhere: Client) -> None:
    session = anywhere.create(STUBBORN)
    ready(session)
    begin = time.monotonic()
    session.stop(grace=0.5)
    assert time.monotonic() - begin >= 0.5
    assert (session.state, session.get("ExitSignal")) == ("stopped", "SIGKILL")
    assert session.get("Reason") == "stopped; killed by SIGKILL"
    assert_nothing_is_left(anywhere, session)


FAMILY = """
trap '' TERM HUP
(trap '' TERM HUP; exec sleep 2001) &
(setsid sh -c 'trap "" TERM HUP; sleep 2002 & sleep 2003' </dev/null >/dev/null 2>&1 &)
(setsid setsid sh -c 'exec sleep 2004' </dev/null >/dev/null 2>&1 &)
(env -u AMUX_SESSION_ID setsid sleep 2005 </dev/null >/dev/null 2>&1 &)
trap - TERM
echo ready
sleep 2000
"""


def sleepers(amux: Client) -> list[str]:
    lines = amux.machine.command_lines().values()
    return sorted(line[1] for line in lines if line[:1] == ["sleep"] and line[1].startswith("200"))


def test_no_child_outlives_a_stop(amux_everywhere: Amux) -> None:
    session = amux_everywhere.create(["sh", "-c", FAMILY])
    ready(session)
    until(lambda: len(sleepers(amux_everywhere)) == 6)
    session.stop(grace=0.5)
    assert sleepers(amux_everywhere) == []
    assert session.state == "stopped"
    assert_nothing_is_left(amux_everywhere, session)


def test_no_child_outlives_a_stop_without_systemd(embedded: Embedded) -> None:
    embedded.cli("ls")
    session = embedded.create(["sh", "-c", FAMILY])
    ready(session)
    until(lambda: len(sleepers(embedded)) == 6)
    session.stop(grace=0.5)
    # Without a cgroup, who takes off the mark and leaves the family is beyond reach.
    assert set(sleepers(embedded)) <= {"2005"}
    assert session.state == "stopped"


def test_no_child_outlives_the_end_of_its_command(amux_everywhere: Amux) -> None:
    script = FAMILY.replace("sleep 2000\n", "exit 0")
    session = amux_everywhere.create(["sh", "-c", script])
    session.wait_state("completed")
    session.certificate()
    assert sleepers(amux_everywhere) == []
    assert_nothing_is_left(amux_everywhere, session)


def test_an_interactive_shell_stops_at_once(anywhere: Client) -> None:
    session = anywhere.create(["bash", "--norc", "-i"])
    until(lambda: "bash" in session.log())
    begin = time.monotonic()
    session.stop(grace=60)
    assert time.monotonic() - begin < 15
    assert session.state == "stopped"
    assert_nothing_is_left(anywhere, session)


def test_a_session_that_is_attached_to_is_stopped(anywhere: Client) -> None:
    session = anywhere.create(ENDLESS)
    ready(session)
    with Terminal(anywhere.machine, session.call("AttachCommand")) as terminal:
        until(lambda: session.get("Attached") == 1)
        terminal.expect("ready")
        session.stop()
        terminal.wait()
    assert (session.state, session.get("Attached")) == ("stopped", 0)
    assert_nothing_is_left(anywhere, session)


def test_a_terminal_that_somebody_looks_at_outlives_the_end_until_they_go(anywhere: Client) -> None:
    session = anywhere.create(["sh", "-c", "echo ready; read word; exit 3"])
    ready(session)
    with Terminal(anywhere.machine, session.call("AttachCommand")) as terminal:
        until(lambda: session.get("Attached") == 1)
        session.send("on")
        session.wait_state("failed")
        terminal.expect("Process exited with code 3.")
        assert session.certificate()["last_lines"] == ["ready", "on"]
        assert session.get("HostAlive") == "alive"
    until(lambda: session.get("HostAlive") == "dead")
    until(lambda: not list(members(anywhere, session)))


# The child goes on while the end is told, for as long as there is a terminal to print to.
PRINTS_ON = """
trap '' HUP
stty -echo
(seq -f 'line %.0f' 10000000) &
echo ready; read word; exit 3
"""


@pytest.mark.parametrize("looked_at", [True, False])
def test_what_a_child_prints_at_the_end_is_kept_and_no_mark_is_seen(
    anywhere: Client, looked_at: bool
) -> None:
    session = anywhere.create(["sh", "-c", PRINTS_ON])
    until(lambda: "line 1" in session.log())
    terminal = Terminal(anywhere.machine, session.call("AttachCommand")) if looked_at else None
    with terminal or contextlib.nullcontext():
        until(lambda: session.get("Attached") == looked_at)
        session.send("on")
        session.wait_state("failed")
        # Until it is whole.
        session.certificate()
        shown = [anywhere.cli("logs", session.id).stdout]
    until(lambda: session.get("HostAlive") == "dead")
    shown.append(anywhere.cli("logs", session.id).stdout)
    for output in shown:
        assert "amux;end" not in output
        lines = re.findall(r"line (\d+)\n", output)
        assert lines == [str(number) for number in range(1, len(lines) + 1)]
    log = Path(session.get("LogPath"))
    assert [path.name for path in log.parent.glob("output.log*") if b"amux;end" in path.read_bytes()] == []


def test_who_attaches_too_late_leaves_nothing(anywhere: Client) -> None:
    session = anywhere.create(ENDLESS)
    ready(session)
    command = session.call("AttachCommand")
    session.stop()
    assert_nothing_is_left(anywhere, session)
    with Terminal(anywhere.machine, command) as terminal:
        terminal.expect("error connecting")
        terminal.wait()
    assert_nothing_is_left(anywhere, session)


def test_stop_is_not_possible_of_what_does_not_run(amux: Amux) -> None:
    created = amux.create(ENDLESS, start=False)
    ended = amux.create(["true"])
    ended.wait_state("completed")
    ended.certificate()
    for session in (created, ended):
        state = session.state
        with pytest.raises(CallFailed, match=f"is {state}, stop is not possible") as failure:
            session.stop()
        assert failure.value.name == "org.amux.Amux1.Error.InvalidTransition"
        assert session.state == state


def test_who_asks_to_stop_what_is_being_stopped_waits_for_it(anywhere: Client) -> None:
    gate = anywhere.machine.temporary / "gate"
    script = f"trap 'echo asked' TERM; echo ready; until [ -e {gate} ]; do sleep 0.05; done"
    session = anywhere.create(["sh", "-c", script])
    ready(session)
    first, second, question = (session_call(session, *call) for call in (LONG_STOP, SHORT_STOP, LOOK))
    with open_dbus_connection(anywhere.bus.address) as connection:
        connection.send(first, serial=1001)
        connection.send(second, serial=1002)
        # Answered after the other two have begun.
        connection.send_and_get_reply(question, timeout=20)
        until(lambda: "asked" in session.log())
        gate.touch()
        replies = [connection.receive(timeout=20) for _ in range(2)]
    gate.unlink()
    assert {reply.header.fields[HeaderFields.reply_serial] for reply in replies} == {1001, 1002}
    assert [reply.header.message_type for reply in replies] == [MessageType.method_return] * 2
    assert session.get("Reason") == "stopped; exited with code 0"
    states = [state for _, _, _, state, _, _ in session.call("History")]
    assert states == ["created", "starting", "running", "stopping", "stopped"]
    assert anywhere.cli("stop", session.id, check=False).returncode == 4


LONG_STOP = (SESSION, "Stop", "a{sv}", {"grace": ("d", 60.0)})
SHORT_STOP = (SESSION, "Stop", "a{sv}", {"grace": ("d", 0.0)})
LOOK = (PROPERTIES, "Get", "ss", SESSION, "State")


def session_call(session: Session, interface: str, member: str, signature: str, *body: Any) -> Message:
    address = DBusAddress(session.path, bus_name=session.destination, interface=interface)
    return new_method_call(address, member, signature, body)


def tells_of(path: str) -> Callable[[Signal], bool]:
    return lambda event: event.member == "InterfacesAdded" and event.body[0] == path


def test_who_stops_and_what_ends_by_itself_agree(amux: Amux) -> None:
    """Both at once: whoever is first, one end is told, and nothing is left."""
    for _ in range(10):
        with amux.events() as events:
            session = amux.create(["sh", "-c", "echo ready; read word; exit 0"])
            ready(session)
            session.send("go")
            # It may be over already, and then there is nothing to stop.
            with contextlib.suppress(CallFailed):
                session.stop()
            assert session.wait_state("stopped", "completed") in {"stopped", "completed"}
            session.certificate()
            assert_nothing_is_left(amux, session)
            later = amux.create(["true"], start=False)
            events.wait(tells_of(later.path))
            assert len(events.named("SessionExited")) == 1


SLOW_TMUX = """#!/bin/sh
case "$*" in *start-server*) read word <{gate} ;; esac
exec /usr/bin/tmux "$@"
"""


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_is_still_starting_is_removed(amux: Amux, restart: bool) -> None:
    """It is waited for, and nothing of it is left."""
    programs = amux.machine.temporary / "slow"
    programs.mkdir()
    gate = programs / "gate"
    os.mkfifo(gate)
    (programs / "tmux").write_text(SLOW_TMUX.format(gate=gate))
    (programs / "tmux").chmod(0o755)
    conf = amux.machine.outside(amux.machine.runtime) / "systemd/user/amuxd.service.d/slow.conf"
    conf.parent.mkdir()
    conf.write_text(f"[Service]\nEnvironment=PATH={programs}:/usr/bin:/bin\n")
    amux.machine.systemctl("daemon-reload")
    amux.restart()
    try:
        amux.popen("run", "-n", "slow", "--", "sleep", "2000", stderr=subprocess.DEVNULL)
        session = until(lambda: next((amux.session(id) for id in amux.sessions()), None))
        session.wait_state("starting")
        if restart:
            unit = f"amux-{session.id}.service"
            until(lambda: amux.machine.systemctl("is-active", unit, check=False) == "activating")
            amux.kill()
            # systemd starts amuxd once the unit has begun, or failed to.
            limit = amux.machine.systemctl("show", "--property=TimeoutStartUSec", unit)
            assert limit == "TimeoutStartUSec=30s"
            gate.write_text("go\n")
            session.wait_state("starting", timeout=20)
        removing = amux.popen("rm", "-f", "slow", stdout=subprocess.PIPE)
        gate.write_text("go\n")
        assert removing.wait(60) == 0
        assert amux.sessions(archived=("b", True)) == {}
        assert sleepers(amux) == []
        assert [path.name for path in (amux.state / "sessions").iterdir() if path.is_dir()] == []
        assert list(amux.machine.outside(amux.runtime / "tmux").iterdir()) == []
        assert amux.machine.systemctl("list-units", "--all", "--no-legend", "amux-*.service") == ""
    finally:
        conf.unlink()
        conf.parent.rmdir()
        amux.machine.systemctl("daemon-reload")
        shutil.rmtree(programs)


def test_kill_sends_a_signal_and_changes_nothing_by_itself(anywhere: Client) -> None:
    script = "trap 'echo got USR1' USR1; trap 'echo got it' RTMIN+2; echo ready; while :; do sleep 0.05; done"
    session = anywhere.create(["bash", "-c", script])
    ready(session)
    session.call("Kill", "s", "USR1")
    until(lambda: "got USR1" in session.log())
    session.call("Kill", "s", "SIGRTMIN+2")
    until(lambda: "got it" in session.log())
    assert session.state == "running"
    assert [entry[3] for entry in session.call("History")] == ["created", "starting", "running"]


@pytest.mark.parametrize("name", ["SIGNOTHING", "", "0", "-9", "65", "RTMIN+99", "nine"])
def test_kill_with_a_signal_that_is_none(amux: Amux, name: str) -> None:
    session = amux.create(ENDLESS)
    with pytest.raises(CallFailed) as failure:
        session.call("Kill", "s", name)
    assert failure.value.name == "org.amux.Amux1.Error.InvalidArgument"
    assert session.state == "running"


def test_kill_of_what_has_ended(amux: Amux) -> None:
    session = amux.create(["true"])
    session.wait_state("completed")
    with pytest.raises(CallFailed, match="kill is not possible") as failure:
        session.call("Kill", "s", "TERM")
    assert failure.value.name == "org.amux.Amux1.Error.InvalidTransition"


REPORT = """
import json, os, sys
with open("report.new", "w") as file:
    json.dump({"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "tty": os.ttyname(0)}, file)
os.rename("report.new", "report")
import time
time.sleep(1000)
"""


def report(amux: Client, *arguments: str, **options: Any) -> tuple[Session, dict[str, Any]]:
    directory = amux.machine.temporary / "where it # runs $HOME %s"
    directory.mkdir(exist_ok=True)
    python = str(amux.machine.bindir / "python3")
    session = amux.create([python, "-c", REPORT, *arguments], cwd=str(directory), **options)
    path = directory / "report"
    until(path.exists)
    told = json.loads(path.read_text())
    path.unlink()
    assert told["cwd"] == str(directory)
    return session, told


def test_environment_and_arguments_reach_the_command_as_they_are(anywhere: Client) -> None:
    environment = {
        "PLAIN": "word",
        "ODD": "a 'b' \"c\" $HOME `id` \\ # ; % ~ #{pane_id}",
        "LINES_OF": "one\ntwo\n",
        "UTF": "größe 🦊",
        "EMPTY": "",
        "TERM_PROGRAM_OF_MINE": "~/x",
        "PATH": "/usr/bin:/bin:/odd path",
    }
    arguments = ["a b", "", "$HOME", "'", '"', "\\", "#{pane_id}", "%%", "-x", "ü", "one\ntwo", ";"]
    session, told = report(anywhere, *arguments, env=environment)
    assert told["argv"][1:] == arguments
    assert {name: told["env"].get(name) for name in environment} == environment
    assert told["env"]["AMUX_SESSION_ID"] == session.id
    assert told["tty"].startswith("/dev/pts/")
    own = {"INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "MANAGERPID", "NOTIFY_SOCKET"}
    own |= {"SYSTEMD_EXEC_PID", "WATCHDOG_USEC", "WATCHDOG_PID", "MEMORY_PRESSURE_WATCH", "LISTEN_FDNAMES"}
    own |= {"PIDFILE"}
    assert not own & set(told["env"])
    session.stop(grace=1)


def test_the_bus_inside_is_the_real_one_and_the_pane_stays_in_the_unit(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    session, told = report(amux)
    address = told["env"]["DBUS_SESSION_BUS_ADDRESS"]
    assert address.partition(",")[0] == f"unix:path={amux.machine.runtime}/bus"
    # It works in there, too.
    asking = amux.create(["busctl", "--user", "get-property", "org.amux.Amux1", *session_property(session)])
    asking.wait_state("completed")
    assert asking.certificate()["last_lines"] == ['s "running"']
    pid = amux.machine.outside_pid(session.get("Pid"))
    cgroup = Path(f"/proc/{pid}/cgroup").read_text().strip()
    assert cgroup.endswith(f"/amux.slice/{session.get('Unit')}")
    for process in members(amux, session):
        assert Path(f"/proc/{process.pid}/cgroup").read_text().strip() == cgroup
    assert "tmux-spawn" not in amux.machine.systemctl("list-units", "--all", "--no-legend")


def session_property(session: Session) -> list[str]:
    return [session.path, session.interface, "State"]
