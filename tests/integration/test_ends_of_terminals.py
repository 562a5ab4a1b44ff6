"""The terminal server, or its unit, ends under the command."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
from pathlib import Path
from typing import Any

import pytest
from bus_fixtures import DEADLINE, BusDaemon, bus_daemon, in_loop  # noqa: F401
from bus_fixtures import Client as BusClient
from ends_fixtures import ENDLESS, certified, ended, ready, server_of
from harness.client import Client
from harness.daemon import Amux, Embedded

from amuxd.bus.connection import Bus
from amuxd.hosts import LaunchRefused, ServerEnd, units
from amuxd.records import Session


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
    assert "\tfailed (terminal died)\t" in anywhere.cli("ls").stdout
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
            await asyncio.to_thread(systemd.received.get, timeout=DEADLINE)
        over = (8, "/job/8", "amux-abc.service", "done")
        systemd.signal(units.PATH, units.MANAGER, "JobRemoved", "uoss", over)
        async with asyncio.timeout(DEADLINE):
            await both
    finally:
        bus.close()
        systemd.close()


@in_loop
async def test_who_waits_for_the_end_of_a_unit_that_is_stopped_meanwhile_waits_no_longer(
    bus_daemon: BusDaemon,
) -> None:
    systemd = BusClient(bus_daemon.address)
    bus = await Bus.connect(bus_daemon.address)
    try:
        systemd.answers("Subscribe")
        systemd.answers("StopUnit", "o", ("/job/8",))
        systemd.request_name(units.SYSTEMD)
        enclosure = units.Units(bus)
        await enclosure.begin()
        await enclosure.watch("abc")
        asked = asyncio.create_task(enclosure.server_end("abc"))
        stopped = asyncio.create_task(enclosure.stop("abc"))
        for _ in ("Subscribe", "StopUnit"):
            await asyncio.to_thread(systemd.received.get, timeout=DEADLINE)
        over = (8, "/job/8", "amux-abc.service", "done")
        systemd.signal(units.PATH, units.MANAGER, "JobRemoved", "uoss", over)
        await stopped
        async with asyncio.timeout(units.LEFTOVERS_GRACE):
            assert await asked == ServerEnd("")
    finally:
        bus.close()
        systemd.close()


@in_loop
async def test_a_unit_that_is_taken_away_as_it_starts_is_refused_with_what_is_known(
    bus_daemon: BusDaemon,
) -> None:
    systemd = BusClient(bus_daemon.address)
    bus = await Bus.connect(bus_daemon.address)
    try:
        systemd.answers("Subscribe")
        systemd.answers("StartTransientUnit", "o", ("/job/8",))
        systemd.answers("StopUnit", "o", ("/job/9",))
        systemd.request_name(units.SYSTEMD)
        enclosure = units.Units(bus)
        await enclosure.begin()
        session = Session("abc", "abc", ["true"], "/", 1)
        started = asyncio.create_task(enclosure.start(session, ["tmux"], Path("/server"), {}))
        for _ in ("Subscribe", "StartTransientUnit"):
            await asyncio.to_thread(systemd.received.get, timeout=DEADLINE)
        stopped = asyncio.create_task(enclosure.stop("abc"))
        await asyncio.to_thread(systemd.received.get, timeout=DEADLINE)
        for job, result in ((9, "done"), (8, "canceled")):
            over = (job, f"/job/{job}", "amux-abc.service", result)
            systemd.signal(units.PATH, units.MANAGER, "JobRemoved", "uoss", over)
        await stopped
        with pytest.raises(LaunchRefused, match=r"its terminal server did not start \(canceled\)"):
            await started
    finally:
        bus.close()
        systemd.close()
