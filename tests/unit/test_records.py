import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd import records
from amuxd.records import (
    SCHEMA,
    Certificate,
    HistoryEntry,
    HostKind,
    Limits,
    NotReadable,
    Process,
    ResumePolicy,
    RunState,
    Session,
    Workspace,
    from_text,
    to_text,
)
from amuxd.states import End, State

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**62)
maybe_number = st.none() | numbers
processes = st.none() | st.builds(Process, numbers, numbers)
ends = st.builds(
    End,
    code=maybe_number,
    signal=st.none() | words,
    core_dumped=st.none() | st.booleans(),
    out_of_memory=st.booleans(),
    memory_limit=words,
    terminal_died=words,
    unit_stopped=st.booleans(),
    not_started=words,
)
any_record: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        Session,
        id=words,
        name=words,
        command=st.lists(words),
        directory=words,
        created_at=numbers,
        host=st.sampled_from(HostKind),
        resume=st.sampled_from(ResumePolicy),
        shell=st.booleans(),
        environment=st.dictionaries(words, words),
        limits=st.builds(Limits, maybe_number, maybe_number, maybe_number, maybe_number, maybe_number),
    ),
    st.builds(
        RunState,
        session_id=words,
        state=st.sampled_from(State),
        state_changed_at=numbers,
        updated_by=numbers,
        run=numbers,
        boot_id=words,
        reason=words,
        previous=st.none() | st.sampled_from(State),
        command=processes,
        server=processes,
        parked=st.booleans(),
    ),
    st.builds(HistoryEntry, numbers, numbers, st.none(), st.sampled_from(State), words, words),
    st.builds(Certificate, words, numbers, numbers, words, ends, st.lists(words), st.booleans()),
)


@given(any_record)
def test_a_record_comes_back_as_it_went(record: Any) -> None:
    text = to_text(record)
    assert text.count("\n") == 1
    assert from_text(type(record), text) == record


@given(any_record, st.data())
def test_a_field_of_the_wrong_kind_is_refused_and_nothing_else_raised(
    record: Any, data: st.DataObject
) -> None:
    plain = records.encode(record)
    key = data.draw(st.sampled_from(sorted(plain)))
    # Keys that nobody knows are let pass, and so one in which nothing need be told can be any object.
    wrong = [[1], 1.5, [None]] + ([] if key in {"end", "parked_end", "limits"} else [{"x": []}])
    plain[key] = data.draw(st.sampled_from(wrong))
    with pytest.raises(NotReadable):
        records.decode(type(record), plain)


def example() -> dict[str, Any]:
    return records.encode(HistoryEntry(1, 1, None, State.CREATED, "created", "user"))


@pytest.mark.parametrize(
    ("spoiled", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not an object"),
        (json.dumps({"at": 1}), "names no schema"),
        (json.dumps(example() | {"schema": True}), "names no schema"),
        (json.dumps(example() | {"schema": SCHEMA + 1}), f"schema {SCHEMA + 1}"),
        (json.dumps(example() | {"schema": 0}), "never was"),
        (json.dumps(example() | {"to": "asleep"}), "'asleep'"),
        (json.dumps({"schema": SCHEMA, "at": 1}), "not whole"),
    ],
)
def test_what_cannot_be_read_says_why(spoiled: str, complaint: str) -> None:
    with pytest.raises(NotReadable, match=complaint):
        from_text(HistoryEntry, spoiled)


def test_an_older_schema_goes_through_each_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    def named_by(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "schema": 1, "by": data.pop("who")}

    monkeypatch.setattr(records, "MIGRATIONS", {0: named_by})
    old = example() | {"schema": 0, "who": "user"}
    del old["by"]
    assert from_text(HistoryEntry, json.dumps(old)).by == "user"


def test_what_a_later_version_adds_within_a_schema_does_not_hinder() -> None:
    assert from_text(HistoryEntry, json.dumps(example() | {"colour": "red"})).reason == "created"


def test_names_that_are_no_text_are_kept_and_others_stay_readable() -> None:
    names = {"conf/caf\udce9": "a", "conf/café \u2028": "b", "\\udce9": "c", "plain": "d"}
    text = to_text(Workspace("abc123", "fix", "/src", 1, copied=names))
    assert "café \u2028" in text
    assert from_text(Workspace, text.encode().decode()).copied == names


def test_records_are_frozen() -> None:
    entry = HistoryEntry(1, 1, None, State.CREATED, "created", "user")
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.run = 2  # type: ignore[misc]


@pytest.mark.parametrize(("ended_at", "known"), [(2999, False), (3000, True)])
def test_the_end_of_a_parked_process_is_that_of_its_own_run(ended_at: int, known: bool) -> None:
    end = End(code=0)
    state = RunState(
        *("k3x9qa", State.RUNNING, 4000, 1, 2, "boot", "resumed"),
        started_at=3000,
        parked_end=end,
        parked_end_at=ended_at,
    )
    assert records.end_of_parked(state) == ((end, ended_at) if known else (None, 0))
