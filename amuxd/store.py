"""Durable files: every change under a lock, on disk before anybody is told of it."""

import contextlib
import hashlib
import logging
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from amuxd import files, paths, processes
from amuxd.files import Missing as Missing
from amuxd.files import StoreError as StoreError
from amuxd.lastwords import LastWordsFile
from amuxd.lines import lines_of
from amuxd.records import (
    Certificate,
    HistoryEntry,
    NotReadable,
    OfLaterSchema,
    RunState,
    Session,
    certificate_in,
    from_text,
    history_in,
    to_text,
)

logger = logging.getLogger(__name__)

# In the environment of a run's command, and in the run's directory.
TOKEN = "AMUX_TOKEN"


class Conflict(StoreError):
    """Somebody else changed the session since it was read."""

    def __init__(self, present: RunState) -> None:
        super().__init__(f"another process changed it, and it is {present.state}")
        self.present = present


class Change(NamedTuple):
    """Of the state that memory believes in into the new one, and the line of history that tells of it."""

    expected: RunState
    new: RunState
    entry: HistoryEntry | None


@dataclass(frozen=True)
class Known:
    session: Session
    state: RunState
    certificate: Certificate | None


@dataclass(frozen=True)
class Unreadable:
    """Left exactly as it is: an amuxd that can read it may come."""

    id: str
    name: str
    why: str
    session: Session | None
    run: int


class Store:
    def __init__(self, root: Path) -> None:
        self.sessions = paths.ensure_private(root / "sessions")
        self.set_aside = root / "set-aside"
        self.last_words = LastWordsFile(root / "last-words")
        # Of each session, the moment up to which its history is known to be whole and on disk.
        self._history_kept: dict[str, int] = {}
        # What this process wrote last of each, and what tells its file from any other.
        self._wrote: dict[str, tuple[RunState, bytes]] = {}
        self._clear_half_done()

    def _clear_half_done(self) -> None:
        """A dot in front marks what was not finished being made, or was being removed."""
        with files.locked(self.sessions):
            for leftover in self.sessions.glob(".[nr]*-*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def directory(self, session_id: str) -> Path:
        return self.sessions / session_id

    def run_directory(self, session_id: str, run: int) -> Path:
        return self.sessions.joinpath(session_id, "runs", str(run))

    def _certificate_path(self, session_id: str, run: int) -> Path:
        return self.run_directory(session_id, run) / "exit.json"

    def log(self, session_id: str, run: int) -> Path:
        return self.sessions.joinpath(session_id, "runs", str(run), "output.log")

    @contextlib.contextmanager
    def _all_locked(self) -> Iterator[None]:
        """Also where somebody deleted the whole of it."""
        with files.disk_errors("be locked"):
            paths.ensure_private(self.sessions)
        with files.locked(self.sessions):
            yield

    def create(self, session: Session, state: RunState, entry: HistoryEntry) -> None:
        with self._all_locked(), files.disk_errors("be created"):
            if self.directory(session.id).exists():
                raise StoreError(f"there is a session {session.id} already")
            scratch = self.sessions / f".new-{session.id}"
            shutil.rmtree(scratch, ignore_errors=True)
            (scratch / "runs").mkdir(mode=0o700, parents=True)
            scratch.chmod(0o700)
            try:
                files.write(scratch / "session.json", to_text(session))
                files.write(scratch / "state.json", to_text(state))
                files.append(scratch / "history.jsonl", to_text(entry))
                files.sync(scratch / "history.jsonl")
                files.sync(scratch)
                scratch.rename(self.directory(session.id))
            except OSError:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            files.sync_renamed(self.sessions)
            self._history_kept[session.id] = state.state_changed_at

    def restore(self, session: Session, state: RunState) -> None:
        """For a session that somebody deleted and that is known still. What it had printed is lost."""
        with self._all_locked(), files.disk_errors("be written anew"):
            token = processes.environment(state.command).get(TOKEN, "") if state.command else ""
            directory = self.directory(session.id)
            for missing in (directory, directory / "runs", directory / "runs" / str(state.run)):
                missing.mkdir(mode=0o700, exist_ok=True)
            if token:
                _write_token(directory / "runs" / str(state.run), token)
            files.replace(directory / "session.json", to_text(session))
            files.replace(directory / "state.json", to_text(state))
            files.sync_renamed(self.sessions)

    def prepare_run(self, session_id: str, run: int) -> Path:
        directory = self.run_directory(session_id, run)
        with files.disk_errors("begin a run"):
            _make_run_directory(directory)
            # Not synced: after a power cut there is no run left that it could belong to.
            _write_token(directory, secrets.token_urlsafe(24))
            files.sync(directory.parent)
        return directory

    def token(self, session_id: str, run: int) -> str:
        """What the programs of a run prove with that they belong to it; empty: nobody can."""
        try:
            return (self.run_directory(session_id, run) / "token").read_text().strip()
        except OSError:
            return ""

    def change(self, expected: RunState, new: RunState, entry: HistoryEntry | None) -> None:
        """Replaces the state that memory believes in; state.json is the moment at which it has happened."""
        directory = self.directory(expected.session_id)
        with files.locked(directory), files.disk_errors("be changed"):
            present = self._present(directory, expected)
            if present is not expected and _written(present) != _written(expected):
                raise Conflict(present)
            # The state names its own transition and its own end, so what else tells of them must be on disk
            # before the next state only: a full disk may cost the history one line, never two.
            self._keep_history(directory, present)
            if _standing(new) != _standing(present):
                self._mend_certificate(present)
            text = to_text(new)
            files.replace(directory / "state.json", text)
            self._changed(directory, Change(expected, new, entry), text)

    def change_together(self, changes: Sequence[Change]) -> list[bool]:
        """Which of them were made. Of the others nothing was: change() makes one alone, or says why not."""
        texts: dict[Path, str] = {}
        by_file = {self.directory(change.new.session_id) / "state.json": change for change in changes}
        with contextlib.ExitStack() as locks:
            for file, change in by_file.items():
                if (release := files.lock_at_once(file.parent)) is None:
                    continue
                if self._is_simple(file.parent, change.expected):
                    locks.callback(release)
                    texts[file] = to_text(change.new)
                else:
                    release()
            made = files.replace_all(texts)
            for file in made:
                self._changed(file.parent, by_file[file], texts[file])
        return [file in made for file in by_file]

    def _is_simple(self, directory: Path, expected: RunState) -> bool:
        """Nobody else has changed it, and nothing else is to be written first."""
        is_told = self._history_kept.get(expected.session_id) == expected.state_changed_at
        try:
            return is_told and certificate_in(expected) is None and self._is_as_left(directory, expected)
        except NotReadable:
            return False

    def _is_as_left(self, directory: Path, expected: RunState) -> bool:
        """To read it as a record takes many times as long."""
        wrote, digest = self._wrote.get(expected.session_id, (None, b""))
        return wrote is expected and _digest(files.read_bytes(directory / "state.json")) == digest

    def _changed(self, directory: Path, change: Change, text: str) -> None:
        _, new, entry = change
        self._wrote[new.session_id] = new, _digest(text.encode())
        if entry is not None:
            with contextlib.suppress(OSError):
                if new.step_before:
                    files.append(directory / "history.jsonl", to_text(new.step_before))
                files.append(directory / "history.jsonl", to_text(entry))

    def keep_history(self, state: RunState) -> None:
        """Ahead of the next change, which is made sooner so."""
        directory = self.directory(state.session_id)
        with files.locked(directory), files.disk_errors("be kept"):
            if _standing(self._present(directory, state)) == _standing(state):
                self._keep_history(directory, state)

    def _keep_history(self, directory: Path, state: RunState) -> None:
        if self._history_kept.get(state.session_id) != state.state_changed_at:
            _mend_history(directory, state)
            files.sync(directory / "history.jsonl")
            self._history_kept[state.session_id] = state.state_changed_at

    def _present(self, directory: Path, expected: RunState) -> RunState:
        """What was spoiled while it is known in memory is put aside, and holds up nothing."""
        path = directory / "state.json"
        try:
            if self._is_as_left(directory, expected):
                return expected
            return files.read(RunState, path)
        except files.Unreachable:
            raise
        except NotReadable as error:
            if not path.exists() and not (directory / "session.json").exists():
                raise Missing("it was removed") from None
            logger.error("session %s goes on from memory: %s", expected.session_id, error)
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                # A link: until the new one is whole, the old one stays where it is as well.
                path.with_name(f"{path.name}.unreadable-{path.stat().st_mtime_ns}").hardlink_to(path)
            return expected

    def certify(self, certificate: Certificate) -> None:
        with files.locked(self.directory(certificate.session_id)), files.disk_errors("be certified"):
            self._write_certificate(certificate)

    def _mend_certificate(self, state: RunState) -> None:
        certificate = certificate_in(state)
        if certificate and not self._certificate_path(state.session_id, state.run).exists():
            self._write_certificate(certificate)

    def _write_certificate(self, certificate: Certificate) -> None:
        path = self._certificate_path(certificate.session_id, certificate.run)
        _make_run_directory(path.parent)
        files.replace(path, to_text(certificate))

    def remove(self, session_id: str) -> None:
        with files.locked(self.sessions), files.disk_errors("be removed"):
            self._forget(session_id)
            doomed = self.sessions / f".removed-{session_id}"
            shutil.rmtree(doomed, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                self.directory(session_id).rename(doomed)
            files.sync_renamed(self.sessions)
        shutil.rmtree(doomed, ignore_errors=True)

    def _forget(self, session_id: str) -> None:
        self._history_kept.pop(session_id, None)
        self._wrote.pop(session_id, None)

    def put_aside(self, session_id: str) -> Path:
        """Out of the way, and lost to nobody: where it is now."""
        with files.locked(self.sessions), files.disk_errors("be put aside"):
            self._forget(session_id)
            aside = paths.ensure_private(self.set_aside) / f"{session_id}-{time.time_ns()}"
            self.directory(session_id).rename(aside)
            files.sync_renamed(self.set_aside)
            files.sync_renamed(self.sessions)
        return aside

    def load_all(self) -> list[Known | Unreadable]:
        names = sorted(entry.name for entry in self.sessions.iterdir() if _is_session(entry))
        return [self.load(name) for name in names]

    def load(self, session_id: str) -> Known | Unreadable:
        directory = self.directory(session_id)
        session = None
        try:
            session = files.read(Session, directory / "session.json")
            if session.id != session_id:
                raise NotReadable(f"session.json is that of {session.id}")
            state = files.read(RunState, directory / "state.json")
            with contextlib.suppress(OSError, StoreError):
                if not _is_told(directory, state.state_changed_at):
                    with files.locked(directory):
                        # Read again: meanwhile it may have moved on, and been told of.
                        state = files.read(RunState, directory / "state.json")
                        _mend_history(directory, state)
            certificate = self.certificate(session_id, state.run) or certificate_in(state)
            return Known(session, state, certificate)
        except (StoreError, NotReadable) as error:
            name = session.name if session else session_id
            return Unreadable(session_id, name, str(error), session, self._last_run(session_id))

    def _last_run(self, session_id: str) -> int:
        """As its directories tell, 0 for none."""
        with contextlib.suppress(OSError):
            runs = (self.directory(session_id) / "runs").iterdir()
            return max((int(run.name) for run in runs if run.name.isdigit()), default=0)
        return 0

    def certificate(self, session_id: str, run: int) -> Certificate | None:
        path = self._certificate_path(session_id, run)
        return files.read(Certificate, path) if path.exists() else None

    def history(self, session_id: str) -> list[HistoryEntry]:
        """A line that a power cut left half written is no transition: the next load writes it again."""
        entries = []
        try:
            text = (self.directory(session_id) / "history.jsonl").read_bytes().decode(errors="replace")
        except FileNotFoundError:
            # It was deleted: the next transition begins it anew.
            return []
        except OSError as error:
            raise files.Unreachable(f"history.jsonl cannot be read: {error.strerror}") from None
        for line in lines_of(text):
            try:
                entries.append(from_text(HistoryEntry, line))
            except OfLaterSchema as error:
                raise OfLaterSchema(f"a line of history.jsonl cannot be read: {error}") from None
            except NotReadable:
                continue
        return entries


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _written(state: RunState) -> RunState:
    """Since when it waits moves on in memory, and is written with whatever is written next."""
    return replace(state, attention_at=0)


def _standing(state: RunState) -> tuple[Any, ...]:
    return state.state, state.run, state.state_changed_at


def _mend_history(directory: Path, state: RunState) -> None:
    """The state is written first; what came between the two must not cost the history its last line."""
    for entry in history_in(state):
        if not _is_told(directory, entry.at):
            files.append(directory / "history.jsonl", to_text(entry))


def _is_told(directory: Path, at: int) -> bool:
    """By the last line that can be read: half a line tells of nothing."""
    with contextlib.suppress(OSError):
        for line in files.lines_from_the_end(directory / "history.jsonl"):
            with contextlib.suppress(NotReadable):
                return from_text(HistoryEntry, line.decode(errors="replace")).at >= at
    return False


def _make_run_directory(directory: Path) -> None:
    """In its session's directory, which comes and goes with the session only."""
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _write_token(directory: Path, token: str) -> None:
    path = directory / "token"
    path.touch(mode=0o600)
    path.write_text(token + "\n")


def _is_session(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")
