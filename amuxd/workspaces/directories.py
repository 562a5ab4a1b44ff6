"""Tells when a directory may be gone: deleted, moved, replaced, or its file system unmounted."""

import asyncio
import contextlib
import os
import select
import stat
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from amuxd import inotify
from amuxd.inotify import Inotify
from amuxd.threads import alone

Result = TypeVar("Result")

# A directory that is still in use is deleted without an event of its own: its parent tells.
_IN_PARENT = inotify.DELETE | inotify.MOVED_FROM | inotify.CREATE | inotify.MOVED_TO
_ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF
# Containers come with many mounts at once.
_MOUNTS_SETTLE = 0.01
PATIENCE = 5.0


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


_asked: dict[tuple[str, Identity | None], asyncio.Future[Presence]] = {}


async def look_in_time(directory: str, known: Identity | None, patience: float = PATIENCE) -> Presence:
    """A file system that does not answer holds up one thread of its own, however often it is asked."""
    key = directory, known
    answer = _asked.get(key)
    if answer is None:
        answer = _asked[key] = asyncio.ensure_future(alone(partial(look, directory, known)))
        answer.add_done_callback(lambda _: _asked.pop(key, None))
    try:
        async with asyncio.timeout(patience):
            return await asyncio.shield(answer)
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
        # Those that are over, while a thread sets some that may be the same.
        self._beginning = 0
        self._ended: set[int] = set()
        self._unanswered: set[str] = set()
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

    async def look(self, directory: str, known: Identity | None) -> Presence:
        try:
            return await self._ask(directory, partial(look, directory, known))
        except TimeoutError:
            return Presence.UNKNOWN

    async def watch(self, directory: str) -> Identity | None:
        """Which one is watched now, if it is there; TimeoutError where its file system does not answer."""
        self._beginning += 1
        try:
            while True:
                # First: what comes in its place while the watches are set is another one.
                known, watches = await self._ask(
                    directory, lambda: (identify(directory), self._begin(directory))
                )
                if not self._ended & set(watches):
                    break
        finally:
            self._beginning -= 1
            if not self._beginning:
                self._ended.clear()
        self._watches[directory] = set(watches)
        for watch, name in watches.items():
            self._watched.setdefault(watch, {})[directory] = name
        return known

    async def _ask(self, directory: str, work: Callable[[], Result]) -> Result:
        """While it does not answer one thread waits for it, and no more."""
        if directory in self._unanswered:
            raise TimeoutError
        self._unanswered.add(directory)

        def answer() -> Result:
            try:
                return work()
            finally:
                self._unanswered.discard(directory)

        return await alone(answer, PATIENCE)

    def _begin(self, directory: str) -> dict[int, str]:
        """In a thread. The watches, and the name that each is for: none is the directory's own."""
        watches = {}
        path = Path(directory)
        # Whose coming and going counts: its own or, where it is missing, that of what it lies in.
        missing = path.name
        for ancestor in (path, *path.parents):
            mask = _ITSELF | (_IN_PARENT if ancestor != path and missing else 0)
            # One that cannot be watched cannot be helped: the others, and the look at each start, remain.
            with contextlib.suppress(OSError):
                watch = self._inotify.add(ancestor, mask | inotify.ONLYDIR | inotify.MASK_ADD)
                watches[watch] = missing if ancestor != path else ""
                if ancestor != path:
                    missing = ""
                continue
            missing = ancestor.name
        return watches

    def forget(self, directory: str) -> None:
        for watch in self._watches.pop(directory, ()):
            users = self._watched.get(watch, {})
            users.pop(directory, None)
            if not users and self._watched.pop(watch, None) is not None:
                self._inotify.remove(watch)
                self._end(watch)

    def _end(self, watch: int) -> None:
        if self._beginning:
            self._ended.add(watch)

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
                self._end(event.watch)
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
