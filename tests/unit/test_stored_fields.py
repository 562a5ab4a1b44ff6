"""What an older amuxd does to what is on disk, and that no field is added without a thought of that."""

import dataclasses
import json
from typing import Any

import pytest

from amuxd import records
from amuxd.records import NotReadable, from_text, to_text
from amuxd.states import End
from amuxd.stored import UNKNOWN, Stored

FIELDS = {
    "Allowed": "commands",
    "Certificate": "session_id run ended_at reason end last_lines complete ended_after conversation_id",
    "End": "code signal core_dumped out_of_memory memory_limit terminal_died unit_stopped not_started",
    "Ground": "command device inode mount",
    "HistoryEntry": "at run from_state to_state reason by",
    "LastWord": "session_id state_changed_at at why ended_at",
    "LastWords": "words",
    "Limits": "memory_max memory_high cpu_quota cpu_weight tasks_max",
    "Place": "session_id run taker taken_at waited",
    "Process": "pid started",
    "RunState": (
        "session_id state state_changed_at updated_by run boot_id reason previous changed_for workspace_id"
        " started_at alive_at stop_by command server memory_kills not_enforced last_activity_hash"
        " last_activity_at last_checked_at attention attention_message attention_at parked parked_at"
        " conversation_id resuming agent_command auto_boot auto_run auto_failures auto_lasted cut_short"
        " step_before end ended_after said parked_end parked_end_at ended_at ground known_at"
        " not_looked_into uptime_at_change"
    ),
    "Session": (
        "id name command directory created_at description agent workspace_id queue host image shell umask"
        " resume environment limits"
    ),
    "Workspace": (
        "id name directory created_at slots repository branch made_branch base being_made copied copied_from"
        " hook_failure search_path seen_on holders queue"
    ),
}

DECIDE = """
An amuxd of an earlier version does not know {added}, carries it along unchanged whatever it does to the rest,
and so may leave it untrue. Decide:
- It does no harm then, and a file without it is read as well: name it in FIELDS.
- It would: raise records.SCHEMA, with a step in MIGRATIONS, so that an earlier amuxd leaves such files alone.
Then store samples of the new version: tests/unit/stored/make.py.
""".replace("\n", " ").replace(" - ", "\n- ")


@pytest.mark.parametrize("kind", Stored.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_stored_field_was_decided_on(kind: type[Stored]) -> None:
    stored = {field.name for field in dataclasses.fields(kind)} - {UNKNOWN}
    decided = set(FIELDS.get(kind.__name__, "").split())
    added, missing = sorted(stored - decided), sorted(decided - stored)
    assert not added, DECIDE.format(added=f"{kind.__name__}.{', '.join(added)}")
    assert not missing, f"{kind.__name__} has no {missing}: an earlier amuxd may not read a file without it"


def test_what_is_stored_is_known_as_such() -> None:
    here = {kind for kind in vars(records).values() if dataclasses.is_dataclass(kind)}
    assert here - {Stored} == set(Stored.__subclasses__())


STATE: dict[str, Any] = {
    "schema": 1,
    "session_id": "k3x9qa",
    "state": "failed",
    "state_changed_at": 9,
    "updated_by": 1,
    "run": 1,
    "boot_id": "boot",
    "reason": "exited with code 1",
    "command": {"pid": 7, "started": 8, "namespace": "n"},
    "end": {"code": 1, "cause": {"by": ["whom"]}},
    "mood": "blue",
    # The name that this amuxd has for what it does not know.
    "unknown": None,
}
WORKSPACE: dict[str, Any] = {
    "schema": 1,
    "id": "w",
    "name": "fix",
    "directory": "/src",
    "created_at": 1,
    "holders": [
        {"session_id": "a", "run": 1, "taker": {"pid": 1, "started": 2, "x": 3}, "taken_at": 4, "y": 5}
    ],
    "z": 1.5,
}


@pytest.mark.parametrize(("kind", "plain"), [(records.RunState, STATE), (records.Workspace, WORKSPACE)])
def test_what_a_later_version_added_is_written_again(kind: type[Any], plain: dict[str, Any]) -> None:
    record = from_text(kind, json.dumps(plain))
    assert includes(json.loads(to_text(record)), plain)
    assert includes(json.loads(to_text(dataclasses.replace(record))), plain)


def includes(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and includes(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(includes, whole, part))
    return bool(whole == part)


def test_a_record_is_the_same_with_what_is_not_known() -> None:
    """A process that a later amuxd wrote down more of is no other."""
    state = from_text(records.RunState, json.dumps(STATE))
    assert state.command == records.Process(7, 8)
    assert state.end == End(code=1)


def test_a_later_schema_is_left_alone() -> None:
    with pytest.raises(NotReadable, match="of schema 2"):
        from_text(records.RunState, json.dumps(STATE | {"schema": 2}))
