"""Durable files: every change under a lock, on disk before anybody is told of it."""

import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from amuxd import paths
from amuxd.records import (
    Certificate,
    HistoryEntry,
    NotReadable,
    Record,
    RunState,
    Session,
    from_text,
    to_text,
)

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = 10.0


class StoreError(Exception):
    """The change did not reach the disk, and nothing was changed."""


class Conflict(StoreError):
    """Somebody else changed the session since it was read."""

    def __init__(self, present: RunState) -> None:
        super().__init__(f"another process made it {present.state}")
        self.present = present


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


class Store:
    def __init__(self, root: Path) -> None:
        self.sessions = paths.ensure_private(root / "sessions")
        self._clear_half_done()

    def _clear_half_done(self) -> None:
        """A dot in front marks what was not finished being made, or was being removed."""
        with self._locked(self.sessions):
            for leftover in self.sessions.glob(".[nr]*-*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def directory(self, session_id: str) -> Path:
        return self.sessions / session_id

    def run_directory(self, session_id: str, run: int) -> Path:
        return self.sessions / session_id / "runs" / str(run)

    def log(self, session_id: str, run: int) -> Path:
        return self.run_directory(session_id, run) / "output.log"

    @contextlib.contextmanager
    def _locked(self, directory: Path) -> Iterator[None]:
        try:
            lock = FileLock(str(directory / ".lock"), timeout=LOCK_TIMEOUT)
            lock.acquire(poll_interval=0.01)
        except Timeout:
            raise StoreError(
                f"{directory} has been locked by another process for {LOCK_TIMEOUT:.0f} s"
            ) from None
        except OSError as error:
            raise StoreError(f"{directory} cannot be locked: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    def create(self, session: Session, state: RunState, entry: HistoryEntry) -> None:
        with self._locked(self.sessions), _disk_errors("be created"):
            if self.directory(session.id).exists():
                raise StoreError(f"there is a session {session.id} already")
            scratch = self.sessions / f".new-{session.id}"
            shutil.rmtree(scratch, ignore_errors=True)
            (scratch / "runs").mkdir(mode=0o700, parents=True)
            scratch.chmod(0o700)
            try:
                _write(scratch / "session.json", to_text(session))
                _write(scratch / "state.json", to_text(state))
                _append(scratch / "history.jsonl", to_text(entry))
                _sync_directory(scratch)
                scratch.rename(self.directory(session.id))
            except OSError:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            _sync_renamed(self.sessions)

    def prepare_run(self, session_id: str, run: int) -> Path:
        directory = self.run_directory(session_id, run)
        with _disk_errors("begin a run"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not synced: after a power cut there is no run left that it could belong to.
            token = directory / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_urlsafe(24) + "\n")
            _sync_directory(directory.parent)
        return directory

    def token(self, session_id: str, run: int) -> str:
        """What the programs of a run prove with that they belong to it; empty: nobody can."""
        try:
            return (self.run_directory(session_id, run) / "token").read_text().strip()
        except OSError:
            return ""

    def change(
        self,
        expected: RunState,
        new: RunState,
        entry: HistoryEntry | None,
        certificate: Certificate | None = None,
    ) -> None:
        """Replaces the state that memory believes in; state.json is the moment at which it has happened."""
        directory = self.directory(expected.session_id)
        with self._locked(directory), _disk_errors("be changed"):
            present = self._read(RunState, directory / "state.json")
            if _standing(present) != _standing(expected):
                raise Conflict(present)
            # A full disk may cost the history one line, never two: the next state waits for it.
            _mend_history(directory, present)
            if certificate is not None:
                self._write_certificate(certificate)
            _replace(directory / "state.json", to_text(new))
            if entry is not None:
                # The state names its own transition, so what comes next can mend a history that missed it.
                with contextlib.suppress(OSError):
                    _append(directory / "history.jsonl", to_text(entry))

    def amend_certificate(self, certificate: Certificate) -> None:
        with self._locked(self.directory(certificate.session_id)), _disk_errors("be certified"):
            self._write_certificate(certificate)

    def _write_certificate(self, certificate: Certificate) -> None:
        directory = self.run_directory(certificate.session_id, certificate.run)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(directory / "exit.json", to_text(certificate))

    def remove(self, session_id: str) -> None:
        with self._locked(self.sessions), _disk_errors("be removed"):
            doomed = self.sessions / f".removed-{session_id}"
            shutil.rmtree(doomed, ignore_errors=True)
            self.directory(session_id).rename(doomed)
            _sync_renamed(self.sessions)
        shutil.rmtree(doomed, ignore_errors=True)

    def load_all(self) -> list[Known | Unreadable]:
        names = sorted(entry.name for entry in self.sessions.iterdir() if _is_session(entry))
        return [self.load(name) for name in names]

    def load(self, session_id: str) -> Known | Unreadable:
        directory = self.directory(session_id)
        name = session_id
        try:
            session = self._read(Session, directory / "session.json")
            name = session.name
            if session.id != session_id:
                raise NotReadable(f"session.json is that of {session.id}")
            state = self._read(RunState, directory / "state.json")
            with contextlib.suppress(OSError, StoreError):
                if not _is_told(directory, state):
                    with self._locked(directory):
                        # Read again: meanwhile it may have moved on, and been told of.
                        state = self._read(RunState, directory / "state.json")
                        _mend_history(directory, state)
            return Known(session, state, self.certificate(session_id, state.run))
        except (StoreError, NotReadable) as error:
            return Unreadable(session_id, name, str(error))

    def certificate(self, session_id: str, run: int) -> Certificate | None:
        path = self.run_directory(session_id, run) / "exit.json"
        return self._read(Certificate, path) if path.exists() else None

    def history(self, session_id: str) -> list[HistoryEntry]:
        """A line that a power cut left half written is no transition: the next load writes it again."""
        entries = []
        text = (self.directory(session_id) / "history.jsonl").read_bytes().decode(errors="replace")
        for line in text.splitlines():
            with contextlib.suppress(NotReadable):
                entries.append(from_text(HistoryEntry, line))
        return entries

    def _read(self, kind: type[Record], path: Path) -> Record:
        try:
            return from_text(kind, _read_text(path))
        except NotReadable as error:
            raise NotReadable(f"{path.name} cannot be read: {error}") from None


def _standing(state: RunState) -> tuple[Any, ...]:
    return state.state, state.run, state.state_changed_at


def _mend_history(directory: Path, state: RunState) -> None:
    """The state is written first; what came between the two must not cost the history its last line."""
    if not _is_told(directory, state):
        at, run = state.state_changed_at, state.run
        entry = HistoryEntry(at, run, state.previous, state.state, state.reason, state.changed_for)
        _append(directory / "history.jsonl", to_text(entry))


def _is_told(directory: Path, state: RunState) -> bool:
    return f'"at":{state.state_changed_at},' in _tail(directory / "history.jsonl")


def _is_session(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


@contextlib.contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"it could not {what}: {error.strerror}") from error
    except NotReadable as error:
        raise StoreError(f"it could not {what}: {error}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotReadable(str(error.strerror)) from None
    except UnicodeDecodeError:
        raise NotReadable("it is not UTF-8") from None


def _tail(path: Path, size: int = 4096) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, text: str) -> None:
    # The lock is held, and what a killed amuxd left half written under this name is written anew.
    scratch = path.with_name(f"{path.name}.new")
    try:
        _write(scratch, text)
        scratch.rename(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    _sync_renamed(path.parent)


def _append(path: Path, line: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = "\n" + line
        rest = line.encode()
        try:
            while rest:
                # A disk that fills up takes a part first, and says so only when asked to take more.
                rest = rest[os.write(fd, rest) :]
            os.fdatasync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _sync_renamed(directory: Path) -> None:
    """What was renamed has happened for everybody who looks, so a failure here can take nothing back.

    A power cut would bring back what was there before, and amuxd finds its way from any earlier state.
    """
    try:
        _sync_directory(directory)
    except OSError as error:
        logger.error("%s could not be synced: %s", directory, error.strerror)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
