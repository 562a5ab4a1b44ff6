"""Slots and the queue, whatever becomes of those who hold one or wait for one."""

import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import Agents, Reboots, state_file
from harness.bus import Bus, CallFailed
from harness.client import BUS_NAME, Session
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"
FIRST, SECOND = (f"waiting for a slot in one ({place})" for place in ("1st", "2nd"))


@pytest.fixture
def one(amux: Amux) -> Path:
    """A worktree with a single slot."""
    top = amux.machine.temporary / "slots"
    shutil.rmtree(top, ignore_errors=True)
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repository(top / "code"))
    return Path(of_workspace(amux, "Directory"))


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


def run_in(amux: Amux, *command: str, **options: Any) -> Session:
    return amux.create(list(command) or ["sleep", "1000"], workspace="one", **options)


def talk_in(amux: Amux, **options: Any) -> Session:
    session = amux.create([], agent="standin", workspace="one", **options)
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    return session


def of_workspace(amux: Amux, name: str) -> Any:
    where = amux.manager.call("GetWorkspace", "s", "one")
    return amux.bus.proxy(BUS_NAME, where, WORKSPACE).get(name)


def test_a_resume_takes_a_slot_or_is_refused(amux: Amux, one: Path, agents: Agents) -> None:
    session = talk_in(amux, name="talk")
    session.stop()
    until(lambda: of_workspace(amux, "Holders") == [])
    holder = run_in(amux, name="holder")
    refused = amux.cli("resume", "talk", check=False)
    assert (refused.returncode, session.state, session.get("Run")) == (4, "stopped", 1)
    assert refused.stderr == f"amux: one has 1 slot, held by holder ({holder.id})\n"
    holder.stop()
    amux.cli("resume", "talk")
    until(lambda: "remembering ['first']" in session.log())
    assert of_workspace(amux, "Holders") == [session.id]


def test_a_resume_that_waits_is_a_resume_still_under_the_next_amuxd(
    amux: Amux, one: Path, agents: Agents
) -> None:
    session = talk_in(amux, queue=True)
    session.stop()
    holder = run_in(amux)
    session.call("Resume")
    assert (session.state, session.get("Reason"), session.get("Run")) == ("created", FIRST, 2)
    amux.restart()
    assert (session.state, session.get("Run")) == ("created", 2)
    holder.stop()
    session.wait_state("running")
    until(lambda: "remembering ['first']" in session.log())


@pytest.mark.parametrize("verb", ["Stop", "Archive", "Remove"])
def test_one_that_waits_is_put_away(amux: Amux, one: Path, verb: str) -> None:
    holder = run_in(amux)
    patient, last = run_in(amux, queue=True, name="patient"), run_in(amux, queue=True)
    if verb == "Stop":
        refused = amux.cli("stop", "patient", check=False)
        assert refused.returncode == 4
        assert "patient is created, stop is not possible" in refused.stderr
        assert "archive, rm" in refused.stderr
        patient.call("Archive")
    else:
        options: list[Any] = ["a{sv}", {}] if verb == "Remove" else []
        patient.call(verb, *options)
    until(lambda: last.get("Reason") == FIRST)
    assert of_workspace(amux, "Queue") == [last.id]
    holder.stop()
    last.wait_state("running")


def test_one_that_waits_is_not_started_out_of_its_turn(amux: Amux, one: Path) -> None:
    holder = run_in(amux)
    first, second = run_in(amux, queue=True), run_in(amux, queue=True)
    second.call("Start")
    assert (second.state, second.get("Reason")) == ("created", SECOND)
    holder.stop()
    first.wait_state("running")
    assert (second.state, of_workspace(amux, "Queue")) == ("created", [second.id])


def test_a_parked_session_is_orphaned_and_its_slot_given_back(amux: Amux, one: Path, agents: Agents) -> None:
    session = talk_in(amux)
    waiting = run_in(amux, queue=True)
    session.call("Park")
    assert (of_workspace(amux, "Holders"), waiting.state) == ([session.id], "created")
    amux.restart()
    assert (session.get("Parked"), of_workspace(amux, "Holders")) == (True, [session.id])
    aside = one.with_name("aside")
    one.rename(aside)
    session.wait_state("orphaned")
    until(lambda: of_workspace(amux, "Holders") == [])
    assert (session.get("Parked"), waiting.state) == (False, "created")
    waiting.call("Archive")
    assert "goodbye" in session.log()
    with pytest.raises(CallFailed, match="is orphaned"):
        session.send("second")
    aside.rename(one)
    until(lambda: of_workspace(amux, "Presence") == "present")
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())


def test_two_that_come_back_by_themselves_share_the_slot(amux: Amux, one: Path, agents: Agents) -> None:
    reboots = Reboots(amux)
    first = talk_in(amux, name="first", resume="auto")
    reboots.reboot(first)
    first.wait_state("running")
    first.stop()
    second = talk_in(amux, name="second", resume="auto")
    # On the boot before this one, it was the first that ran.
    amux.stop()
    state = state_file(amux, first)
    state.write_text(json.dumps(json.loads(state.read_text()) | {"state": "suspended"}))
    amux.start()
    reboots.reboot(first, second)
    states = {first: FIRST, second: FIRST}
    until(lambda: sorted(session.state for session in states) == ["created", "running"])
    running, waiting = sorted(states, key=lambda session: session.state, reverse=True)
    assert (waiting.get("Reason"), of_workspace(amux, "Holders")) == (FIRST, [running.id])
    until(lambda: "remembering ['first']" in running.log())
    # It is no second time that it comes back by itself, but the same one.
    amux.restart()
    assert (waiting.state, waiting.get("Reason")) == ("created", FIRST)
    running.stop()
    waiting.wait_state("running")
    until(lambda: "remembering ['first']" in waiting.log())
    assert "resume, as resume=auto wants it" in amux.cli("history", waiting.id).stdout


def test_one_that_comes_back_waits_behind_those_who_waited(amux: Amux, one: Path, agents: Agents) -> None:
    session = talk_in(amux, resume="auto")
    waiting = [run_in(amux, queue=True) for _ in range(2)]
    Reboots(amux).reboot(session, *waiting)
    waiting[0].wait_state("running")
    until(lambda: session.get("Reason") == SECOND)
    waiting[0].stop()
    waiting[1].wait_state("running")
    until(lambda: session.get("Reason") == FIRST)
    waiting[1].stop()
    session.wait_state("running")
    until(lambda: "remembering ['first']" in session.log())


def test_a_reboot_leaves_no_slot_taken(amux: Amux, one: Path) -> None:
    session = run_in(amux)
    Reboots(amux).reboot(session, in_order=False)
    assert session.state == "suspended"
    assert of_workspace(amux, "Holders") == []
    run_in(amux).wait_state("running")


class Aside:
    """A call that is under way while the test goes on, on a bus of its own."""

    def __init__(self, amux: Amux) -> None:
        self._amux = amux
        self._pool = ThreadPoolExecutor(4)

    def call(self, *arguments: Any) -> "Future[Any]":
        return self._pool.submit(self._call, *arguments)

    def _call(self, path: str, interface: str, member: str, *arguments: Any) -> Any:
        bus = Bus(self._amux.bus_address)
        try:
            return bus.proxy(BUS_NAME, path, interface).call(member, *arguments, timeout=60)
        finally:
            bus.close()


def test_a_removal_by_force_ends_those_who_wait(amux: Amux, one: Path) -> None:
    """The holder's end gives the next one a slot, while the workspace is on its way out."""
    run_in(amux)
    waiting = [run_in(amux, queue=True) for _ in range(3)]
    amux.cli("ws", "rm", "--force", "one")
    for session in waiting:
        assert session.wait_state("orphaned") == "orphaned"
        assert session.get("Run") == 1
    assert not one.exists()


def test_a_removal_and_a_start_do_not_wait_for_each_other(amux: Amux, one: Path) -> None:
    aside = Aside(amux)
    for number in range(10):
        name = f"w{number}"
        amux.cli("ws", "add", name, cwd=one)
        session = amux.create(["sleep", "1000"], workspace=name, start=False)
        where = amux.manager.call("GetWorkspace", "s", name)
        removal = aside.call(where, WORKSPACE, "Remove", "a{sv}", {})
        start = aside.call(f"/org/amux/Amux1/sessions/{session.id}", "org.amux.Amux1.Session", "Start")
        if removal.exception() is None:
            assert start.exception() is not None
            assert session.state in ("orphaned", "failed")
        else:
            assert "has live sessions" in str(removal.exception())
            assert (start.exception(), session.state) == (None, "running")


def test_a_removal_that_is_refused_lets_the_queue_go_on(amux: Amux, one: Path) -> None:
    holder = run_in(amux)
    waiting = run_in(amux, queue=True)
    (one / "work").write_text("x")
    inner = one / "inner"
    inner.mkdir()
    amux.cli("ws", "add", "inner", "--path", str(inner))
    aside = Aside(amux)
    where = amux.manager.call("GetWorkspace", "s", "one")
    refusals = [aside.call(where, WORKSPACE, "Remove", "a{sv}", {"force": ("b", True)}) for _ in range(3)]
    holder.call("Kill", "s", "SIGKILL")
    for refusal in refusals:
        assert isinstance(refusal.exception(), CallFailed)
    assert waiting.wait_state("running") == "running"


def test_what_runs_in_it_without_being_its_own_keeps_it(amux: Amux, one: Path) -> None:
    guest = amux.create(["sleep", "1000"], cwd=str(one), name="guest")
    for force in ((), ("--force",)):
        refused = amux.cli("ws", "rm", *force, "one", check=False)
        assert refused.returncode == 4
        assert refused.stderr == "amux: other live sessions work in one: guest (running)\n"
    guest.stop()
    amux.cli("ws", "rm", "one")


def test_an_attach_waits_for_its_turn(amux: Amux, one: Path) -> None:
    holder = run_in(amux)
    command = ("run", "-w", "one", "--queue", "-n", "patient", "--attach", "--", "sh", "-c")
    with amux.terminal(*command, "echo there; exec cat") as terminal:
        terminal.expect(FIRST)
        # It is told when amuxd comes back, too.
        amux.restart()
        holder.wait_state("running")
        holder.stop()
        terminal.expect("there")
    amux.session("patient").stop()


def test_whoever_waits_for_a_turn_hears_of_what_becomes_of_it(amux: Amux, one: Path) -> None:
    run_in(amux)
    for flag in ("--attach", "--wait"):
        with amux.terminal("run", "-w", "one", "--queue", "-n", "patient", flag, "--", "true") as terminal:
            terminal.expect(FIRST)
            terminal.type("\x03")
            assert "goes on" not in terminal.expect("has not begun")
            assert terminal.wait() == 130
        assert amux.session("patient").state == "created"
        amux.cli("rm", "patient")
        with amux.terminal("run", "-w", "one", "--queue", "-n", "patient", flag, "--", "true") as terminal:
            terminal.expect(FIRST)
            amux.cli("rm", "patient")
            terminal.expect("was removed")
            assert terminal.wait() == 3


@pytest.mark.parametrize("verb", ["restart", "resume"])
def test_of_one_that_only_got_a_place_in_the_queue_nothing_else_is_said(
    amux: Amux, one: Path, agents: Agents, verb: str
) -> None:
    session = talk_in(amux, name="talk", queue=True)
    session.stop()
    holder = run_in(amux)
    assert amux.cli(verb, "talk").stdout == f"talk ({session.id}): {FIRST}\n"
    refused = amux.cli("stop", "talk", check=False)
    assert refused.returncode == 4
    assert refused.stderr.endswith("; possible: archive, rm\n")
    limited = amux.cli("wait", "--timeout", "0.1s", "talk", check=False)
    assert limited.stderr == f"amux: talk ({session.id}) has not begun after 0.1s\n"
    holder.stop()
    session.wait_state("running")


def test_many_may_want_the_same_new_workspace(amux: Amux, one: Path) -> None:
    names = [f"crowd{number}" for number in range(6)]
    command = ("run", "-q", "-w", "common", "--create")
    running = [amux.popen(*command, "-n", name, "--", "sleep", "1000", cwd=one) for name in names]
    assert [process.wait(30) for process in running] == [0] * len(names)
    inside = amux.sessions(workspace=("s", "common"))
    assert sorted(properties["Name"] for properties in inside.values()) == names
    amux.cli("stop", *names)
