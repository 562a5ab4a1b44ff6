"""What stood in the way of a queue is gone, and the next one starts at that, not at some later look."""

from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import state_file
from harness.bus import CallFailed
from harness.client import BUS_NAME, Session
from harness.daemon import Amux
from harness.small_disks import read_only
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"
AGENT = '[agents.mine]\nstart = ["sleep", "1000"]\n'


@pytest.fixture
def here(amux: Amux, tmp_path: Path) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(AGENT)
    amux.manager.call("Reload")
    amux.cli("ws", "add", "here", "--path", str(tmp_path), "--slots", "1")


def run_in(amux: Amux, *command: str, **options: Any) -> Session:
    return amux.create(list(command), workspace="here", **options)


@pytest.mark.usefixtures("here")
def test_a_session_that_cannot_be_read_and_is_dead_holds_nothing(amux: Amux) -> None:
    session = run_in(amux, "sleep", "1000")
    waiting = run_in(amux, "sleep", "1000", queue=True)
    amux.stop()
    amux.machine.systemctl("kill", "--signal=SIGKILL", f"amux-{session.id}.service")
    state_file(amux, session).write_text("{")
    amux.start()
    assert waiting.wait_state("running") == "running"
    assert (session.get("State"), session.get("HostAlive")) == ("unknown", "dead")


@pytest.mark.usefixtures("here")
def test_a_session_that_cannot_be_read_and_lives_keeps_its_slot_while_it_does(amux: Amux) -> None:
    session = run_in(amux, "sleep", "1000")
    waiting = run_in(amux, "sleep", "1000", queue=True)
    amux.stop()
    state_file(amux, session).write_text("{")
    amux.start()
    with pytest.raises(CallFailed, match="held by"):
        run_in(amux, "true")
    assert waiting.state == "created"
    amux.cli("stop", session.id)
    assert waiting.wait_state("running") == "running"


@pytest.mark.usefixtures("here")
def test_an_agent_starts_once_its_profile_can_be_read(amux: Amux) -> None:
    holder = run_in(amux, "sleep", "1000")
    agent = run_in(amux, agent="mine", queue=True)
    behind = run_in(amux, "true", queue=True)
    amux.stop()
    amux.config.write_text("broken [\n")
    amux.start()
    holder.wait_state("running")
    holder.stop()
    refused = "mine was not started from the queue"
    until(lambda: any(refused in line["MESSAGE"] for line in amux.journal()))
    first, second = (f"waiting for a slot in here ({place})" for place in ("1st", "2nd"))
    obstacle = "cannot begin: agent 'mine' is not known while the configuration is wrong: "
    until(lambda: agent.get("Reason").startswith(f"{first}; {obstacle}"))
    assert behind.get("Reason") == second
    assert "created (waiting for a slot)" in amux.cli("ls").stdout
    assert obstacle in amux.cli("show", agent.id).stdout
    amux.config.write_text(AGENT)
    amux.manager.call("Reload")
    assert agent.wait_state("running") == "running"
    assert behind.state == "created"
    until(lambda: behind.get("Reason") == first)
    agent.stop()
    assert behind.wait_state("completed") == "completed"


@pytest.mark.usefixtures("here")
def test_one_that_cannot_be_read_keeps_its_place_and_holds_up_nobody(amux: Amux) -> None:
    holder = run_in(amux, "sleep", "1000")
    first, second, third = (run_in(amux, "sleep", "1000", queue=True) for _ in range(3))
    amux.stop()
    file = state_file(amux, first)
    text = file.read_text()
    file.write_text(text.replace('"schema":1', '"schema":99'))
    amux.start()
    until(lambda: third.get("Reason") == "waiting for a slot in here (2nd)")
    assert second.get("Reason") == "waiting for a slot in here (1st)"
    holder.wait_state("running")
    with pytest.raises(CallFailed, match=rf"waiting before you: sleep-3 \({second.id}\), sleep-4"):
        run_in(amux, "true")
    # Also where its file is whole again, and amuxd does not know that yet.
    file.write_text(text)
    holder.stop()
    assert second.wait_state("running") == "running"
    assert third.state == "created"
    assert first.get("State") == "unknown"
    amux.restart()
    until(lambda: first.get("Reason") == "waiting for a slot in here (1st)")
    until(lambda: third.get("Reason") == "waiting for a slot in here (2nd)")
    second.wait_state("running")
    second.stop()
    assert first.wait_state("running") == "running"
    assert third.state == "created"


@pytest.mark.usefixtures("here")
def test_one_that_could_not_be_read_and_is_removed_has_no_place(amux: Amux) -> None:
    run_in(amux, "sleep", "1000")
    first, second = (run_in(amux, "sleep", "1000", queue=True) for _ in range(2))
    amux.stop()
    state_file(amux, first).write_text("{")
    amux.start()
    queue = amux.bus.proxy(BUS_NAME, amux.manager.call("GetWorkspace", "s", "here"), WORKSPACE)
    assert queue.get("Queue") == [first.id, second.id]
    amux.cli("rm", "-f", first.id)
    second.remove()
    until(lambda: queue.get("Queue") == [])


@pytest.mark.usefixtures("here")
def test_a_place_that_cannot_be_told_to_its_session_holds_all_the_same(amux: Amux) -> None:
    holder = run_in(amux, "sleep", "1000")
    session = run_in(amux, "sleep", "1000", queue=True, start=False)
    behind = run_in(amux, "sleep", "1000", queue=True, start=False)
    with read_only(amux, amux.state / "sessions" / session.id):
        session.call("Start")
        assert (session.state, session.get("Reason")) == ("created", "created")
        behind.call("Start")
        assert behind.get("Reason") == "waiting for a slot in here (2nd)"
        logged = f"of {session.get('Name')} it cannot be told what it waits for"
        until(lambda: any(logged in line["MESSAGE"] for line in amux.journal()))
    until(lambda: session.get("Reason") == "waiting for a slot in here (1st)")
    holder.stop()
    assert session.wait_state("running") == "running"
    assert behind.state == "created"


def test_a_place_that_cannot_be_told_holds_also_while_the_directory_is_away(
    amux: Amux, here: None, tmp_path: Path
) -> None:
    holder = run_in(amux, "sleep", "1000")
    session, behind = (run_in(amux, "sleep", "1000", queue=True, start=False) for _ in range(2))
    aside = tmp_path.with_name("aside")
    waits, outlook = "waiting for a slot in here", f"; begins once {tmp_path} is there"
    with read_only(amux, amux.state / "sessions" / session.id):
        session.call("Start")
        behind.call("Start")
        assert session.get("Reason") == "created"
        assert "start" not in session.get("Possible")
        tmp_path.rename(aside)
        holder.wait_state("orphaned")
        until(lambda: behind.get("Reason") == f"{waits} (2nd){outlook}")
        assert (session.state, session.get("Unwritten")) == ("created", "")
    until(lambda: session.get("Reason") == f"{waits} (1st){outlook}")
    names = rf"{session.get('Name')} \({session.id}\), {behind.get('Name')} \({behind.id}\)"
    why = f": here has 1 slot; waiting before you: {names}; {tmp_path} is not there$"
    with pytest.raises(CallFailed, match=why):
        run_in(amux, "true")
    aside.rename(tmp_path)
    assert session.wait_state("running") == "running"
    assert behind.state == "created"
