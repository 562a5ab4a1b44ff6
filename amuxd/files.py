"""How durable files are written: under a lock, whole or not at all, on disk before anybody is told of it."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from amuxd.records import NotReadable, Record, from_text

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = 10.0
BLOCK = 4096
# A pipe that somebody put in the place of a file holds up nobody.
_AT_ONCE = os.O_CLOEXEC | os.O_NONBLOCK


class StoreError(Exception):
    """The change did not reach the disk, and nothing was changed."""


class Locked(StoreError):
    """Another process keeps the lock; later it may not."""


class Missing(StoreError):
    """What was to be changed is no more."""


class Unreachable(NotReadable):
    """It may be whole: it could not be got at now."""


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    release = lock_at_once(directory) or _lock_in_time(directory)
    try:
        yield
    finally:
        release()


def lock_at_once(directory: Path) -> Callable[[], None] | None:
    """As a FileLock takes it where nobody else has it, at a twentieth of the price; None: it takes more."""
    try:
        fd = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    if not os.fstat(fd).st_nlink:
        # Taken away since it was opened: whoever comes now makes another.
        os.close(fd)
        return None
    return partial(_unlock, fd)


def _unlock(fd: int) -> None:
    """Not by closing alone: a process that is just being started may still have it open."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _lock_in_time(directory: Path) -> Callable[[], None]:
    # Newer versions of the lock would make it, and what was removed would be back.
    if not directory.is_dir():
        raise Missing(f"{directory} does not exist")
    try:
        lock = FileLock(str(directory / ".lock"), timeout=LOCK_TIMEOUT)
        lock.acquire(poll_interval=0.01)
    except Timeout:
        raise Locked(f"{directory} has been locked by another process for {LOCK_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise StoreError(f"{directory} cannot be locked: {error.strerror}") from error
    return lock.release


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"it could not {what}: {error.strerror}") from error
    except NotReadable as error:
        raise StoreError(f"it could not {what}: {error}") from error


def read(kind: type[Record], path: Path) -> Record:
    try:
        return from_text(kind, read_text(path))
    except NotReadable as error:
        raise type(error)(f"{path.name} cannot be read: {error}") from None


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise NotReadable("it is not UTF-8") from None


def read_bytes(path: Path) -> bytes:
    try:
        return _read(path)
    except FileNotFoundError as error:
        raise NotReadable(str(error.strerror)) from None
    except OSError as error:
        raise Unreachable(str(error.strerror)) from None


def _read(path: Path) -> bytes:
    """With no more calls than it takes: threads that write side by side wait for each other after each."""
    fd = os.open(path, os.O_RDONLY | _AT_ONCE)
    try:
        return b"".join(iter(partial(os.read, fd, BLOCK), b""))
    finally:
        os.close(fd)


def lines_from_the_end(path: Path) -> Iterator[bytes]:
    """The last one first; no more of the file is read than is asked for."""
    with path.open("rb") as file:
        begun = b""
        position = file.seek(0, os.SEEK_END)
        while position:
            size = min(BLOCK, position)
            position -= size
            file.seek(position)
            begun, *whole = (file.read(size) + begun).split(b"\n")
            yield from reversed(whole)
        yield begun


def write(path: Path, text: str) -> None:
    fd = unsynced(path, text)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unsynced(path: Path, text: str) -> int:
    """The file, which is still to be synced and closed."""
    data = text.encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _AT_ONCE, 0o600)
    try:
        _write_all(fd, data)
    except OSError:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, data: bytes) -> None:
    while data:
        # A disk that fills up takes a part first, and says so only when asked to take more.
        data = data[os.write(fd, data) :]


def replace(path: Path, text: str) -> None:
    scratch = _scratch(path)
    try:
        write(scratch, text)
        scratch.rename(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    sync_renamed(path.parent)


def replace_all(texts: Mapping[Path, str]) -> set[Path]:
    """Those that were replaced, the others are as they were.

    Each step is made with all of them, so that the disk brings its own records up to date a few times, and
    not twice for each.
    """
    begun: dict[Path, int] = {}
    for path, text in texts.items():
        with contextlib.suppress(OSError):
            begun[path] = unsynced(_scratch(path), text)
            # The disk may begin before anybody waits for it.
            os.posix_fadvise(begun[path], 0, 0, os.POSIX_FADV_DONTNEED)
    written = [path for path, fd in begun.items() if _synced_and_closed(fd)]
    replaced = {path for path in written if _put_in_place(path)}
    for path in texts.keys() - replaced:
        with contextlib.suppress(OSError):
            _scratch(path).unlink(missing_ok=True)
    for path in replaced:
        sync_renamed(path.parent)
    return replaced


def _scratch(path: Path) -> Path:
    # The lock is held, and what a killed amuxd left half written under this name is written anew.
    return path.with_name(f"{path.name}.new")


def _synced_and_closed(fd: int) -> bool:
    try:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


def _put_in_place(path: Path) -> bool:
    try:
        _scratch(path).rename(path)
    except OSError:
        return False
    return True


def append(path: Path, line: str) -> None:
    """Not yet on disk: that is asked for by sync()."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = "\n" + line
        try:
            _write_all(fd, line.encode())
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def sync_renamed(directory: Path) -> None:
    """What was renamed has happened for everybody who looks, so a failure here can take nothing back.

    A power cut would bring back what was there before, and amuxd finds its way from any earlier state.
    """
    try:
        sync(directory)
    except OSError as error:
        logger.error("%s could not be synced: %s", directory, error.strerror)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
