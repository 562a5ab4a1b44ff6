"""Who writes to a session's files at the same time waits, and loses nothing of another's."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import fcntl
import multiprocessing
import multiprocessing.synchronize as synchronize
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from store_work import (
    a_line,
    created,
    moved,
    store,  # noqa: F401
)

from amuxd import files
from amuxd.states import State
from amuxd.store import Conflict, Known, Store, StoreError


def _increment(root: Path, times: int) -> None:
    store = Store(root)
    done = 0
    while done < times:
        known = store.load("abc123")
        assert isinstance(known, Known)
        state = replace(
            known.state,
            state_changed_at=known.state.state_changed_at + 1,
            last_activity_hash=known.state.last_activity_hash + 1,
        )
        try:
            store.change(known.state, state, a_line(state, str(os.getpid())))
            done += 1
        except Conflict:
            continue


def test_two_processes_writing_at_once_lose_nothing(store: Store, tmp_path: Path) -> None:
    created(store)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_increment, args=(tmp_path, 40)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state.last_activity_hash == 120
    moments = [entry.at for entry in store.history("abc123")]
    assert moments == [1000, *range(1001, 1121)]


def _hold(lock: Path, held: synchronize.Event) -> None:
    with FileLock(str(lock)):
        held.set()
        time.sleep(60)


def test_a_lock_that_is_never_given_back_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.2)
    first = created(store)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold, args=(store.directory("abc123") / ".lock", held))
    holder.start()
    try:
        assert held.wait(30)
        with pytest.raises(StoreError, match="locked by another process"):
            store.change(first, moved(first, State.STARTING, 2000), None)
    finally:
        holder.kill()
        holder.join()
    store.change(first, moved(first, State.STARTING, 2000), None)


def test_a_lock_that_is_free_is_taken_at_once_and_is_one_for_everybody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store)
    directory = store.directory("abc123")
    theirs = FileLock(str(directory / ".lock"), timeout=0)
    monkeypatch.delattr(files, "FileLock")
    with files.locked(directory), pytest.raises(Timeout):
        theirs.acquire()
    with theirs, pytest.raises(NameError), files.locked(directory):
        pass


def test_a_lock_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"), files.locked(tmp_path / "gone"):
        pass
    assert not (tmp_path / "gone").exists()


def test_a_lock_that_was_taken_away_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def take_away_first(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (tmp_path / ".lock").unlink()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", take_away_first)
    with files.locked(tmp_path):
        assert files.lock_at_once(tmp_path) is None
