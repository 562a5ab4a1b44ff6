"""What an amuxd of another version wrote: an older one's is read, and a newer one's left alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux

STORED = Path(__file__).parents[1] / "unit/stored"
LEFT_OUT = {"v1", "__pycache__"}


def test_what_an_older_one_wrote_is_all_there(amux: Amux) -> None:
    amux.stop()
    shutil.copytree(STORED / "v1", amux.state, dirs_exist_ok=True)
    amux.start()
    session = amux.session("über ✨ build")
    assert (session.state, session.get("ExitSignal"), session.get("CoreDumped")) == (
        "failed",
        "SIGSEGV",
        True,
    )
    assert [entry[3] for entry in session.call("History")] == ["created", "starting", "running", "failed"]
    assert session.certificate()["signal"] == "SIGSEGV"
    session.remove()
    assert amux.sessions() == {}


# What each is after the machine that it was on went down.
AFTERWARDS = {
    "archived": "archived",
    "claude": "suspended",
    "completed": "completed",
    "created": "created",
    "failed": "failed",
    # Its directory is not on this machine.
    # Its directory may only not be there yet.
    "in a workspace": "suspended",
    "parked": "running",
    "restarted": "failed",
    "running": "suspended",
    "stopped": "stopped",
    "suspended": "suspended",
}


@pytest.mark.parametrize(
    "version", sorted(path.name for path in STORED.iterdir() if path.is_dir() and path.name not in LEFT_OUT)
)
def test_what_an_older_one_left_goes_on(amux: Amux, version: str) -> None:
    amux.stop()
    shutil.copytree(STORED / version, amux.state, dirs_exist_ok=True)
    for path in amux.state.glob("sessions/*/session.json"):
        # Its home is not on this machine either.
        path.write_text(path.read_text().replace('"/home/ann"', '"/"').replace('"auto"', '"manual"'))
    amux.start()
    sessions = {amux.session(told["Name"]): told for told in amux.sessions(archived=("b", True)).values()}
    assert {told["Name"]: session.state for session, told in sessions.items()} == AFTERWARDS
    by_name = {told["Name"]: session for session, told in sessions.items()}
    assert by_name["parked"].get("Parked")
    assert by_name["restarted"].certificate(1)["exit_code"] == 4
    assert [line[3] for line in by_name["suspended"].call("History")][-1] == "suspended"
    for name in ("running", "suspended", "created"):
        by_name[name].call("Start" if name == "created" else "Restart")
        by_name[name].wait_state("running")
    for session in sessions:
        session.remove(force=True)
    assert amux.sessions(archived=("b", True)) == {}


@pytest.mark.parametrize("name", ["session.json", "state.json"])
def test_what_a_newer_one_wrote_is_shown_and_left_as_it_is(amux: Amux, name: str) -> None:
    session, other = amux.create(["sleep", "infinity"]), amux.create(["sleep", "infinity"])
    pid = session.get("Pid")
    amux.stop()
    path = amux.state / "sessions" / session.id / name
    former = path.read_text()
    newer = json.dumps(json.loads(former) | {"schema": 1000, "more": ["of", "it"]})
    path.write_text(newer)
    before = {file: file.read_bytes() for file in path.parent.rglob("*.json*")}
    amux.start()
    assert session.state == "unknown"
    assert "of schema 1000" in session.get("Reason")
    assert amux.sessions()[session.id]["State"] == "unknown"
    for verb in ("Start", "Restart", "Archive"):
        with pytest.raises(CallFailed, match="cannot be read"):
            session.call(verb)
    # Everything else works on.
    assert other.state == "running"
    other.stop()
    other.remove()
    assert {file: file.read_bytes() for file in path.parent.rglob("*.json*")} == before
    # The newer amuxd is back, and nothing has ended.
    amux.stop()
    path.write_text(former)
    amux.start()
    assert (session.state, session.get("Pid")) == ("running", pid)


def test_what_a_newer_one_added_is_still_there_for_it(amux: Amux) -> None:
    """Also what is written again: at the start, at the end, and in the place in a workspace."""
    project = amux.machine.home / "project"
    project.mkdir(exist_ok=True)
    amux.cli("ws", "add", "project", "--path", str(project))
    session = amux.create(["sleep", "infinity"], workspace="project", tasks_max=50)
    [workspace] = (amux.state / "workspaces").glob("*.json")
    directory = amux.state / "sessions" / session.id
    amux.stop()
    add(directory / "session.json", "limits")
    add(directory / "state.json", "command")
    add(workspace, "holders", 0)
    amux.start()
    assert session.state == "running"
    amux.restart()
    for path, nested in ((directory / "session.json", ["limits"]), (workspace, ["holders", 0])):
        assert added(path) == added(path, *nested) == ADDED
    assert added(directory / "state.json") == added(directory / "state.json", "command") == ADDED
    session.stop()
    assert added(directory / "state.json") == added(workspace) == ADDED
    session.remove()
    amux.cli("ws", "rm", "project")


ADDED = {"of": ["a", {"later": 1.5}], "none": None}


def add(path: Path, *nested: str | int) -> None:
    """To the record in the file, and to one in it."""
    record = json.loads(path.read_text())
    record["added"] = ADDED
    inner(record, *nested)["added"] = ADDED
    path.write_text(json.dumps(record))


def added(path: Path, *nested: str | int) -> object:
    return inner(json.loads(path.read_text()), *nested).get("added")


def inner(record: Any, *nested: str | int) -> Any:
    for key in nested:
        record = record[key]
    return record


def test_what_a_newer_one_wrote_of_an_earlier_run_is_said_to_be_newer(amux: Amux) -> None:
    session = amux.create(["true"], name="twice")
    session.wait_state("completed")
    session.certificate()
    session.call("Restart")
    session.wait_state("completed")
    session.certificate()
    directory = amux.state / "sessions" / session.id
    end, history = directory / "runs/1/exit.json", directory / "history.jsonl"
    end.write_text(json.dumps(json.loads(end.read_text()) | {"schema": 1000}))
    with pytest.raises(
        CallFailed, match=r"how run 1 of twice ended cannot be told: exit.json .*1000"
    ) as failed:
        session.certificate(1)
    assert failed.value.name == "org.amux.Amux1.Error.NotReadable"
    assert session.certificate()["exit_code"] == 0
    first, *rest = history.read_text().splitlines()
    history.write_text("\n".join([json.dumps(json.loads(first) | {"schema": 1000}), *rest, ""]))
    told = amux.cli("history", "twice", check=False)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        "amux: the history of twice cannot be told: a line of history.jsonl cannot be read:"
        " it is of schema 1000, and this amuxd reads up to 1\n"
    )
    assert not [line for line in amux.journal() if "Traceback" in line["MESSAGE"]]
