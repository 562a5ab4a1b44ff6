"""The workspaces on disk, and what stands in the way of a slot."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amuxd import files, processes
from amuxd.records import HistoryEntry, Place, Process, RunState, Session, Workspace
from amuxd.states import State
from amuxd.store import Store, StoreError
from amuxd.workspaces.ledger import Ledger, UnreadableWorkspace
from amuxd.workspaces.slots import Busy, Queued, Taken

SHELF = Workspace("abc123", "fix", "/w", 1, 1, "/code", "fix", True, "refs/heads/main", copied={".env": "12"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def ledger(tmp_path: Path, store: Store) -> Ledger:
    ledger = Ledger(tmp_path, store, "boot")
    ledger.define(SHELF)
    return ledger


def create(store: Store, key: str, state: State = State.CREATED) -> None:
    known = RunState(key, state, 1, os.getpid(), 1, "boot", "")
    store.create(Session(key, key, ["true"], "/", 1), known, HistoryEntry(1, 1, None, state, "", ""))


def taken(ledger: Ledger, key: str, may_wait: bool = False) -> object:
    with ledger.taking(key, 1):
        return ledger.take("abc123", key, 1, may_wait)


def test_a_workspace_comes_back(ledger: Ledger, store: Store, tmp_path: Path) -> None:
    create(store, "aaa", State.RUNNING)
    create(store, "bbb")
    assert isinstance(taken(ledger, "aaa"), Taken)
    assert isinstance(taken(ledger, "bbb", may_wait=True), Queued)
    (found,) = Ledger(tmp_path, store, "boot").load_all()
    assert isinstance(found, Workspace)
    me = processes.identify(os.getpid())
    assert me is not None
    holder, waiting = found.holders[0], found.queue[0]
    assert holder == Place("aaa", 1, me, holder.taken_at)
    assert waiting == Place("bbb", 1, me, waiting.taken_at)
    # Its directory was there when it was made.
    assert replace(found, holders=[], queue=[]) == replace(SHELF, seen_on="boot")
    assert (tmp_path / "workspaces/abc123.json").stat().st_mode & 0o777 == 0o600


def test_it_is_busy_until_the_holder_is_no_more(ledger: Ledger, store: Store) -> None:
    for key in ("aaa", "bbb"):
        create(store, key)
    with ledger.taking("aaa", 1):
        assert isinstance(ledger.take("abc123", "aaa", 1, False), Taken)
        assert isinstance(taken(ledger, "bbb"), Busy)
        assert isinstance(ledger.would_be_busy("abc123"), Busy)
    # It was not started after all.
    assert ledger.would_be_busy("abc123") is None
    assert isinstance(taken(ledger, "bbb"), Taken)


def test_the_slot_of_a_process_that_went_away_is_free(ledger: Ledger, store: Store) -> None:
    for key in ("aaa", "bbb"):
        create(store, key)
    gone = Place("aaa", 1, Process(os.getpid(), 1), 1)
    ledger.define(replace(SHELF, holders=[gone]))
    assert isinstance(taken(ledger, "bbb"), Taken)


def test_the_slot_of_another_process_that_is_about_to_start_one_is_not(ledger: Ledger, store: Store) -> None:
    for key in ("aaa", "bbb"):
        create(store, key)
    parent = processes.identify(os.getppid())
    assert parent is not None
    ledger.define(replace(SHELF, holders=[Place("aaa", 1, parent, 1)]))
    assert isinstance(taken(ledger, "bbb"), Busy)


def test_a_session_that_cannot_be_read_keeps_its_slot(ledger: Ledger, store: Store) -> None:
    create(store, "aaa", State.RUNNING)
    create(store, "bbb")
    taken(ledger, "aaa")
    (store.directory("aaa") / "state.json").write_text("{")
    assert isinstance(taken(ledger, "bbb"), Busy)


def test_what_cannot_be_read_is_told_and_left(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "workspaces/abc123.json").write_text('{"schema":99}')
    (tmp_path / "workspaces/other1.json").write_text(
        '{"schema":1,"id":"x","name":"","directory":"","created_at":1}'
    )
    first, second = ledger.load_all()
    assert isinstance(first, UnreadableWorkspace)
    assert isinstance(second, UnreadableWorkspace)
    assert "schema 99" in first.why
    assert "is that of x" in second.why
    works: list[Callable[[], object]] = [
        lambda: taken(ledger, "aaa"),
        lambda: ledger.tidy("abc123"),
        lambda: ledger.would_be_busy("abc123"),
    ]
    for work in works:
        with pytest.raises(StoreError, match="schema 99"):
            work()
    assert (tmp_path / "workspaces/abc123.json").read_text() == '{"schema":99}'


@pytest.mark.parametrize(
    ("text", "name", "directory"),
    [
        ('{"schema":99,"name":"fix","holders":[{"name":"x"}],"directory":"/fix"}', "fix", "/fix"),
        ('{"schema":1,"id":"abc123","name":"f\\u00efx","directory":"/fix","created_at', "fïx", "/fix"),
        ('{"schema":1,"id":"abc123","name":"fix","dir', "fix", ""),
        ('{"schema":1,"id":"abc123","name":"\\q","directory":"/fix"', "abc123", "/fix"),
        ('{"schema":99,"name":"a\\u0000b\\ud800","directory":7}', "a b?", ""),
        ("[]", "abc123", ""),
        ("", "abc123", ""),
    ],
)
def test_what_can_still_be_made_out(
    ledger: Ledger, tmp_path: Path, text: str, name: str, directory: str
) -> None:
    (tmp_path / "workspaces/abc123.json").write_text(text)
    (found,) = ledger.load_all()
    assert isinstance(found, UnreadableWorkspace)
    assert (found.name, found.directory) == (name, directory)


def test_one_that_cannot_be_got_at_is_known_by_its_id(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "workspaces/abc123.json").unlink()
    (tmp_path / "workspaces/abc123.json").mkdir()
    (found,) = ledger.load_all()
    assert isinstance(found, UnreadableWorkspace)
    assert found.name == "abc123"


def test_what_is_put_aside_is_whole(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "workspaces/abc123.json").write_text("{")
    aside = ledger.put_aside("abc123")
    assert aside.read_text() == "{"
    assert aside.parent == tmp_path / "set-aside"
    assert ledger.load_all() == []
    with pytest.raises(StoreError, match="it could not be put aside: No such file"):
        ledger.put_aside("abc123")


def test_a_disk_that_refuses_changes_nothing(
    ledger: Ledger, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, "aaa")
    before = (tmp_path / "workspaces/abc123.json").read_text()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    works: list[Callable[[], object]] = [
        lambda: taken(ledger, "aaa"),
        lambda: ledger.define(SHELF),
        lambda: ledger.allow("/code", "x"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(files, "write", refuse)
        for work in works:
            with pytest.raises(StoreError, match="No space left"):
                work()
    assert (tmp_path / "workspaces/abc123.json").read_text() == before
    assert not ledger.is_allowed("/code", "x")


def test_what_was_allowed_once_is_remembered_for_that_repository(
    ledger: Ledger, store: Store, tmp_path: Path
) -> None:
    assert not ledger.is_allowed("/code", "npm ci")
    ledger.allow("/code", "npm ci")
    ledger.allow("/code", "npm ci")
    ledger.allow("/code", "make")
    again = Ledger(tmp_path, store, "boot")
    again.load_all()
    assert again.is_allowed("/code", "npm ci")
    assert again.is_allowed("/code", "make")
    assert not again.is_allowed("/code", "npm install")
    assert not again.is_allowed("/other", "npm ci")


def test_what_was_allowed_counts_although_it_could_not_be_read_at_first(
    ledger: Ledger, store: Store, tmp_path: Path
) -> None:
    for repository, command in (("/code", "npm ci"), ("/other", "make")):
        ledger.allow(repository, command)
    file = tmp_path / "allowed.json"
    text = file.read_text()
    file.write_text("{")
    begun = Ledger(tmp_path, store, "boot")
    begun.load_all()
    with pytest.raises(StoreError, match="be allowed"):
        begun.allow("/code", "npm ci")
    assert not begun.is_allowed("/code", "npm ci")
    file.write_text(text)
    begun.allow("/code", "npm ci")
    assert begun.is_allowed("/code", "npm ci")
    assert begun.is_allowed("/other", "make")
    assert file.read_text() == text


def test_what_was_removed_is_gone(ledger: Ledger) -> None:
    ledger.remove("abc123")
    ledger.remove("abc123")
    assert ledger.load_all() == []
