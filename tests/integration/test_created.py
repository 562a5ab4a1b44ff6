"""Sessions that were only created: what is offered for them, and what begins them."""

import pytest
from harness.client import Session
from harness.daemon import Amux

READY = ["sh", "-c", "echo ready; exec cat"]


@pytest.fixture
def session(amux: Amux) -> Session:
    return amux.create(READY, name="later", start=False)


def next_steps(session: Session) -> str:
    return session.amux.cli("show", session.id).stdout.splitlines()[-1].removeprefix("Next:").strip()


def test_what_is_offered_works(session: Session) -> None:
    amux = session.amux
    assert next_steps(session) == f"amux start|archive|rm {session.id}"
    refused = amux.cli("restart", "later", check=False)
    assert refused.returncode == 4
    assert refused.stderr.endswith("; possible: start, archive, rm\n")
    assert amux.cli("attach", "later", check=False).stderr == (
        f"amux: later ({session.id}) is created\n      amux start {session.id}, amux archive {session.id}\n"
    )
    assert amux.cli("start", "later").stdout == f"started later ({session.id})\n"
    assert (session.state, session.get("Run")) == ("running", 1)
    assert next_steps(session) == f"amux attach|send|stop|logs {session.id}"
    again = amux.cli("start", "later", check=False)
    assert again.returncode == 4
    assert "later is running, start is not possible (from running to starting)" in again.stderr


def test_who_attaches_can_start_it(session: Session) -> None:
    with session.amux.terminal("attach", "later", columns=100) as terminal:
        terminal.expect("[S] Start  [T] Teardown (archive for good)  [C] Cancel")
        terminal.type("s")
        terminal.expect("ready")
        terminal.expect("detaches")
    assert session.state == "running"


def test_one_that_was_put_away_has_printed_nothing(session: Session) -> None:
    session.call("Archive")
    assert next_steps(session) == f"amux rm {session.id}"
    assert session.amux.cli("logs", "later").stdout == ""


def test_one_that_waits_for_a_slot_needs_nobody_to_start_it(amux: Amux) -> None:
    amux.cli("ws", "add", "one", "--path", str(amux.machine.home), "--slots", "1")
    first = amux.create(READY, workspace="one")
    session = amux.create(READY, name="later", workspace="one", queue=True)
    assert next_steps(session) == f"amux archive|rm {session.id}"
    waits = f"later ({session.id}): waiting for a slot in one (1st)\n"
    assert amux.cli("start", "later").stdout == waits
    first.stop()
    session.wait_state("running")


def test_one_that_finds_no_slot_is_refused(amux: Amux) -> None:
    amux.cli("ws", "add", "one", "--path", str(amux.machine.home), "--slots", "1")
    amux.create(READY, name="first", workspace="one")
    session = amux.create(READY, name="later", workspace="one", start=False)
    refused = amux.cli("start", "later", check=False)
    assert (refused.returncode, session.state) == (4, "created")
    assert "one has 1 slot, held by first" in refused.stderr


def test_a_run_is_told_of_once_it_has_begun(amux: Amux) -> None:
    def has_run(name: str) -> bool:
        return "\nRun:         1\n" in amux.cli("show", name).stdout

    amux.cli("ws", "add", "one", "--path", str(amux.machine.home), "--slots", "1")
    first = amux.create(READY, name="first", workspace="one")
    later = amux.create(READY, name="later", workspace="one", queue=True)
    failed = amux.create(["/nowhere/program"], name="failed")
    failed.wait_state("failed")
    assert [has_run(name) for name in ("first", "later", "failed")] == [True, False, True]
    first.stop()
    later.wait_state("running")
    assert has_run("later")
    queued = amux.create(READY, name="queued", workspace="one", queue=True)
    for session in (first, queued, failed):
        session.call("Archive")
    assert [has_run(name) for name in ("first", "queued", "failed")] == [True, False, True]
