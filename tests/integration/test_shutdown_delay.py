"""What amuxd does about a shutdown that logind announces, calls off, or does not let it delay."""

import contextlib
import json
import os
import re
from collections.abc import Iterator

import pytest
from agent_fixtures import Agents
from harness.daemon import Amux
from harness.logind import Logind, address_in
from harness.machine import Machine
from harness.waiting import until


@pytest.fixture
def logind(shared_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Logind]:
    logind = Logind(shared_machine, allows=getattr(request, "param", True))
    shared_machine.systemctl("set-environment", f"DBUS_SYSTEM_BUS_ADDRESS={address_in(shared_machine)}")
    try:
        yield logind
    finally:
        shared_machine.systemctl("unset-environment", "DBUS_SYSTEM_BUS_ADDRESS")
        logind.close()


@pytest.fixture
def delaying(logind: Logind, amux: Amux) -> Logind:
    """With an amuxd that was started when logind was there."""
    return logind


def test_it_is_delayed_for_as_long_as_anything_runs(delaying: Logind, amux: Amux) -> None:
    first, second = amux.create(["sleep", "infinity"]), amux.create(["sleep", "infinity"])
    until(delaying.is_delayed)
    first.stop()
    assert delaying.is_delayed()
    second.stop()
    until(lambda: not delaying.is_delayed())
    assert delaying.asked == [("shutdown", "amux", "sessions are marked suspended first", "delay")]
    second.call("Restart")
    until(delaying.is_delayed)
    amux.stop()
    assert not delaying.is_delayed()


def test_no_descriptor_of_amuxds_is_for_what_it_begins(delaying: Logind, amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"])
    session.wait_state("running")
    until(delaying.is_delayed)
    flags = {}
    for open_ in amux.machine.outside(f"/proc/{amux.pid}/fdinfo").iterdir():
        # It may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            flags[int(open_.name)] = int(
                re.findall(r"^flags:\s*(\d+)", open_.read_text(), re.MULTILINE)[0], 8
            )
    assert len(flags) > 10
    assert [number for number, of in flags.items() if number > 2 and not of & os.O_CLOEXEC] == []


def test_all_are_suspended_before_it_goes_on_and_run_if_it_is_called_off(
    delaying: Logind, amux: Amux
) -> None:
    agents = Agents(amux)
    agents.configure()
    parked = agents.create()
    parked.send("apples")
    until(lambda: "heard 1: apples" in parked.log())
    parked.call("Park")
    sessions = [amux.create(["sleep", "infinity"]) for _ in range(3)]
    pids = [session.get("Pid") for session in sessions]
    until(delaying.is_delayed)
    delaying.announce(True)
    until(lambda: not delaying.is_delayed())
    for session in sessions:
        stored = json.loads((amux.state / "sessions" / session.id / "state.json").read_text())
        assert (stored["state"], stored["reason"]) == ("suspended", "the machine was shut down")
        assert session.get("SessionAlive") == "alive"
    assert parked.state == "suspended"
    # What ends in between has ended, and is not suspended.
    amux.machine.kill(pids[0])
    sessions[0].wait_state("failed")
    delaying.announce(False)
    for session in [parked, *sessions[1:]]:
        session.wait_state("running")
    assert parked.get("Parked")
    until(delaying.is_delayed)
    assert [session.get("Pid") for session in sessions[1:]] == pids[1:]
    assert sessions[0].state == "failed"


@pytest.mark.parametrize("logind", [False], indirect=True)
def test_a_refusal_is_told_and_nothing_else_comes_of_it(delaying: Logind, amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"])
    until(lambda: "a shutdown will not wait for amuxd: not you" in json.dumps(amux.journal()))
    assert session.state == "running"
    assert not delaying.is_delayed()
