"""A session whose files are deleted works on in its workspace: its slot is its own while it does."""

from pathlib import Path
from typing import Any

import pytest
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until


@pytest.fixture
def directory(amux: Amux, tmp_path: Path) -> Path:
    """Of a worktree with a single slot."""
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repository(tmp_path / "code"))
    return Path(of_workspace(amux, "Directory"))


def of_workspace(amux: Amux, name: str) -> Any:
    where = amux.manager.call("GetWorkspace", "s", "one")
    return amux.bus.proxy(BUS_NAME, where, "org.amux.Amux1.Workspace").get(name)


def refused(amux: Amux, *words: str) -> str:
    done = amux.cli(*words, check=False)
    assert done.returncode != 0
    return done.stderr


def test_while_amuxd_is_away(amux: Amux, directory: Path) -> None:
    session = amux.create(["sleep", "1000"], workspace="one", name="lost")
    amux.stop()
    session.delete_files()
    amux.start()
    assert of_workspace(amux, "Holders") == [session.id]
    assert "one has 1 slot, held by" in refused(amux, "run", "-w", "one", "--", "true")
    for force in ((), ("--force",)):
        assert "sessions that cannot be read may be at work in one: lost" in refused(
            amux, "ws", "rm", "one", *force
        )
    assert directory.exists()
    waiting = amux.create(["true"], workspace="one", queue=True)
    assert waiting.state == "created"
    # Its end is an event also to those who wait for its slot.
    amux.cli("stop", session.id)
    assert waiting.wait_state("completed") == "completed"
    amux.cli("ws", "rm", "one")
    assert not directory.exists()


def test_under_amuxd(amux: Amux, directory: Path) -> None:
    session = amux.create(["sleep", "1000"], workspace="one", name="lost")
    session.delete_files()
    assert "one has 1 slot, held by lost" in refused(amux, "run", "-w", "one", "--", "true")
    assert "one has live sessions: lost (running)" in refused(amux, "ws", "rm", "one")
    amux.cli("stop", session.id)
    until(lambda: of_workspace(amux, "Holders") == [])
    assert amux.create(["true"], workspace="one").wait_state("completed") == "completed"
