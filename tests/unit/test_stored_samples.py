"""What earlier amuxds wrote, as it is stored here for ever, is what its names say."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amuxd.records import Workspace
from amuxd.states import End, State
from amuxd.store import Known, Store
from amuxd.workspaces.ledger import Ledger

STORED = Path(__file__).parent / "stored"
VERSIONS = sorted(path.name for path in STORED.iterdir() if path.is_dir() and path.name != "__pycache__")

Sample = Callable[[Known], bool]
SAMPLES: dict[str, Sample] = {
    "archived": lambda known: _ended(known, State.ARCHIVED) and known.state.previous is State.COMPLETED,
    "claude": lambda known: _talks(known) and not known.state.parked,
    "completed": lambda known: _ended(known, State.COMPLETED) and _end(known).success,
    "created": lambda known: known.state.state is State.CREATED and known.state.command is None,
    "failed": lambda known: (
        _ended(known, State.FAILED) and _end(known).code == 3 and _last_lines(known) == ["oh no"]
    ),
    "in a workspace": lambda known: _runs(known) and bool(known.session.workspace_id),
    "parked": lambda known: _talks(known) and known.state.parked and known.state.said is True,
    "restarted": lambda known: _ended(known, State.FAILED) and known.state.run == 2,
    "running": lambda known: (
        _runs(known)
        and known.session.description == "über ✨"
        and known.session.environment == {"LESS": "a\tb"}
        and known.session.limits.tasks_max == 99
    ),
    "stopped": lambda known: _ended(known, State.STOPPED) and _end(known).signal == "SIGTERM",
    "suspended": lambda known: (
        known.state.state is State.SUSPENDED
        and known.state.command is not None
        and known.session.resume == "auto"
    ),
    # The first that was stored; test_store.py reads all of it.
    "über ✨ build": lambda known: _ended(known, State.FAILED) and _end(known).signal == "SIGSEGV",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_session_is_what_it_is_named_for(tmp_path: Path, version: str) -> None:
    shutil.copytree(STORED / version, tmp_path, dirs_exist_ok=True)
    store = Store(tmp_path)
    for known in store.load_all():
        assert isinstance(known, Known), known
        name = known.session.name
        assert SAMPLES[name](known), (name, known)
        history = store.history(known.session.id)
        assert history[0].to_state is State.CREATED
        assert (history[-1].to_state, history[-1].at) == (known.state.state, known.state.state_changed_at)
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.json*")}
    stored = {
        path.relative_to(STORED / version): path.read_bytes() for path in (STORED / version).rglob("*.json*")
    }
    assert written == stored


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "v1"])
def test_a_slot_is_held_by_the_session_that_has_it(tmp_path: Path, version: str) -> None:
    shutil.copytree(STORED / version, tmp_path, dirs_exist_ok=True)
    store = Store(tmp_path)
    names = {known.session.id: known.session.name for known in store.load_all() if isinstance(known, Known)}
    assert set(names.values()) == set(SAMPLES) - {"über ✨ build"}
    [workspace] = Ledger(tmp_path, store, "boot").load_all()
    assert isinstance(workspace, Workspace)
    assert (workspace.name, workspace.slots, workspace.directory) == ("project", 1, "/home/ann/project")
    assert [names[place.session_id] for place in workspace.holders] == ["in a workspace"]


def test_what_was_stored_is_not_written_over() -> None:
    version = VERSIONS[0]
    made = subprocess.run(
        [sys.executable, STORED / "make.py", version], check=False, capture_output=True, text=True
    )
    assert made.returncode == 1
    assert made.stderr == f"{STORED / version} is there already, and stays as it is\n"


def _runs(known: Known) -> bool:
    return known.state.state is State.RUNNING and known.state.command is not None and not known.state.end


def _talks(known: Known) -> bool:
    resumes = known.state.conversation_id in known.state.agent_command
    return _runs(known) and known.session.agent == "claude" and resumes


def _ended(known: Known, state: State) -> bool:
    certificate = known.certificate
    assert certificate is not None
    return known.state.state is state and certificate.complete and certificate.run == known.state.run


def _end(known: Known) -> End:
    assert known.certificate is not None
    return known.certificate.end


def _last_lines(known: Known) -> list[str]:
    assert known.certificate is not None
    return known.certificate.last_lines
