"""What stood in the way of a queue is gone, and the next one starts at that, not at some later look."""

from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import state_file
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

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
    amux.config.write_text(AGENT)
    amux.manager.call("Reload")
    assert agent.wait_state("running") == "running"
    assert behind.state == "created"
    agent.stop()
    assert behind.wait_state("completed") == "completed"
