"""Sessions on disk: they come back as they were, and what refuses or spoils a file loses none."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import errno
import logging
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from store_work import (
    a_line,
    a_session,
    created,
    moved,
    store,  # noqa: F401
)

from amuxd import files, processes
from amuxd.records import Limits, Process
from amuxd.states import End, State
from amuxd.store import Conflict, Known, Store, StoreError, Unreadable

STORED = Path(__file__).parent / "stored"


def test_a_session_comes_back(store: Store, tmp_path: Path) -> None:
    state = created(store)
    assert Store(tmp_path).load_all() == [Known(a_session(), state, None)]
    assert store.history("abc123") == [a_line(state)]


def test_everything_is_the_users_alone(store: Store) -> None:
    created(store)
    directory = store.directory("abc123")
    assert directory.stat().st_mode & 0o777 == 0o700
    for name in ("session.json", "state.json", "history.jsonl"):
        assert (directory / name).stat().st_mode & 0o777 == 0o600


def test_a_change_is_state_and_history(store: Store) -> None:
    first = created(store)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    assert store.load("abc123") == Known(a_session(), second, None)
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_a_version_1_session_is_read(tmp_path: Path) -> None:
    shutil.copytree(STORED / "v1", tmp_path, dirs_exist_ok=True)
    (known,) = Store(tmp_path).load_all()
    assert isinstance(known, Known)
    assert known.session.name == "über ✨ build"
    assert known.session.command == ["make", "-j4", 'it\'s "all"']
    assert known.session.limits == Limits(memory_max=4 << 30, cpu_quota=150, tasks_max=99)
    assert known.session.environment == {"PATH": "/usr/bin", "LESS": "a\tb\nc"}
    assert known.state.state is State.FAILED
    assert known.state.command == Process(4300, 987654)
    assert known.certificate is not None
    assert known.certificate.end == End(signal="SIGSEGV", core_dumped=True)
    assert len(Store(tmp_path).history("k3x9qa")) == 4


@pytest.mark.parametrize("name", ["session.json", "state.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"schema": 2, "more": 1}'])
def test_a_file_that_cannot_be_read_is_left_as_it_is_and_hurts_nobody(
    store: Store, name: str, content: bytes
) -> None:
    created(store, "abc123")
    created(store, "xyz789")
    path = store.directory("abc123") / name
    path.write_bytes(content)
    unreadable, other = store.load_all()
    assert isinstance(unreadable, Unreadable)
    assert unreadable.id == "abc123"
    assert name in unreadable.why
    assert isinstance(other, Known)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"schema": 2, "more": 1}', None])
def test_a_state_that_was_spoiled_while_it_is_known_is_put_aside(store: Store, content: bytes | None) -> None:
    first = created(store)
    directory = store.directory("abc123")
    if content is None:
        (directory / "state.json").unlink()
    else:
        (directory / "state.json").write_bytes(content)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state == second
    assert store.history("abc123") == [a_line(first), a_line(second)]
    aside = [path.read_bytes() for path in directory.glob("state.json.unreadable-*")]
    assert aside == ([] if content is None else [content])


def test_a_state_that_cannot_be_got_at_now_is_not_put_aside(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = created(store)
    open_file = os.open

    def refuse(path: Path, *how: int) -> int:
        if path.name == "state.json":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *how)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="Too many open files"):
        store.change(first, moved(first, State.STARTING, 2000), None)
    monkeypatch.undo()
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state == first


def test_a_change_on_top_of_somebody_elses_is_refused(store: Store) -> None:
    first = created(store)
    store.change(first, moved(first, State.STARTING, 2000), None)
    with pytest.raises(Conflict) as conflict:
        store.change(first, moved(first, State.FAILED, 3000), None)
    assert conflict.value.present.state is State.STARTING
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state.state is State.STARTING


def test_a_change_on_top_of_another_process_is_refused_though_ours_was_the_last(store: Store) -> None:
    first = created(store)
    ours = moved(first, State.STARTING, 2000)
    store.change(first, ours, None)
    Store(store.sessions.parent).change(ours, moved(ours, State.FAILED, 3000), None)
    with pytest.raises(Conflict) as conflict:
        store.change(ours, moved(ours, State.RUNNING, 4000), None)
    assert conflict.value.present.state is State.FAILED


def test_a_change_beside_the_state_is_not_lost_to_another(store: Store) -> None:
    first = created(store)
    learned = replace(first, conversation_id="k3")
    store.change(first, learned, None)
    with pytest.raises(Conflict) as conflict:
        store.change(first, replace(first, parked=True), None)
    assert conflict.value.present == learned
    assert store.load("abc123") == Known(a_session(), learned, None)


def test_a_wait_that_goes_on_in_memory_is_no_conflict(store: Store) -> None:
    first = created(store)
    waiting = replace(first, attention="bell", attention_at=5)
    store.change(first, waiting, None)
    later = replace(waiting, attention_at=9)
    store.change(later, replace(later, parked=True), None)
    assert store.load("abc123") == Known(a_session(), replace(later, parked=True), None)


def test_removing_takes_everything(store: Store, tmp_path: Path) -> None:
    created(store)
    store.remove("abc123")
    assert store.load_all() == []
    assert [p.name for p in store.sessions.iterdir() if p.is_dir()] == []


def test_what_was_half_made_or_half_removed_is_cleared(store: Store, tmp_path: Path) -> None:
    created(store)
    for leftover in (".new-abc124", ".removed-abc125"):
        (store.sessions / leftover / "runs").mkdir(parents=True)
    again = Store(tmp_path)
    assert [p.name for p in again.sessions.iterdir() if p.is_dir()] == ["abc123"]


def test_an_id_is_taken_once(store: Store) -> None:
    created(store)
    with pytest.raises(StoreError, match="already"):
        created(store)


def contents(store: Store) -> dict[str, bytes]:
    files = store.directory("abc123").iterdir()
    return {path.name: path.read_bytes() for path in files if path.is_file() and path.name != ".lock"}


FAILING = ["open", "fsync", "rename"]


@pytest.mark.parametrize("call", FAILING)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    first = created(store)
    before = contents(store)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        if call == "rename":
            patch.setattr(Path, "rename", refuse)
        elif call == "fsync":
            patch.setattr(os, "fsync", refuse)
        else:
            patch.setattr(files, "write", refuse)
        with pytest.raises(StoreError, match=os.strerror(error)):
            store.change(first, moved(first, State.STARTING, 2000), a_line(first))
        with pytest.raises(StoreError, match=os.strerror(error)):
            created(store, "new456")
    assert contents(store) == before
    assert store.load_all() == [Known(a_session(), first, None)]


def refuse_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuse(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    monkeypatch.setattr(os, "fsync", refuse)


def test_what_is_renamed_has_happened_even_if_the_directory_cannot_be_synced(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = created(store)
    created(store, "doomed")
    second = moved(first, State.STARTING, 2000)
    monkeypatch.setattr(logging.getLogger("amuxd"), "propagate", True)
    with monkeypatch.context() as patch:
        refuse_directory_sync(patch)
        store.change(first, second, a_line(second))
        store.remove("doomed")
    assert Store(tmp_path).load_all() == [Known(a_session(), second, None)]
    assert "could not be synced: Input/output error" in caplog.text


def test_what_a_killed_writer_left_half_written_is_written_anew(store: Store) -> None:
    first = created(store)
    (store.directory("abc123") / "state.json.new").write_text("much longer than " * 200)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, None)
    assert store.load("abc123") == Known(a_session(), second, None)
    assert not list(store.directory("abc123").glob("*.new"))


def test_all_that_was_deleted_is_made_again(store: Store) -> None:
    first = created(store)
    shutil.rmtree(store.sessions.parent)
    store.restore(a_session(), first)
    assert store.load("abc123") == Known(a_session(), first, None)
    shutil.rmtree(store.sessions)
    created(store, "def456")
    assert store.sessions.stat().st_mode & 0o777 == 0o700


def test_what_lives_is_known_by_its_token_still(store: Store) -> None:
    first = created(store)
    with subprocess.Popen(["sleep", "1000"], env={"AMUX_TOKEN": "secret"}) as process:
        try:
            state = replace(first, command=processes.identify(process.pid))
            other = replace(first, command=Process(process.pid, 1))
            shutil.rmtree(store.directory("abc123"))
            store.restore(a_session(), other)
            assert store.token("abc123", 1) == ""
            store.restore(a_session(), state)
            assert store.token("abc123", 1) == "secret"
        finally:
            process.kill()
