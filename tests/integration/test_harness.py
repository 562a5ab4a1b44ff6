"""The machine of the tests is a real one, and goes without a trace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import booted, debian13
from harness.bus import Bus, CallFailed, Events
from harness.daemon import Amux, Embedded, LeftBehind
from harness.machine import REPOSITORY, CommandFailed, Machine, MachineError
from harness.terminal import Terminal
from harness.waiting import until

TOY = """
from jeepney import DBusAddress, HeaderFields, MessageType, message_bus
from jeepney import new_error, new_method_return, new_signal
from jeepney.io.blocking import open_dbus_connection

toy = DBusAddress("/toy", interface="org.amux.Toy")
with open_dbus_connection() as connection:
    # The call that activated it comes before the reply to this.
    connection.send(message_bus.RequestName("org.amux.Toy"))
    while True:
        message = connection.receive()
        if message.header.message_type is not MessageType.method_call:
            continue
        if message.header.fields[HeaderFields.member] == "Echo":
            connection.send(new_signal(toy, "Called", "s", message.body))
            connection.send(new_method_return(message, "s", message.body))
        else:
            connection.send(new_error(message, "org.amux.Toy.Error.Unknown", "s", ("no such thing",)))
"""


TOY_DAEMON = """#!{python}
import os
import sdnotify
from jeepney import message_bus
from jeepney.io.blocking import open_dbus_connection

with open_dbus_connection() as connection:
    connection.send(message_bus.RequestName("org.amux.Amux1"))
    sdnotify.SystemdNotifier().notify("READY=1")
    print("home is", os.environ["HOME"], flush=True)
    while True:
        connection.receive()
"""


def cgroup_trees() -> list[Path]:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]


def traces(base: Path) -> list[str]:
    """What is left of a machine in the namespaces of the tests."""
    found = [str(tree / base.name) for tree in cgroup_trees() if (tree / base.name).exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if base.name in line]
    for process in psutil.process_iter(["cmdline", "environ"]):
        if base.name in str(process.info) and process.pid != os.getpid():
            found.append(f"process {process.pid} {process.info['cmdline']}")
    if base.exists():
        found.append(str(base))
    return found


def test_services_run_under_a_real_user_manager(shared_machine: Machine) -> None:
    shared_machine.run(["systemd-run", "--user", "--wait", "--collect", "true"])
    with pytest.raises(CommandFailed):
        shared_machine.run(["systemd-run", "--user", "--wait", "--collect", "false"])
    # The one that failed is forgotten a moment after systemd-run is told.
    until(lambda: shared_machine.systemctl("is-system-running", check=False) == "running")


def test_a_transient_unit_has_its_limits_and_its_own_cgroup(shared_machine: Machine) -> None:
    shared_machine.run(
        [
            "systemd-run",
            "--user",
            "--unit=limited",
            "--property=MemoryMax=64M",
            "--collect",
            "sleep",
            "infinity",
        ]
    )
    try:
        assert shared_machine.systemctl("show", "--property=MemoryMax", "limited") == f"MemoryMax={64 << 20}"
        cgroup = shared_machine.systemctl("show", "--property=ControlGroup", "--value", "limited")
        assert cgroup == "/user.slice/user-0.slice/user@0.service/app.slice/limited.service"
        procs = shared_machine.run(["cat", f"/sys/fs/cgroup{cgroup}/cgroup.procs"]).stdout
        assert procs.split() == [shared_machine.systemctl("show", "--property=MainPID", "--value", "limited")]
    finally:
        shared_machine.systemctl("stop", "limited")


def test_commands_run_as_in_a_login_session(shared_machine: Machine) -> None:
    cgroup = shared_machine.run(["cat", "/proc/self/cgroup"]).stdout.splitlines()[-1]
    assert cgroup == "0::/user.slice/user-0.slice/session-1.scope"
    printed = shared_machine.run(["cat"], input="typed\n", env={"EXTRA": "1"}).stdout
    assert printed == "typed\n"
    assert (
        shared_machine.run(["sh", "-c", "pwd; echo $HOME"]).stdout.split() == [str(shared_machine.home)] * 2
    )


def test_a_signal_reaches_the_command_itself(shared_machine: Machine) -> None:
    process = shared_machine.popen(
        ["sh", "-c", "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "caught\n"
    assert process.returncode == 7


def test_a_command_that_takes_too_long_is_ended(shared_machine: Machine) -> None:
    before = {process.pid for process in shared_machine.processes()}
    with pytest.raises(subprocess.TimeoutExpired):
        shared_machine.run(["sleep", "infinity"], timeout=0.1)
    assert {process.pid for process in shared_machine.processes()} <= before


def test_the_bus_activates_a_service_and_tests_reach_it_from_outside(machine: Machine) -> None:
    toy = machine.base / "toy.py"
    toy.write_text(TOY)
    runtime = machine.outside(machine.runtime)
    units, services = runtime / "systemd/user", runtime / "dbus-1/services"
    units.mkdir(parents=True)
    services.mkdir(parents=True)
    (units / "toy.service").write_text(
        f"[Service]\nType=dbus\nBusName=org.amux.Toy\nExecStart={sys.executable} {toy}\n"
    )
    (services / "org.amux.Toy.service").write_text(
        "[D-BUS Service]\nName=org.amux.Toy\nExec=/bin/false\nSystemdService=toy.service\n"
    )
    machine.systemctl("daemon-reload")
    bus = Bus(machine.bus_address)
    bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ReloadConfig")
    toy_proxy = bus.proxy("org.amux.Toy", "/toy", "org.amux.Toy")
    with Events(machine.bus_address, "org.amux.Toy") as events:
        assert toy_proxy.call("Echo", "s", "hello") == "hello"
        first = events.wait(lambda event: event.body == ("hello",))
        machine.kill(int(machine.systemctl("show", "--property=MainPID", "--value", "toy")))
        # The bus must have seen it go, or the call is still for the dead one.
        until(lambda: machine.systemctl("is-active", "toy", check=False) == "failed")
        assert toy_proxy.call("Echo", "s", "again") == "again"
        second = events.wait(lambda event: event.member == "Called", after=first)
        assert (second.path, second.body) == ("/toy", ("again",))
        with pytest.raises(TimeoutError, match="Called /toy"):
            events.wait(lambda event: False, timeout=0.01)
    with pytest.raises(CallFailed, match="no such thing") as failure:
        toy_proxy.call("Other")
    assert failure.value.name == "org.amux.Toy.Error.Unknown"
    bus.close()


def test_the_journal_is_real(shared_machine: Machine) -> None:
    shared_machine.run(
        ["logger", "--journald"], input="MESSAGE=it ended\nAMUX_SESSION=abc\nAMUX_STATE=failed\n"
    )
    (entry,) = shared_machine.journal(AMUX_SESSION="abc")
    assert (entry["MESSAGE"], entry["AMUX_STATE"]) == ("it ended", "failed")
    shared_machine.run(["systemd-run", "--user", "--wait", "--collect", "echo", "words"])
    # By identifier: journald can no longer look up the unit of a process that is gone.
    assert [entry["MESSAGE"] for entry in shared_machine.journal(SYSLOG_IDENTIFIER="echo")] == ["words"]


def test_tmux_runs_in_it(shared_machine: Machine) -> None:
    socket = shared_machine.runtime / "tmux-test.sock"
    shared_machine.run(["tmux", "-S", socket, "new-session", "-d", "-s", "one", "sleep infinity"])
    pane = shared_machine.run(["tmux", "-S", socket, "list-panes", "-F", "#{pane_pid}"]).stdout
    assert shared_machine.outside_pid(int(pane)) in psutil.pids()
    shared_machine.run(["tmux", "-S", socket, "kill-server"])


def test_a_terminal_controls_what_runs_in_it(shared_machine: Machine) -> None:
    with Terminal(
        shared_machine, ["sh", "-c", "stty size; tty; exec cat"], columns=100, lines=30
    ) as terminal:
        terminal.expect("30 100")
        terminal.expect("/dev/pts/")
        terminal.type("words\r")
        terminal.expect("words")
        # Once more by "cat" itself, which is there now for Ctrl-C to end.
        terminal.expect("words")
        terminal.type("\x03")
        assert terminal.wait() == -signal.SIGINT


def test_tmux_can_be_attached_to(shared_machine: Machine) -> None:
    with Terminal(
        shared_machine, ["tmux", "-L", "attached", "new-session", "echo in tmux; read x"]
    ) as terminal:
        terminal.expect("in tmux")
        terminal.type("\r")
        terminal.expect("[exited]")
        assert terminal.wait() == 0


def test_machines_do_not_see_each_other() -> None:
    with Machine() as one, Machine() as other:
        one.run(["systemd-run", "--user", "--unit=mine", "sleep", "infinity"])
        assert one.systemctl("is-active", "mine") == "active"
        assert other.systemctl("is-active", "mine", check=False) == "inactive"
        assert not {p.pid for p in one.processes()} & {p.pid for p in other.processes()}


def test_nothing_is_left_of_a_machine() -> None:
    with Machine() as machine:
        machine.run(["systemd-run", "--user", "sleep", "infinity"])
        machine.run(["sh", "-c", "setsid sleep infinity >/dev/null 2>&1 &"])
        forgotten = machine.popen(["sleep", "infinity"])
        machine.run(["mount", "-t", "tmpfs", "tmpfs", machine.home])
        assert traces(machine.base)
        pids = [process.pid for process in machine.processes()]
    assert forgotten.returncode == -signal.SIGKILL
    assert traces(machine.base) == []
    assert not set(pids) & set(psutil.pids())


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY / 'tests')!r})\n"
        "from harness.machine import Machine\n"
        "machine = Machine(); machine.run(['systemd-run', '--user', 'sleep', 'infinity'])\n"
        "print(machine.base, flush=True); input()"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    base = Path(tests.stdout.readline().strip())
    assert traces(base)
    tests.kill()
    tests.communicate()
    until(lambda: not traces(base))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"missing: .*dbus-user-session.*tmux"):
        Machine(root=tmp_path)


def test_without_a_manager_there_is_neither_bus_nor_systemd() -> None:
    with Machine(manager=False) as machine:
        assert "DBUS_SESSION_BUS_ADDRESS" not in machine.environment
        assert not machine.outside("/run/systemd/system").exists()
        assert machine.run(["ls", machine.runtime]).stdout == ""
        assert machine.run(["systemctl", "--user", "status"], check=False).returncode != 0


@pytest.fixture
def toy_amux(machine: Machine) -> Amux:
    """The harness's own part of amux, with a daemon that only says that it is there."""
    machine.bindir = machine.base / "toys"
    machine.bindir.mkdir()
    toys = {"amuxd": TOY_DAEMON.format(python=sys.executable), "amux": "#!/bin/sh\necho $0 $*\n"}
    for name, text in toys.items():
        (machine.bindir / name).write_text(text)
        (machine.bindir / name).chmod(0o755)
    return Amux(machine)


def test_the_daemon_runs_as_a_service(toy_amux: Amux) -> None:
    toy_amux.start()
    first = toy_amux.pid
    assert first
    assert toy_amux.cli("ls", "-a").stdout == f"{toy_amux.bindir}/amux ls -a\n"
    toy_amux.restart()
    assert toy_amux.pid not in (0, first)
    toy_amux.kill(signal.SIGKILL)
    until(lambda: toy_amux.machine.systemctl("is-active", "amuxd", check=False) == "active")
    toy_amux.stop()
    assert toy_amux.pid == 0
    assert f"home is {toy_amux.machine.home}" in [entry["MESSAGE"] for entry in toy_amux.journal()]
    toy_amux.state.mkdir()
    toy_amux.close()
    assert not toy_amux.state.exists()


def test_what_a_session_leaves_behind_is_an_error(toy_amux: Amux) -> None:
    toy_amux.machine.run(["systemd-run", "--user", "--unit=amux-abc", "sleep", "1001"])
    toy_amux.machine.run(["systemd-run", "--user", "--unit=escaped", "sleep", "1002"])
    with pytest.raises(LeftBehind, match=r"'1002'\] in .*/escaped\.service") as failure:
        toy_amux.close()
    assert "1001" not in str(failure.value)


def test_what_a_test_leaves_set_for_the_next_ones_amuxd_is_an_error(toy_amux: Amux) -> None:
    left = toy_amux.machine.outside(toy_amux.machine.runtime) / "systemd/user/amuxd.service.d/left.conf"
    left.parent.mkdir()
    left.write_text("[Service]\nRestart=no\n")
    with pytest.raises(LeftBehind, match=r"amuxd\.service\.d/left\.conf"):
        toy_amux.close()
    assert not left.parent.exists()


def test_a_debian_13_is_a_machine_like_any(machine13: Machine) -> None:
    machine13.run(["systemd-run", "--user", "--wait", "--collect", "true"])
    assert machine13.run(["tmux", "-V"]).stdout == "tmux 3.5a\n"
    assert machine13.run(["systemctl", "--version"]).stdout.startswith("systemd 257")
    assert machine13.run(["python3", "--version"]).stdout.startswith("Python 3.13")
    machine13.run(["logger", "--journald"], input="MESSAGE=hello\nAMUX_SESSION=thirteen\n")
    assert len(machine13.journal(AMUX_SESSION="thirteen")) == 1
    bus = Bus(machine13.bus_address)
    assert bus.unique_name
    bus.close()
    # What it writes goes to an overlay of its own.
    machine13.run(["sh", "-c", "echo changed >/etc/hostname"])
    with debian13.machine() as another:
        assert "changed" not in another.run(["cat", "/etc/hostname"], check=False).stdout


def test_a_test_has_amux_in_one_line(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    with amux.events() as events:
        session = amux.create(["sh", "-c", "echo begun; exec sleep 1000"], name="one")
        assert session.wait_state("running") == "running"
        events.wait(lambda event: event.member == "SessionStateChanged" and event.body[4] == "running")
        session.call("Kill", "s", "SIGKILL")
        ended = events.wait(lambda event: event.member == "SessionExited")
    assert ended.body[:5] == (session.path, session.id, "one", -1, "SIGKILL")
    assert session.wait_state("failed") == "failed"
    assert amux.sessions()[session.id]["State"] == "failed"
    assert amux.journal(AMUX_SESSION=session.id)


def test_a_test_has_amux_without_systemd_in_one_line(embedded: Embedded) -> None:
    identifier = embedded.cli("run", "--quiet", "--name", "one", "--", "sleep", "1000").stdout.strip()
    session = embedded.session("one")
    assert session.id == identifier
    assert embedded.manager.get("Mode") == "embedded"
    assert session.wait_state("running") == "running"


def test_a_system_that_lets_nobody_mount_says_why_no_machine_boots_there() -> None:
    assert booted.why_impossible() == ""
    look = "from harness.booted import why_impossible; print(why_impossible())"
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", look]
    paths = {"PYTHONPATH": str(REPOSITORY / "tests")}
    said = subprocess.run(
        without, env=os.environ | paths, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "Operation not permitted" in said
