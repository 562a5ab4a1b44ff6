import errno
import logging
import multiprocessing
import multiprocessing.synchronize as synchronize
import os
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from hypothesis import given
from hypothesis import strategies as st

from amuxd import files, processes
from amuxd.records import Certificate, HistoryEntry, Limits, Process, RunState, Session
from amuxd.states import End, State
from amuxd.store import Conflict, Known, Store, StoreError, Unreadable

STORED = Path(__file__).parent / "stored"


def a_session(session_id: str = "abc123") -> Session:
    return Session(session_id, "build", ["make"], "/src", 1000)


def a_state(session_id: str = "abc123") -> RunState:
    return RunState(session_id, State.CREATED, 1000, os.getpid(), 1, "boot", "created")


def a_line(state: RunState, by: str = "test") -> HistoryEntry:
    return HistoryEntry(state.state_changed_at, state.run, state.previous, state.state, state.reason, by)


def moved(state: RunState, target: State, at: int) -> RunState:
    return replace(state, state=target, previous=state.state, state_changed_at=at, reason=f"now {target}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def created(store: Store, session_id: str = "abc123") -> RunState:
    state = a_state(session_id)
    store.create(a_session(session_id), state, a_line(state))
    return state


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


def ended(before: RunState, at: int, end: End) -> RunState:
    return replace(moved(before, State.FAILED, at), end=end)


def test_a_change_is_state_and_history(store: Store) -> None:
    first = created(store)
    second = moved(first, State.STARTING, 2000)
    store.change(first, second, a_line(second))
    assert store.load("abc123") == Known(a_session(), second, None)
    assert store.history("abc123") == [a_line(first), a_line(second)]


def test_an_end_is_certified_by_the_state_until_its_last_lines_are_known(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    certificate = Certificate("abc123", 1, 2000, second.reason, End(code=3))
    assert store.load("abc123") == Known(a_session(), second, certificate)
    assert store.certificate("abc123", 1) is None
    complete = replace(certificate, last_lines=["bye"], complete=True)
    store.certify(complete)
    assert store.load("abc123") == Known(a_session(), second, complete)


@pytest.mark.parametrize("target", [State.CREATED, State.ARCHIVED])
def test_an_end_whose_last_lines_were_never_known_outlives_its_state(store: Store, target: State) -> None:
    first = created(store)
    second = ended(first, 2000, End(signal="SIGSEGV"))
    store.change(first, second, a_line(second))
    third = moved(second, target, 3000)
    if target is State.CREATED:
        third = replace(third, run=2, end=None)
    store.change(second, third, a_line(third))
    assert store.certificate("abc123", 1) == Certificate(
        "abc123", 1, 2000, second.reason, End(signal="SIGSEGV")
    )


def test_what_is_known_of_an_end_is_not_replaced_by_less(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    complete = Certificate("abc123", 1, 2000, second.reason, End(code=3), ["bye"], True)
    store.certify(complete)
    third = replace(moved(second, State.CREATED, 3000), run=2, end=None)
    store.change(second, third, a_line(third))
    assert store.certificate("abc123", 1) == complete


def test_a_version_1_session_is_read(tmp_path: Path) -> None:
    shutil.copytree(STORED / "v1", tmp_path / "sessions")
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

    def refuse(path: Path, encoding: str) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(StoreError, match="Too many open files"):
        store.change(first, moved(first, State.STARTING, 2000), None)
    monkeypatch.undo()
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state == first


def test_a_certificate_that_cannot_be_read_leaves_the_session_as_it_is(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    store.certify(Certificate("abc123", 1, 2000, second.reason, End(code=3)))
    path = store.run_directory("abc123", 1) / "exit.json"
    path.write_text("{}")
    assert isinstance(store.load("abc123"), Unreadable)
    assert path.read_text() == "{}"


def test_a_change_on_top_of_somebody_elses_is_refused(store: Store) -> None:
    first = created(store)
    store.change(first, moved(first, State.STARTING, 2000), None)
    with pytest.raises(Conflict) as conflict:
        store.change(first, moved(first, State.FAILED, 3000), None)
    assert conflict.value.present.state is State.STARTING
    known = store.load("abc123")
    assert isinstance(known, Known)
    assert known.state.state is State.STARTING


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
    state, history = ["state.json.new", "abc123"], ["history.jsonl"]
    assert synced == [*state, *history, *state, *history, *state, *state]


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
        if next(calls):
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


def test_a_lock_that_was_taken_away_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = files.fcntl.flock

    def take_away_first(fd: int, how: int) -> None:
        monkeypatch.setattr(files.fcntl, "flock", lock)
        (tmp_path / ".lock").unlink()
        lock(fd, how)

    monkeypatch.setattr(files.fcntl, "flock", take_away_first)
    with files.locked(tmp_path):
        assert files._lock_at_once(tmp_path / ".lock") is None
