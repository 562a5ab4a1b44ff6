"""A session's limits: set on its unit, told where nothing enforces them, and as the reason of an end."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bus_fixtures import BusDaemon, bus_daemon, in_loop  # noqa: F401
from bus_fixtures import Client as BusClient
from ends_fixtures import ENDLESS
from harness.daemon import Amux, Embedded
from harness.kernel_files import cgroups_below

from amuxd import processes
from amuxd.bus.connection import Bus
from amuxd.hosts import Ended, Gone, Home, cgroups, local, units
from amuxd.hosts.bare import Bare
from amuxd.records import Limits, Process, RunState
from amuxd.records import Session as Record
from amuxd.states import End, State
from amuxd.store import Store


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


def test_where_processors_are_scarce_what_tells_of_sessions_comes_first(amux_everywhere: Amux) -> None:
    systemctl = amux_everywhere.machine.systemctl

    def weight_of_slice(unit: str) -> int:
        of = systemctl("show", "--value", "--property=Slice", unit)
        return int(systemctl("show", "--value", "--property=CPUWeight", of))

    session = amux_everywhere.create(ENDLESS)
    assert weight_of_slice(session.get("Unit")) < weight_of_slice("amuxd.service")


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
    cgroups_below(tmp_path, monkeypatch)
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
        cgroups_below(tmp_path, monkeypatch)
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
        # As it was when amuxd could read nothing of it.
        (cgroup / "memory.events").unlink()
        asyncio.run(host.signal(home, 0, False))
        assert home.memory_kills == before
        (cgroup / "memory.events").write_text("oom 2\noom_kill 2\n")
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
