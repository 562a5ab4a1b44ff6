"""Sessions that wait for a slot in a workspace that is removed then."""

import json
from pathlib import Path

from agent_fixtures import state_file
from harness.client import Session
from harness.daemon import Amux

WHY = "its workspace was removed while it waited for a slot in it"


def waiting(amux: Amux, directory: Path) -> tuple[Session, Session]:
    amux.cli("ws", "add", "given", "--path", str(directory), "--slots", "1")
    holder = amux.create(["sleep", "1000"], workspace="given")
    waits = amux.create(["sleep", "1000"], workspace="given", queue=True, name="waits")
    assert (waits.state, waits.get("Reason")) == ("created", "waiting for a slot in given (1st)")
    return holder, waits


def test_who_waits_in_a_directory_that_was_given_is_told(amux: Amux, tmp_path: Path) -> None:
    holder, waits = waiting(amux, tmp_path)
    not_started = amux.create(["sleep", "1000"], workspace="given", start=False)
    waiter = amux.popen("wait", "waits")
    amux.cli("ws", "rm", "--force", "given")
    assert (waits.state, waits.get("Reason")) == ("orphaned", WHY)
    assert waiter.wait(30) == 1
    assert (holder.state, not_started.state) == ("stopped", "created")
    # The directory is still there.
    amux.cli("restart", "waits")
    assert waits.state == "running"


def test_who_waited_is_told_by_the_next_amuxd_where_this_one_could_not(amux: Amux, tmp_path: Path) -> None:
    _, waits = waiting(amux, tmp_path)
    amux.kill()
    [file] = (amux.state / "workspaces").glob("*.json")
    file.unlink()
    amux.start()
    waits.wait_state("orphaned")
    assert waits.get("Reason") == WHY
    assert json.loads(state_file(amux, waits).read_text())["state"] == "orphaned"
