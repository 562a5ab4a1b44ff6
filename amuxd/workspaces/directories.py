"""Tells when a directory may be gone: deleted, moved, replaced, or its file system unmounted."""

import asyncio
import contextlib
import os
import select
import stat
import threading
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from amuxd import inotify
from amuxd.inotify import Inotify

# A directory that is still in use is deleted without an event of its own: its parent tells.
_IN_PARENT = inotify.DELETE | inotify.MOVED_FROM | inotify.CREATE | inotify.MOVED_TO
_ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF
# Containers come with many mounts at once.
_MOUNTS_SETTLE = 0.01
_PATIENCE = 5.0


class Presence(StrEnum):
    PRESENT = "present"
    GONE = "gone"
    UNKNOWN = "unknown"


Identity = tuple[int, int]


def identify(directory: str) -> Identity | None:
    try:
        status = os.stat(directory)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino


def look(directory: str, known: Identity | None) -> Presence:
    """What is merely out of reach, by its permissions or its network, is not gone."""
    try:
        status = os.stat(directory)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return Presence.GONE
    except OSError:
        return Presence.UNKNOWN
    if not stat.S_ISDIR(status.st_mode):
        return Presence.GONE
    # Another directory in its place: the one that the sessions work in is not there any more.
    return Presence.GONE if known not in (None, (status.st_dev, status.st_ino)) else Presence.PRESENT


async def look_in_time(directory: str, known: Identity | None, patience: float = _PATIENCE) -> Presence:
    """A file system that does not answer holds up a thread of its own, which nobody waits for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Presence] = loop.create_future()

    def tell(presence: Presence) -> None:
        if not answer.done():
            answer.set_result(presence)

    def ask() -> None:
        presence = look(directory, known)
        # The loop may be closed by then.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, presence)

    threading.Thread(target=ask, daemon=True, name=f"look at {directory}").start()
    try:
        async with asyncio.timeout(patience):
            return await answer
    except TimeoutError:
        return Presence.UNKNOWN


class Directories:
    def __init__(self, suspect: Callable[[str], None]) -> None:
        self._suspect = suspect
        self._loop = asyncio.get_running_loop()
        self._inotify = Inotify()
        self._loop.add_reader(self._inotify.fd, self._events)
        # Which directories a watch is for; the name is the directory's own where the watch is its parent's.
        self._watched: dict[int, dict[str, str]] = {}
        self._watches: dict[str, set[int]] = {}
        self._mounts_fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._mounts = select.epoll()
        self._mounts.register(self._mounts_fd, select.EPOLLPRI | select.EPOLLERR)
        self._loop.add_reader(self._mounts.fileno(), self._mounts_changed)
        self._settling: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._loop.remove_reader(self._inotify.fd)
        self._loop.remove_reader(self._mounts.fileno())
        self._inotify.close()
        self._mounts.close()
        os.close(self._mounts_fd)
        if self._settling:
            self._settling.cancel()

    def __contains__(self, directory: str) -> bool:
        return directory in self._watches

    def watch(self, directory: str) -> None:
        """Blocks for as long as its file system does."""
        if directory in self._watches:
            return
        watches = self._watches[directory] = set()
        path = Path(directory)
        # Whose coming and going counts: its own or, where it is missing, that of what it lies in.
        missing = path.name
        for ancestor in (path, *path.parents):
            mask = _ITSELF | (_IN_PARENT if ancestor != path and missing else 0)
            # One that cannot be watched cannot be helped: the others, and the look at each start, remain.
            with contextlib.suppress(OSError):
                watch = self._inotify.add(ancestor, mask | inotify.ONLYDIR | inotify.MASK_ADD)
                watches.add(watch)
                self._watched.setdefault(watch, {})[directory] = missing if ancestor != path else ""
                if ancestor != path:
                    missing = ""
                continue
            missing = ancestor.name

    def forget(self, directory: str) -> None:
        for watch in self._watches.pop(directory, ()):
            users = self._watched.get(watch, {})
            users.pop(directory, None)
            if not users and self._watched.pop(watch, None) is not None:
                self._inotify.remove(watch)

    def _events(self) -> None:
        suspects: dict[str, None] = {}
        for event in self._inotify.read():
            if event.mask & inotify.OVERFLOW:
                suspects.update(dict.fromkeys(self._watches))
            users = self._watched.get(event.watch, {})
            if event.name:
                suspects.update(dict.fromkeys(d for d, name in users.items() if name == event.name))
            else:
                suspects.update(dict.fromkeys(users))
            if event.mask & inotify.IGNORED:
                self._watched.pop(event.watch, None)
        self._tell(suspects)

    def _mounts_changed(self) -> None:
        self._mounts.poll(0)
        if self._settling is None:
            self._settling = self._loop.call_later(_MOUNTS_SETTLE, self._mounts_settled)

    def _mounts_settled(self) -> None:
        self._settling = None
        self._tell(list(self._watches))

    def _tell(self, suspects: Iterable[str]) -> None:
        for directory in suspects:
            self._suspect(directory)
