"""A workspace of a directory that was another one's before: nothing of that one counts for it."""

import shutil
from pathlib import Path

import pytest
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"
# Less than until all directories are looked at, whatever is known of them.
SOON = 30.0


@pytest.fixture
def directory(amux: Amux) -> Path:
    """Of which an earlier workspace was, while a session needed it."""
    directory = amux.machine.temporary / "in-turn/here"
    shutil.rmtree(directory.parent, ignore_errors=True)
    directory.mkdir(parents=True)
    amux.cli("ws", "add", "earlier", "--path", str(directory))
    amux.create(["true"], workspace="earlier", start=False)
    until(lambda: presence(amux, "earlier") == "present", SOON)
    amux.cli("ws", "rm", "earlier")
    return directory


def presence(amux: Amux, name: str) -> object:
    return amux.bus.proxy(BUS_NAME, amux.manager.call("GetWorkspace", "s", name), WORKSPACE).get("Presence")


def test_its_queue_goes_on_as_soon_as_a_slot_is_free(amux: Amux, directory: Path) -> None:
    amux.cli("ws", "add", "later", "--path", str(directory), "--slots", "1")
    holder = amux.create(["sleep", "1000"], workspace="later")
    waiting = amux.create(["sleep", "1000"], workspace="later", queue=True)
    holder.stop()
    assert waiting.wait_state("running", timeout=SOON) == "running"
    assert presence(amux, "later") == "present"


def test_what_came_in_the_place_of_the_earlier_ones_is_its_own(amux: Amux, directory: Path) -> None:
    directory.rename(directory.with_name("aside"))
    directory.mkdir()
    amux.cli("ws", "add", "later", "--path", str(directory))
    created = amux.create(["true"], workspace="later", start=False)
    running = amux.create(["sleep", "1000"], workspace="later")
    until(lambda: presence(amux, "later") == "present", SOON)
    assert (created.state, running.state) == ("created", "running")
    shutil.rmtree(directory)
    assert created.wait_state("orphaned", timeout=SOON) == "orphaned"
    assert running.wait_state("orphaned", timeout=SOON) == "orphaned"
