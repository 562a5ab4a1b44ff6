"""Many sessions changed in one go: each of them whole, or as it was and ready to be changed alone."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from store_work import (
    a_line,
    created,
    moved,
    store,  # noqa: F401
)

from amuxd import files
from amuxd.records import RunState
from amuxd.states import State
from amuxd.store import Change, Conflict, Known, Store

write = os.write
NAMES = [f"one{number:03}" for number in range(40)]


def running(store: Store, name: str) -> RunState:
    """Brought so far by this very process, with a history that is on disk."""
    first = created(store, name)
    second, third = moved(first, State.STARTING, 2000), moved(first, State.RUNNING, 3000)
    store.change(first, second, a_line(second))
    store.change(second, third, a_line(third))
    store.keep_history(third)
    return third


def suspended(state: RunState) -> Change:
    new = moved(state, State.SUSPENDED, 4000)
    return Change(state, new, a_line(new))


def state_of(store: Store, name: str) -> RunState:
    known = store.load(name)
    assert isinstance(known, Known)
    return known.state


def nothing_is_left_over(store: Store) -> bool:
    descriptors = [Path(f"/proc/self/fd/{entry}") for entry in os.listdir("/proc/self/fd")]  # noqa: PTH208
    opened = [str(fd.readlink()) for fd in descriptors if fd.is_symlink()]
    return not (
        list(store.sessions.glob("*/*.new")) or any(at.startswith(str(store.sessions)) for at in opened)
    )


def test_all_of_them_are_changed_and_nothing_is_left_over(store: Store, tmp_path: Path) -> None:
    changes = [suspended(running(store, name)) for name in NAMES]
    assert store.change_together(changes) == [True] * len(NAMES)
    assert nothing_is_left_over(store)
    for name, change in zip(NAMES, changes, strict=True):
        assert state_of(Store(tmp_path), name) == change.new
        assert [line.to_state for line in store.history(name)][-2:] == [State.RUNNING, State.SUSPENDED]
        # Nobody keeps its lock.
        with FileLock(str(store.directory(name) / ".lock"), timeout=0):
            pass
    # What comes next, too.
    back = [moved(change.new, State.RUNNING, 5000) for change in changes]
    for change, state in zip(changes, back, strict=True):
        store.change(change.new, state, a_line(state))
    assert len(store.history(NAMES[0])) == 5


def test_what_is_on_disk_when_it_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file before it takes the other's place, and each directory after that."""
    changes = [suspended(running(store, name)) for name in NAMES[:3]]
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        assert path.is_file() or not (path / "state.json.new").exists()
        synced.append(str(path))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    assert all(store.change_together(changes))
    directories = [str(store.directory(name)) for name in NAMES[:3]]
    assert synced[:3] == [f"{directory}/state.json.new" for directory in directories]
    assert sorted(synced[3:]) == directories


def locked(store: Store, state: RunState) -> Callable[[], None]:
    lock = FileLock(str(store.directory(state.session_id) / ".lock"))
    lock.acquire()
    return lock.release


def changed_by_another(store: Store, state: RunState) -> Callable[[], None]:
    other = moved(state, State.FAILED, 3500)
    Store(store.sessions.parent).change(state, other, a_line(other))
    return lambda: None


def spoiled(store: Store, state: RunState) -> Callable[[], None]:
    (store.directory(state.session_id) / "state.json").write_text("{")
    return lambda: None


def deleted(store: Store, state: RunState) -> Callable[[], None]:
    shutil.rmtree(store.directory(state.session_id))
    return lambda: None


def piped(store: Store, state: RunState) -> Callable[[], None]:
    scratch = store.directory(state.session_id) / "state.json.new"
    os.mkfifo(scratch)
    return lambda: None


def in_the_way(store: Store, state: RunState) -> Callable[[], None]:
    scratch = store.directory(state.session_id) / "state.json.new"
    scratch.mkdir()
    return scratch.rmdir


@pytest.mark.parametrize("fault", [locked, changed_by_another, spoiled, deleted, in_the_way, piped])
def test_one_that_cannot_be_holds_up_none_and_is_left_as_it_was(
    store: Store, fault: Callable[[Store, RunState], Callable[[], None]]
) -> None:
    states = [running(store, name) for name in NAMES[:5]]
    mend = fault(store, states[2])
    file = store.directory(NAMES[2]) / "state.json"
    before = file.read_text() if file.exists() else None
    changes = [suspended(state) for state in states]
    assert store.change_together(changes) == [True, True, False, True, True]
    assert (file.read_text() if file.exists() else None) == before
    mend()
    if fault is changed_by_another:
        with pytest.raises(Conflict):
            store.change(*changes[2])
    elif fault is deleted:
        assert not store.directory(NAMES[2]).exists()
    else:
        store.change(*changes[2])
        assert state_of(store, NAMES[2]) == changes[2].new


def test_one_of_which_more_is_to_be_written_is_for_change(store: Store) -> None:
    first = created(store, NAMES[0])
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    third = moved(second, State.RUNNING, 3000)
    # Its history was not synced yet.
    assert store.change_together([Change(second, third, a_line(third))]) == [False]
    store.change(second, third, a_line(third))
    store.keep_history(third)
    assert store.change_together([suspended(third)]) == [True]


@pytest.mark.parametrize(
    ("owner", "call", "is_needed"),
    [(os, "write", True), (os, "fsync", True), (Path, "rename", True), (os, "posix_fadvise", False)],
)
def test_what_the_disk_refuses_of_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, owner: object, call: str, is_needed: bool
) -> None:
    changes = [suspended(running(store, name)) for name in NAMES[:3]]
    doomed = store.directory(NAMES[1]) / "state.json.new"
    before = {path: path.read_bytes() for path in doomed.parent.glob("*.json*")}
    original = getattr(owner, call)

    def refuse(what: int | Path, *more: object) -> object:
        path = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else what
        if path == doomed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(what, *more)

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, refuse)
        assert store.change_together(changes) == [True, not is_needed, True]
    assert nothing_is_left_over(store)
    if is_needed:
        assert {path: path.read_bytes() for path in doomed.parent.glob("*.json*")} == before
        store.change(*changes[1])
    assert state_of(store, NAMES[1]) == changes[1].new


def test_no_descriptors_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [suspended(running(store, name)) for name in NAMES[:3]]
    open_file, left = os.open, 3

    def few(path: Path, *how: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", few)
        assert store.change_together(changes) == [False] * 3
    assert nothing_is_left_over(store)
    assert store.change_together(changes) == [True] * 3


def test_a_history_that_takes_no_line_is_made_whole_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = suspended(running(store, NAMES[0]))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "append", refuse)
        assert store.change_together([change]) == [True]
    assert state_of(store, NAMES[0]) == change.new
    assert store.history(NAMES[0])[-1].to_state is State.SUSPENDED


CALLS = [(os, "open"), (os, "write"), (os, "fsync"), (Path, "rename"), (Path, "unlink")]


def change_until(store: Store, changes: list[Change], last: int) -> int:
    """In a process of its own, killed at that call; gives how many calls there were."""
    counted, count = os.pipe()
    child = os.fork()
    if child:
        os.close(count)
        with os.fdopen(counted, "rb") as calls:
            number = len(calls.read())
        os.waitpid(child, 0)
        return number

    def counting(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            nonlocal last
            last -= 1
            if last < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            write(count, b".")
            return original(*arguments, **more)

        return call

    for owner, name in CALLS:
        setattr(owner, name, counting(getattr(owner, name)))
    store.change_together(changes)
    os._exit(0)


def test_killed_at_any_moment_each_is_as_it_was_or_changed_and_has_its_history(tmp_path: Path) -> None:
    before = Store(tmp_path / "before")
    changes = [suspended(running(before, name)) for name in NAMES[:3]]
    for last in range(1000):
        root = tmp_path / str(last)
        shutil.copytree(tmp_path / "before", root)
        store = Store(root)
        store._history_kept, store._wrote = before._history_kept, before._wrote
        reached = change_until(store, changes, last)
        after = Store(root)
        for change in changes:
            state = state_of(after, change.new.session_id)
            assert state in (change.expected, change.new)
            assert after.history(change.new.session_id)[-1].to_state == state.state
            again = moved(state, State.STOPPING, 5000)
            after.change(state, again, a_line(again))
        shutil.rmtree(root)
        if reached < last:
            break
    assert last > 20
