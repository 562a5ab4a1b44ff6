"""Every end has its own reason, and it is the true one."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bus_fixtures import BusDaemon, bus_daemon, in_loop  # noqa: F401
from bus_fixtures import Client as BusClient
from harness.bus import Events
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.machine import REPOSITORY
from harness.waiting import until

from amuxd import processes
from amuxd.bus.connection import Bus
from amuxd.hosts import Ended, Gone, Home, ServerEnd, cgroups, local, units
from amuxd.hosts.bare import Bare
from amuxd.records import Limits, Process, RunState
from amuxd.records import Session as Record
from amuxd.states import End, State
from amuxd.store import Store

ENDLESS = ["sh", "-c", "echo ready; exec sleep 1000"]


def ended(session: Session, timeout: float = 20) -> dict[str, Any]:
    session.wait_state("completed", "failed", "stopped", timeout=timeout)
    names = ("State", "Reason", "ExitCode", "ExitSignal", "CoreDumped", "OomKilled")
    properties = session.properties()
    return {name: properties[name] for name in names}


def end(state: str, reason: str, code: int = -1, signal: str = "", core: bool = False) -> dict[str, Any]:
    return {
        "State": state,
        "Reason": reason,
        "ExitCode": code,
        "ExitSignal": signal,
        "CoreDumped": core,
        "OomKilled": False,
    }


def exits(amux: Client, events: Events, session: Session) -> list[tuple[Any, ...]]:
    """All that were told so far: what comes after them has been received."""
    later = amux.create(["true"], start=False)
    events.wait(lambda event: event.member == "InterfacesAdded" and event.body[0] == later.path)
    later.remove()
    return [event.body for event in events.named("SessionExited") if event.body[1] == session.id]


def on_disk(amux: Client, session: Session, name: str) -> dict[str, Any]:
    data = json.loads((amux.state / "sessions" / session.id / name).read_text())
    assert isinstance(data, dict)
    return data


def server_of(amux: Client, session: Session) -> int:
    return int(on_disk(amux, session, "state.json")["server"]["pid"])


def ready(session: Session) -> None:
    until(lambda: "ready" in session.log(), timeout=10)


def certified(amux: Client, events: Events, session: Session, wanted: dict[str, Any]) -> list[str]:
    """Everything that tells of the end says the same; the last lines are for the caller to judge."""
    code, number = wanted["ExitCode"], wanted["ExitSignal"]
    certificate = session.certificate()
    told = exits(amux, events, session)
    assert told == [(session.path, session.id, session.get("Name"), code, number, session.get("Run"))]
    assert certificate["reason"] == wanted["Reason"]
    assert (certificate["exit_code"], certificate["signal"]) == (code, number)
    assert certificate.get("core_dumped", False) == wanted["CoreDumped"]
    assert session.get("StateChangedUSec") == certificate["ended_usec"] > session.get("CreatedUSec")
    written = on_disk(amux, session, f"runs/{session.get('Run')}/exit.json")
    assert written["reason"] == wanted["Reason"]
    assert written["last_lines"] == certificate["last_lines"]
    assert written["complete"] is True
    assert written["end"]["code"] == (None if code == -1 else code)
    assert written["end"]["signal"] == (number or None)
    history = session.call("History")
    assert (history[-1][3], history[-1][4]) == (wanted["State"], wanted["Reason"])
    assert (session.get("Pid"), session.get("SessionAlive"), session.get("HostAlive")) == (0, "dead", "dead")
    lines = certificate["last_lines"]
    assert isinstance(lines, list)
    return lines


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("exit 0", end("completed", "exited with code 0", 0)),
        ("exit 3", end("failed", "exited with code 3", 3)),
        ("exit 127", end("failed", "exited with code 127", 127)),
        ("ulimit -c 0; kill -SEGV $$", end("failed", "killed by SIGSEGV", signal="SIGSEGV")),
        (
            "ulimit -c unlimited; kill -SEGV $$",
            end("failed", "killed by SIGSEGV (core dumped)", signal="SIGSEGV", core=True),
        ),
    ],
)
def test_a_command_ends_by_itself(anywhere: Client, script: str, wanted: dict[str, Any]) -> None:
    with anywhere.events() as events:
        session = anywhere.create(
            ["sh", "-c", f"echo first; echo last words; {script}"], cwd=str(anywhere.machine.temporary)
        )
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["first", "last words"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGHUP", "SIGRTMIN+3"])
def test_a_command_is_killed_by_hand(anywhere: Client, name: str) -> None:
    with anywhere.events() as events:
        session = anywhere.create(ENDLESS)
        ready(session)
        session.call("Kill", "s", name)
        wanted = end("failed", f"killed by {name}", signal=name)
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["ready"]


FIRST_MILLISECOND = {
    "true": end("completed", "exited with code 0", 0),
    "false": end("failed", "exited with code 1", 1),
    "kill -SEGV $$": end("failed", "killed by SIGSEGV", signal="SIGSEGV"),
    "kill -KILL $$": end("failed", "killed by SIGKILL", signal="SIGKILL"),
}


def brief(script: str) -> list[str]:
    return [script] if " " not in script else ["sh", "-c", script]


@pytest.mark.parametrize("script", FIRST_MILLISECOND)
def test_ends_in_the_first_millisecond_one_after_the_other(anywhere: Client, script: str) -> None:
    for _ in range(5):
        with anywhere.events() as events:
            session = anywhere.create(brief(script))
            assert ended(session) == FIRST_MILLISECOND[script]
            assert certified(anywhere, events, session, FIRST_MILLISECOND[script]) == []
            session.remove()


def test_twenty_ends_in_the_first_millisecond_at_once(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    scripts = list(FIRST_MILLISECOND) * 5
    with amux.events() as events:
        sessions = [(script, amux.create(brief(script), start=False)) for script in scripts]
        starting = [
            amux.machine.popen(
                [
                    "busctl",
                    "--user",
                    "call",
                    "org.amux.Amux1",
                    session.path,
                    "org.amux.Amux1.Session",
                    "Start",
                ]
            )
            for _, session in sessions
        ]
        assert [process.wait(30) for process in starting] == [0] * len(sessions)
        for script, session in sessions:
            assert ended(session) == FIRST_MILLISECOND[script]
            assert certified(amux, events, session, FIRST_MILLISECOND[script]) == []


@pytest.mark.parametrize("script", ["", "; kill -SEGV $$"])
def test_ten_thousand_lines_just_before_the_end(anywhere: Client, script: str) -> None:
    code = "SIGSEGV" if script else ""
    for _ in range(3):
        session = anywhere.create(["sh", "-c", f"seq -f 'line %.0f' 1 10000{script}"])
        assert ended(session)["ExitSignal"] == code
        lines = session.certificate()["last_lines"]
        assert lines == [f"line {number}" for number in range(9981, 10001)]
        wanted = b"".join(b"line %d\r\n" % number for number in range(1, 10001))
        assert Path(session.get("LogPath")).read_bytes() == wanted


def test_what_a_command_leaves_in_the_terminal_does_not_outlive_it(anywhere: Client) -> None:
    script = "trap '' HUP; sleep 1001 & echo $! >pid; echo over"
    with anywhere.events() as events:
        session = anywhere.create(["sh", "-c", script], cwd=str(anywhere.machine.temporary))
        wanted = end("completed", "exited with code 0", 0)
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["over"]
    left = int((anywhere.machine.temporary / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        anywhere.machine.outside_pid(left)


def made(directory: Path, name: str, text: str, mode: int) -> str:
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("command", "cwd", "why"),
    [
        (["nowhere-to-be-found"], "", "no such program: nowhere-to-be-found"),
        (["/nowhere/to-be-found"], "", "no such program: /nowhere/to-be-found"),
        (["./plain"], "", "./plain is not executable"),
        (["/usr"], "", "/usr is a directory"),
        (["true"], "missing", "no such directory: {cwd}"),
        (["true"], "plain", "not a directory: {cwd}"),
        (
            ["./orphan", "word"],
            "",
            "./orphan cannot be run: its interpreter is missing",
        ),
    ],
)
def test_a_program_that_cannot_start(anywhere: Client, command: Sequence[str], cwd: str, why: str) -> None:
    temporary = anywhere.machine.temporary
    made(temporary, "plain", "echo never\n", 0o644)
    made(temporary, "orphan", "#!/nonexistent/interpreter\n", 0o755)
    directory = str(temporary / cwd)
    with anywhere.events() as events:
        session = anywhere.create(command, cwd=directory)
        wanted = end("failed", "could not start: " + why.format(cwd=directory))
        assert ended(session) == wanted
        lines = certified(anywhere, events, session, wanted)
        assert "never" not in lines
        assert session.get("StartedUSec") == 0 or "orphan" in command[0]


def test_a_script_without_a_first_line_is_one_for_the_shell(anywhere: Client) -> None:
    script = made(anywhere.machine.temporary, "script", "echo ran with $1\nexit 4\n", 0o755)
    session = anywhere.create([script, "words"])
    assert ended(session) == end("failed", "exited with code 4", 4)
    assert session.certificate()["last_lines"] == ["ran with words"]


@contextmanager
def drop_in(amux: Amux, text: str) -> Iterator[None]:
    """An amuxd with other settings, for as long as this lasts."""
    path = amux.machine.outside(amux.machine.runtime) / "systemd/user/amuxd.service.d/test.conf"
    path.parent.mkdir()
    path.write_text(text)
    try:
        amux.machine.systemctl("daemon-reload")
        amux.restart()
        yield
    finally:
        path.unlink()
        path.parent.rmdir()
        amux.machine.systemctl("daemon-reload")


def test_tmux_is_missing(amux: Amux) -> None:
    with drop_in(amux, "[Service]\nEnvironment=PATH=/var/empty\n"), amux.events() as events:
        session = amux.create(["/bin/true"])
        wanted = end("failed", "could not start: tmux is not installed")
        assert ended(session) == wanted
        assert certified(amux, events, session, wanted) == []
    amux.restart()
    session.call("Restart")
    assert ended(session) == end("completed", "exited with code 0", 0)


@pytest.mark.parametrize("attempt", range(3))
def test_the_terminal_server_is_killed(amux_everywhere: Amux, attempt: int) -> None:
    amux = amux_everywhere
    with amux.events() as events:
        session = amux.create(ENDLESS)
        ready(session)
        amux.machine.kill(server_of(amux, session))
        facts = ended(session)
        assert facts["State"] == "failed"
        assert facts["Reason"] == "terminal server died (SIGKILL)"
        assert certified(amux, events, session, facts) == ["ready"]


@pytest.mark.parametrize("attempt", range(3))
def test_the_terminal_server_is_told_to_end(amux_everywhere: Amux, attempt: int) -> None:
    amux = amux_everywhere
    with amux.events() as events:
        session = amux.create(ENDLESS)
        ready(session)
        socket = amux.runtime / "tmux" / f"{session.id}.sock"
        amux.machine.run(["tmux", "-S", socket, "kill-server"])
        facts = ended(session)
        assert facts["State"] == "failed"
        assert facts["Reason"] == "terminal server died (it exited with code 0)"
        assert certified(amux, events, session, facts) == ["ready"]


@pytest.mark.parametrize("attempt", range(3))
def test_the_whole_unit_is_killed(amux_everywhere: Amux, attempt: int) -> None:
    amux = amux_everywhere
    with amux.events() as events:
        session = amux.create(ENDLESS)
        ready(session)
        amux.machine.systemctl("kill", "--signal=KILL", session.get("Unit"))
        facts = ended(session)
        assert (facts["State"], facts["Reason"]) == ("failed", "terminal server died (SIGKILL)")
        assert certified(amux, events, session, facts) == ["ready"]


@pytest.mark.parametrize("attempt", range(3))
def test_the_unit_is_stopped_from_outside(amux_everywhere: Amux, attempt: int) -> None:
    amux = amux_everywhere
    with amux.events() as events:
        session = amux.create(ENDLESS)
        ready(session)
        amux.machine.systemctl("stop", session.get("Unit"))
        facts = ended(session)
        assert certified(amux, events, session, facts) == ["ready"]
        assert facts["State"] == "failed"
        assert facts["Reason"] == "its unit was stopped through systemd"


def test_the_terminal_server_is_killed_without_systemd(embedded: Embedded) -> None:
    embedded.cli("ls")
    with embedded.events() as events:
        session = embedded.create(ENDLESS)
        ready(session)
        embedded.machine.kill(server_of(embedded, session))
        facts = ended(session)
        assert facts["State"] == "failed"
        # Older kernels forget how a process ended that is no child of who asks.
        assert facts["Reason"] in {
            "terminal server died (SIGKILL)",
            "terminal server died (how is not known)",
        }
        assert certified(embedded, events, session, facts) == ["ready"]


def test_a_command_that_ignores_that_its_terminal_died(anywhere: Client) -> None:
    with anywhere.events() as events:
        session = anywhere.create(["sh", "-c", "trap '' HUP TERM; echo ready; sleep 1000; exit 0"])
        ready(session)
        command = session.get("Pid")
        anywhere.machine.kill(server_of(anywhere, session))
        facts = ended(session)
        assert facts["State"] == "failed"
        assert facts["Reason"].startswith("terminal server died (")
        assert certified(anywhere, events, session, facts) == ["ready"]
    with pytest.raises(ProcessLookupError):
        anywhere.machine.outside_pid(command)


def test_a_command_may_take_its_time_to_end_without_its_terminal(embedded: Embedded) -> None:
    embedded.cli("ls")
    goodbye = embedded.machine.temporary / "goodbye"
    script = f"trap 'sleep 1; echo said >{goodbye}; exit 0' HUP; echo ready; while :; do sleep 0.1; done"
    session = embedded.create(["sh", "-c", script])
    ready(session)
    embedded.machine.kill(server_of(embedded, session))
    assert ended(session)["Reason"].startswith("terminal server died (")
    assert goodbye.read_text() == "said\n"


def test_limits_are_those_of_the_unit(amux_everywhere: Amux) -> None:
    session = amux_everywhere.create(
        ENDLESS, memory_max=64 << 20, memory_high=48 << 20, cpu_quota=150, cpu_weight=50, tasks_max=33
    )
    names = ("MemoryMax", "MemoryHigh", "CPUQuotaPerSecUSec", "CPUWeight", "TasksMax", "OOMPolicy", "Slice")
    shown = amux_everywhere.machine.systemctl("show", f"--property={','.join(names)}", session.get("Unit"))
    assert dict(line.split("=", 1) for line in shown.splitlines()) == {
        "MemoryMax": str(64 << 20),
        "MemoryHigh": str(48 << 20),
        "CPUQuotaPerSecUSec": "1.500000s",
        "CPUWeight": "50",
        "TasksMax": "33",
        "OOMPolicy": "continue",
        "Slice": "amux.slice",
    }
    assert session.state == "running"


ALL_LIMITS = {"memory_max": 64 << 20, "memory_high": 48 << 20, "cpu_quota": 150, "cpu_weight": 50}
CONTROLLERS = {"memory_max": "memory", "memory_high": "memory", "cpu_quota": "cpu", "cpu_weight": "cpu"}


def test_a_limit_that_nothing_enforces_is_told(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    session = amux.create(ENDLESS, **ALL_LIMITS, tasks_max=33)
    unlimited = amux.create(ENDLESS)
    membership = amux.machine.run(["cat", f"/proc/{session.get('Pid')}/cgroup"]).stdout.splitlines()
    cgroup = next(line[3:] for line in membership if line.startswith("0::"))
    controllers = amux.machine.run(["cat", f"/sys/fs/cgroup{cgroup}/cgroup.controllers"]).stdout.split()
    needed = {**CONTROLLERS, "tasks_max": "pids"}
    wanted = [name for name, controller in needed.items() if controller not in controllers]
    for _ in range(2):
        assert sorted(session.get("LimitsNotEnforced")) == sorted(wanted)
        assert unlimited.get("LimitsNotEnforced") == []
        assert json.loads(amux.cli("show", "--json", session.id).stdout)["limits_not_enforced"] == (
            session.get("LimitsNotEnforced")
        )
        amux.restart()
        session.wait_state("running")
    session.stop()
    assert sorted(session.get("LimitsNotEnforced")) == sorted(wanted)


def test_which_limits_the_kernel_has_controllers_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    cgroup = tmp_path / "sys/fs/cgroup/amux.slice/amux-abc.service"
    cgroup.mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("1:name=systemd:/\n0::/amux.slice/amux-abc.service\n")
    limits, server = Limits(memory_max=1, cpu_weight=1, tasks_max=1), Process(7, 1)
    assert cgroups.not_enforced(limits, server) == ["memory_max", "cpu_weight", "tasks_max"]
    (cgroup / "cgroup.controllers").write_text("cpuset cpu io pids\n")
    assert cgroups.not_enforced(limits, server) == ["memory_max"]
    (cgroup / "cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroups.not_enforced(limits, server) == []


def test_without_systemd_no_limit_is_enforced(embedded: Embedded) -> None:
    begun = embedded.cli("run", "-n", "limited", "--memory-max", "1G", "--tasks-max", "9", "sleep", "1000")
    assert begun.stderr == "amux: nothing enforces memory_max, tasks_max: there is no systemd here\n"
    assert "Unenforced:  memory_max, tasks_max: there is no" in embedded.cli("show", "limited").stdout
    assert embedded.cli("run", "true").stderr == ""


FORGETFUL = """#!{python}
import sys
sys.path.insert(0, {repository!r})
from amuxd import daemon, processes
processes._GET_INFO = 0
daemon.main()
"""


def test_a_kernel_that_forgets_what_was_reaped(amux: Amux) -> None:
    daemon = made(
        amux.machine.base,
        "forgetful",
        FORGETFUL.format(python=amux.machine.bindir / "python3", repository=str(REPOSITORY)),
        0o755,
    )
    ends = [
        ("exit 0", end("completed", "exited with code 0", 0)),
        ("exit 3", end("failed", "exited with code 3", 3)),
        ("kill -SEGV $$", end("failed", "killed by SIGSEGV", signal="SIGSEGV")),
        ("kill -KILL $$", end("failed", "killed by SIGKILL", signal="SIGKILL")),
    ]
    with drop_in(amux, f"[Service]\nExecStart=\nExecStart={daemon}\n"), amux.events() as events:
        for script, wanted in ends * 3:
            session = amux.create(["sh", "-c", f"echo last words; {script}"])
            assert ended(session) == wanted
            assert certified(amux, events, session, wanted) == ["last words"]
            session.remove()
        session = amux.create(ENDLESS)
        ready(session)
        session.stop()
        assert session.state == "stopped"


def test_how_a_process_ended_is_read_before_and_after_it_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(script: str) -> tuple[subprocess.Popen[bytes], Process, int]:
        child = subprocess.Popen(["sh", "-c", script], cwd="/")
        process = processes.identify(child.pid)
        assert process is not None
        pidfd = processes.open_process(process)
        assert pidfd is not None
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        return child, process, pidfd

    child, process, pidfd = over("exit 3")
    kernel_keeps = processes._kept_status(pidfd, process) is not None
    monkeypatch.setattr(processes, "_GET_INFO", 0)
    assert processes.end_of(pidfd, process) == End(code=3)
    child.wait()
    assert processes.end_of(pidfd, process) is None
    os.close(pidfd)
    child, process, pidfd = over("ulimit -c 0; kill -SEGV $$")
    assert processes.end_of(pidfd, process) == End(signal="SIGSEGV", core_dumped=False)
    child.wait()
    monkeypatch.undo()
    if kernel_keeps:
        assert processes.end_of(pidfd, process) == End(signal="SIGSEGV", core_dumped=False)
    os.close(pidfd)


def test_killed_for_memory_as_the_kernel_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    server = subprocess.Popen(["sleep", "1000"])
    try:
        command, living = processes.identify(child.pid), processes.identify(server.pid)
        assert command is not None
        assert living is not None
        cgroup = tmp_path / "sys/fs/cgroup/amux.slice/amux-abc.service"
        membership = tmp_path / f"proc/{server.pid}/cgroup"
        cgroup.mkdir(parents=True)
        membership.parent.mkdir(parents=True)
        membership.write_text("0::/amux.slice/amux-abc.service\n")
        (cgroup / "memory.events").write_text("low 0\nhigh 9\nmax 4\noom 1\noom_kill 1\noom_group_kill 0\n")
        host = local.LocalHost(Bare(tmp_path), Store(tmp_path / "state"), tmp_path / "run", 1)
        monkeypatch.setattr(cgroups, "Path", lambda path: tmp_path / str(path).lstrip("/"))
        before = cgroups.memory_kills(living)
        assert before == 1
        pidfds = os.pidfd_open(child.pid), os.pidfd_open(server.pid)
        home = Home(command, living, *pidfds, memory_kills=before)
        child.kill()
        os.waitid(os.P_PIDFD, pidfds[0], os.WEXITED | os.WNOWAIT)
        record = Record("abc", "abc", ["x"], "/", 1, limits=Limits(memory_max=4 << 30))
        assert asyncio.run(host.end_of(record, 1, home)) == End(signal="SIGKILL", core_dumped=False)
        (cgroup / "memory.events").write_text("oom 2\noom_kill 2\n")
        told = asyncio.run(host.end_of(record, 1, home))
        assert told.describe() == "out of memory (limit 4G)"
        assert (told.signal, told.out_of_memory) == ("SIGKILL", True)
        home.close()
        # The same for an amuxd that was away when it happened, and knows what was counted before.
        standing = RunState("abc", State.SUSPENDED, 1, 1, 1, "", "", command=command, server=living)
        aware, later = replace(standing, memory_kills=1), replace(standing, memory_kills=2)
        assert asyncio.run(host.find(record, aware)) == Ended(told)
        assert asyncio.run(host.find(record, later)) == Ended(End(signal="SIGKILL", core_dumped=False))
    finally:
        for process in (child, server):
            process.kill()
            process.wait()


SYSTEMD_UNIT = "/org/freedesktop/systemd1/unit/amux_2dabc_2eservice"


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ([{"Result": ("s", "oom-kill"), "ExecMainCode": ("i", 2), "ExecMainStatus": ("i", 9)}], "memory"),
        ([{"ExecMainCode": ("i", 2), "ExecMainStatus": ("i", 9)}], "SIGKILL"),
        ([{"ExecMainCode": ("i", 3), "ExecMainStatus": ("i", 11)}], "SIGSEGV"),
        ([{"ExecMainCode": ("i", 1), "ExecMainStatus": ("i", 0)}], "it exited with code 0"),
        (
            [
                {"ActiveState": ("s", "deactivating"), "Job": ("(uo)", (7, "/job/7"))},
                {"ExecMainCode": ("i", 1), "ExecMainStatus": ("i", 0)},
            ],
            "stopped",
        ),
    ],
)
@in_loop
async def test_how_systemd_tells_of_a_terminal_server_that_ended(
    bus_daemon: BusDaemon, told: list[dict[str, Any]], wanted: str
) -> None:
    systemd = BusClient(bus_daemon.address)
    bus = await Bus.connect(bus_daemon.address)
    try:
        systemd.answers("Subscribe")
        systemd.request_name(units.SYSTEMD)
        enclosure = units.Units(bus)
        await enclosure.begin()
        await enclosure.watch("abc")
        # What a unit says at its begin is not its end.
        begin = {"ActiveState": ("s", "inactive"), "Job": ("(uo)", (6, "/job/6"))}
        last = {"ActiveState": ("s", "failed"), "Job": ("(uo)", (0, "/"))}
        running = {"ActiveState": ("s", "active"), "Job": ("(uo)", (0, "/"))}
        for changed in (begin, running):
            systemd.signal(SYSTEMD_UNIT, units.PROPERTIES, "PropertiesChanged", "sa{sv}as", ("", changed, []))
        asked = asyncio.create_task(enclosure.server_end("abc"))
        for changed in (*told, last):
            systemd.signal(SYSTEMD_UNIT, units.PROPERTIES, "PropertiesChanged", "sa{sv}as", ("", changed, []))
        others = {"memory": ServerEnd(out_of_memory=True), "stopped": ServerEnd(unit_stopped=True)}
        assert await asked == others.get(wanted, ServerEnd(wanted))
    finally:
        bus.close()
        systemd.close()


@in_loop
async def test_who_stops_a_unit_that_is_being_stopped_waits_for_the_same_end(bus_daemon: BusDaemon) -> None:
    systemd = BusClient(bus_daemon.address)
    bus = await Bus.connect(bus_daemon.address)
    try:
        systemd.answers("Subscribe")
        systemd.answers("StopUnit", "o", ("/job/8",))
        systemd.request_name(units.SYSTEMD)
        enclosure = units.Units(bus)
        await enclosure.begin()
        both = asyncio.gather(enclosure.stop("abc"), enclosure.stop("abc"))
        for _ in ("Subscribe", "StopUnit", "StopUnit"):
            await asyncio.to_thread(systemd.received.get, timeout=5)
        over = (8, "/job/8", "amux-abc.service", "done")
        systemd.signal(units.PATH, units.MANAGER, "JobRemoved", "uoss", over)
        async with asyncio.timeout(5):
            await both
    finally:
        bus.close()
        systemd.close()


@pytest.mark.parametrize(
    ("result", "wanted"),
    [("oom-kill", End(out_of_memory=True, memory_limit="4G")), ("signal", None)],
)
@in_loop
async def test_all_of_a_unit_ran_out_of_memory_while_nobody_watched(
    bus_daemon: BusDaemon, tmp_path: Path, result: str, wanted: End | None
) -> None:
    systemd = BusClient(bus_daemon.address)
    bus = await Bus.connect(bus_daemon.address)
    try:
        systemd.answers("Subscribe")
        systemd.answers("Get", "v", (("s", result),))
        systemd.request_name(units.SYSTEMD)
        enclosure = units.Units(bus)
        await enclosure.begin()
        host = local.LocalHost(enclosure, Store(tmp_path / "state"), tmp_path / "run", 1)
        record = Record("abc", "abc", ["x"], "/", 1, limits=Limits(memory_max=4 << 30))
        nobody = Process(2**22 + 1, 1)
        standing = RunState("abc", State.SUSPENDED, 1, 1, 1, "", "", command=nobody, server=nobody)
        assert await host.find(record, standing) == (Ended(wanted) if wanted else Gone())
    finally:
        bus.close()
        systemd.close()


def test_out_of_memory_is_a_known_end() -> None:
    assert End(out_of_memory=True).known
