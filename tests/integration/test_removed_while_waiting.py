"""Sessions that wait for a slot in a workspace that is removed then."""

import json
from pathlib import Path

from agent_fixtures import state_file
from harness.client import Session
from harness.daemon import Amux
from harness.repositories import repository

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


def test_that_they_lose_their_place_is_said_first(amux: Amux, tmp_path: Path) -> None:
    repo = repository(tmp_path / "code")
    for how in (["--path", str(tmp_path)], ["--repo", str(repo)]):
        amux.cli("ws", "add", "one", "--slots", "1", *how)
        amux.create(["sleep", "1000"], workspace="one", name="holder")
        for name in ("second", "third"):
            amux.create(["true"], workspace="one", queue=True, name=name)
        assert amux.cli("ws", "rm", "one", check=False).returncode == 4
        assert amux.cli("ws", "rm", "--force", "one").stdout.splitlines() == [
            "one: throwing away what holder does (running): it is stopped",
            "one: throwing away the place of second in the queue: it is orphaned",
            "one: throwing away the place of third in the queue: it is orphaned",
            "removed one",
        ]
        assert amux.session("third").state == "orphaned"
        amux.cli("rm", "holder", "second", "third")


def test_nothing_of_an_end_is_said_of_one_that_never_began(amux: Amux, tmp_path: Path) -> None:
    holder, _ = waiting(amux, tmp_path)
    amux.cli("ws", "rm", "--force", "given")
    shown = amux.cli("show", "waits").stdout
    assert f"State:       orphaned: {WHY}\n" in shown
    assert "Ended:" not in shown
    assert "not known" not in amux.cli("show", "--run", "1", "waits").stdout
    assert "Ended:       SIGTERM, " in amux.cli("show", holder.id).stdout


def test_who_waited_is_told_by_the_next_amuxd_where_this_one_could_not(amux: Amux, tmp_path: Path) -> None:
    _, waits = waiting(amux, tmp_path)
    amux.kill()
    [file] = (amux.state / "workspaces").glob("*.json")
    file.unlink()
    amux.start()
    waits.wait_state("orphaned")
    assert waits.get("Reason") == WHY
    assert json.loads(state_file(amux, waits).read_text())["state"] == "orphaned"
