"""resume=auto: after a reboot a session comes back by itself, once, and not for ever."""

import pytest
from agent_fixtures import Agents, Reboots, state_on_disk
from harness.daemon import Amux
from harness.waiting import until


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


@pytest.fixture
def machine_reboots(amux: Amux) -> Reboots:
    return Reboots(amux)


def test_once_a_boot(amux: Amux, agents: Agents, machine_reboots: Reboots) -> None:
    session, manual = agents.create(resume="auto"), agents.create()
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    machine_reboots.reboot(session, manual)
    session.wait_state("running")
    until(lambda: "remembering ['first']" in session.log())
    assert manual.state == "suspended"
    assert "resume, as resume=auto wants it" in amux.cli("history", session.id).stdout
    # The same boot: what ends now has ended.
    amux.stop()
    amux.machine.systemctl("stop", "amux-*.service")
    amux.start()
    assert session.state == "suspended"
    assert session.get("Run") == 2


def test_a_plain_command_begins_again(amux: Amux, machine_reboots: Reboots) -> None:
    amux.cli("run", "--resume", "auto", "-n", "server", "--", "sleep", "1000")
    session = amux.session("server")
    machine_reboots.reboot(session)
    session.wait_state("running")
    assert session.get("Run") == 2


def test_after_three_failures_in_a_row_it_is_left_alone(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    """Each time the machine goes down soon after, without a word: it may be the session that does it."""
    session = agents.create(resume="auto")
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    for run in (2, 3, 4):
        machine_reboots.reboot(session, in_order=False)
        until(lambda: session.get("Run") == run)  # noqa: B023
        session.wait_state("running")
    machine_reboots.reboot(session, in_order=False)
    why = "not resumed by itself: 3 times in a row it failed, or the machine went down within 5 minutes"
    until(lambda: why in session.get("Reason"))
    assert session.state == "suspended"
    amux.restart()
    assert session.get("Reason").count("not resumed by itself") == 1
    # A person's word begins the count anew.
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())
    assert state_on_disk(amux, session)["auto_failures"] == 0
    machine_reboots.reboot(session)
    session.wait_state("running")


def test_a_machine_that_is_shut_down_in_order_is_no_failure(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    session = agents.create(resume="auto")
    for run in (2, 3, 4, 5):
        machine_reboots.reboot(session)
        until(lambda: session.get("Run") == run)  # noqa: B023
        session.wait_state("running")
    assert state_on_disk(amux, session)["auto_failures"] == 0


def test_a_run_that_failed_is_tried_again_on_the_next_boot(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    session = agents.create(resume="auto")
    agents.configure(extra=("--refuse",))
    for run in (2, 3, 4):
        machine_reboots.reboot(session)
        until(lambda: session.get("Run") == run)  # noqa: B023
        session.wait_state("failed")
    machine_reboots.reboot(session)
    until(lambda: "not resumed by itself" in session.get("Reason"))
    assert (session.state, session.get("Run")) == ("failed", 4)


def test_a_run_that_lasted_and_failed_then_is_not_begun_again(amux: Amux, machine_reboots: Reboots) -> None:
    ended, other = (amux.create(["sleep", "infinity"], cwd="/", resume="auto") for _ in range(2))
    machine_reboots.reboot(ended, other)
    for session in (ended, other):
        until(lambda: (session.state, session.get("Run")) == ("running", 2))  # noqa: B023
    ended.call("Kill", "s", "SIGKILL")
    ended.wait_state("failed")
    ended.certificate()
    machine_reboots.reboot(ended, other, auto_lasted=True)
    until(lambda: (other.state, other.get("Run")) == ("running", 3))
    assert (ended.state, ended.get("Run")) == ("failed", 2)


def test_one_that_cannot_be_resumed_stays_suspended(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    session = agents.create(resume="auto")
    agents.configure(resume=[])
    machine_reboots.reboot(session)
    until(lambda: any("is not resumed by itself: standin" in line["MESSAGE"] for line in amux.journal()))
    assert (session.state, session.get("Run")) == ("suspended", 1)


def test_one_that_cannot_be_written_stays_suspended(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    session = agents.create(resume="auto")
    amux.stop()
    lock = amux.state / "sessions" / session.id / ".lock"
    lock.unlink()
    lock.mkdir()
    machine_reboots.reboot(session)
    until(lambda: any("does not come back by itself" in line["MESSAGE"] for line in amux.journal()))
    assert (session.state, session.get("Run")) == ("suspended", 1)
