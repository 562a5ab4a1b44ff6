"""The history in the store has a line of each change, once, and on disk before the next but one."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import errno
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_work import (
    a_line,
    a_session,
    created,
    moved,
    store,  # noqa: F401
)

from amuxd import files
from amuxd.records import RunState
from amuxd.states import State
from amuxd.store import Known, Store, StoreError


def test_a_history_that_missed_its_last_line_gets_it_from_the_state(store: Store) -> None:
    first = created(store)
    second = replace(moved(first, State.STARTING, 2000), changed_for="test")
    store.change(first, second, None)
    assert store.history("abc123") == [a_line(first)]
    store.load("abc123")
    store.load("abc123")
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_a_history_line_is_told_once_however_long_it_is(store: Store) -> None:
    first = created(store)
    second = replace(moved(first, State.FAILED, 2000), reason="x" * 10_000, changed_for="test")
    store.change(first, second, a_line(second))
    store.load("abc123")
    store.change(second, replace(second, last_checked_at=3), None)
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_a_reason_may_have_separators_of_lines_in_it(store: Store) -> None:
    first = created(store)
    second = replace(moved(first, State.FAILED, 2000), reason="no\u2028such\x85file", changed_for="test")
    store.change(first, second, a_line(second))
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_half_the_line_of_the_present_state_is_written_again(store: Store) -> None:
    first = created(store)
    second = replace(moved(first, State.STARTING, 2000), changed_for="test")
    store.change(first, second, None)
    with (store.directory("abc123") / "history.jsonl").open("a") as file:
        file.write('{"schema":1,"at":2000,"run"')
    store.load("abc123")
    assert store.history("abc123") == [a_line(first), a_line(second)]


@given(st.lists(st.binary(max_size=12)), st.integers(1, 20))
def test_lines_are_read_from_the_end(lines: list[bytes], block: int) -> None:
    content = b"\n".join(lines)
    with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        Path(file.name).write_bytes(content)
        assert list(files.lines_from_the_end(Path(file.name))) == content.split(b"\n")[::-1]


def test_half_a_history_line_costs_only_itself(store: Store) -> None:
    first = created(store)
    with (store.directory("abc123") / "history.jsonl").open("a") as file:
        file.write('{"schema":1,"at":1500,"run"')
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_a_spoiled_history_line_costs_only_itself(store: Store) -> None:
    first = created(store)
    with (store.directory("abc123") / "history.jsonl").open("ab") as file:
        file.write(b"\xff\xfe{not\n")
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_a_history_that_is_on_disk_is_not_synced_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync(fd)

    states = [created(store)]
    monkeypatch.setattr(os, "fsync", note)
    for at, state in ((2000, State.STARTING), (3000, State.RUNNING)):
        states.append(moved(states[-1], state, at))
        store.change(states[-2], states[-1], a_line(states[-1]))
    for pid in (1, 2):
        states.append(replace(states[-1], updated_by=pid))
        store.change(states[-2], states[-1], None)
    record, history = ["state.json.new", "abc123"], ["history.jsonl"]
    assert synced == [*record, *history, *record, *history, *record, *record]


def three_changes(store: Store) -> list[RunState]:
    """Of which the second is made, and the third is not yet."""
    first = created(store)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    return [first, second, moved(second, State.RUNNING, 3000)]


def synced_by_change(store: Store, before: RunState, after: RunState) -> list[Path]:
    synced: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", synced.append)
        store.change(before, after, a_line(after))
    return synced


def test_a_history_kept_ahead_is_no_part_of_the_next_change(store: Store) -> None:
    first, second, third = three_changes(store)
    store.keep_history(first)
    store.keep_history(second)
    assert synced_by_change(store, second, third) == [store.directory("abc123")]
    assert [line.at for line in store.history("abc123")] == [1000, 2000, 3000]


def test_a_history_that_cannot_be_kept_ahead_is_kept_with_the_next_change(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second, third = three_changes(store)

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", refuse)
        with pytest.raises(StoreError, match="could not be kept: Input/output error"):
            store.keep_history(second)
    directory = store.directory("abc123")
    assert synced_by_change(store, second, third) == [directory / "history.jsonl", directory]


def test_a_history_never_misses_two_lines(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = created(store)
    second = replace(moved(first, State.STARTING, 2000), changed_for="test")
    third = moved(second, State.RUNNING, 3000)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "append", refuse)
        store.change(first, second, a_line(second))
        with pytest.raises(StoreError, match="No space left"):
            store.change(second, third, a_line(third))
    store.change(second, third, a_line(third))
    assert store.history("abc123") == [a_line(first), a_line(second), a_line(third)]


def test_a_line_that_does_not_fit_leaves_no_part_of_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = created(store)
    path = store.directory("abc123") / "history.jsonl"
    before = path.read_bytes()
    write = os.write
    calls = iter([True, False])

    def fill_up(fd: int, data: bytes) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() != path or next(calls):
            return write(fd, data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    second = moved(first, State.STARTING, 2000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill_up)
        store.change(first, second, a_line(second))
    assert path.read_bytes() == before
    assert store.load("abc123") == Known(a_session(), second, None)


def test_a_history_that_cannot_be_mended_now_keeps_no_session_from_being_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = created(store)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, None)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "append", refuse)
    assert store.load("abc123") == Known(a_session(), second, None)
