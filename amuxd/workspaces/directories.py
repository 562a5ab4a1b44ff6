"""Tells when a directory may be gone: deleted, moved, replaced, or its file system unmounted."""

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import select
import stat
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from amuxd import inotify
from amuxd.inotify import Inotify
from amuxd.mounts import mounted
from amuxd.threads import alone, is_asked, one_at_a_time

Result = TypeVar("Result")

# A directory that is still in use is deleted without an event of its own: its parent tells.
_IN_PARENT = inotify.DELETE | inotify.MOVED_FROM | inotify.CREATE | inotify.MOVED_TO
_ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF
# Containers come with many mounts at once.
_MOUNTS_SETTLE = 0.01
PATIENCE = 5.0
logger = logging.getLogger(__name__)

_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_STATX_SIZE = 256
_STATX_MNT_ID = 0x1000
_STATX_MNT_ID_AT = 144

# What answers at all answers by then, and be it a hundred of them.
_TOGETHER = 0.1


class Presence(StrEnum):
    PRESENT = "present"
    GONE = "gone"
    UNKNOWN = "unknown"


class Identity(NamedTuple):
    device: int
    inode: int
    # Where it was seen: the same directory can be in more than one place.
    mount: int

    def is_same(self, other: "Identity | None") -> bool:
        return other is not None and self[:2] == other[:2]


def identify(directory: str) -> Identity | None:
    try:
        status = os.stat(directory)  # noqa: PTH116
        return Identity(status.st_dev, status.st_ino, _mount_of(directory))
    except OSError:
        return None


def _mount_of(path: Path | str) -> int:
    """Asked without opening it, which would keep others from unmounting it. 0: the kernel does not tell."""
    told = ctypes.create_string_buffer(_STATX_SIZE)
    if _libc.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_MNT_ID, told) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    (mask,), (mount,) = struct.unpack_from("=I", told), struct.unpack_from("=Q", told, _STATX_MNT_ID_AT)
    return int(mount) if mask & _STATX_MNT_ID else 0


def _is_covered(directory: str, known: Identity) -> bool:
    """By another file system, while the one that it is in is mounted as before: it may well come back."""
    return _mount_on_way(directory) != known.mount and known.mount in _mounts_above(directory)


def _mount_on_way(directory: str) -> int:
    for place in (Path(directory), *Path(directory).parents):
        with contextlib.suppress(OSError):
            return _mount_of(place)
    return 0


def _mounts_above(directory: str) -> set[int]:
    return {number for number, place in mounted() if Path(directory).is_relative_to(place)}


def look(directory: str, known: Identity | None) -> Presence:
    """What is merely out of reach, by its permissions or its network, is not gone."""
    while True:
        before = _mount_on_way(directory) if known is not None else 0
        presence = _look_once(directory, known)
        # What covered it may have gone between one question and the next: it was not looked at itself.
        if presence is not Presence.GONE or known is None or _mount_on_way(directory) == before:
            return presence


def _look_once(directory: str, known: Identity | None) -> Presence:
    try:
        status = os.stat(directory)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return _not_there(directory, known)
    except OSError:
        return Presence.UNKNOWN
    if not stat.S_ISDIR(status.st_mode):
        return Presence.GONE
    if known is not None and (known.device, known.inode) != (status.st_dev, status.st_ino):
        # Another directory in its place: the one that the sessions work in is not there any more.
        return _not_there(directory, known)
    return Presence.PRESENT


def _not_there(directory: str, known: Identity | None) -> Presence:
    return Presence.UNKNOWN if known is not None and _is_covered(directory, known) else Presence.GONE


async def ask(directory: str, question: Callable[..., Result], *about: object) -> Result:
    """Raises TimeoutError where the file system does not answer."""
    return await one_at_a_time(directory, partial(question, directory, *about), PATIENCE)


async def look_in_time(directory: str, known: Identity | None) -> Presence:
    try:
        return await ask(directory, look, known)
    except TimeoutError:
        return Presence.UNKNOWN


async def real_in_time(path: str) -> str:
    try:
        return await ask(path, os.path.realpath)
    except OSError:
        # As it is written: what does not answer is not what is removed.
        return path


async def look_at_all(looked_at: Sequence[str]) -> list[Presence]:
    """One thread looks at all; at what holds it up, and at all behind that, each a thread of its own."""
    found: dict[str, Presence] = {}
    # Nobody waits a second time for what hangs already.
    likely = [place for place in dict.fromkeys(looked_at) if not is_asked(place)]

    def look_at_each() -> None:
        for place in likely:
            found[place] = look(place, None)

    with contextlib.suppress(TimeoutError):
        await alone(look_at_each, _TOGETHER)
    known = dict(found)
    others = [place for place in dict.fromkeys(looked_at) if place not in known]
    looks = await asyncio.gather(*(look_in_time(place, None) for place in others))
    known.update(zip(others, looks, strict=True))
    return [known[place] for place in looked_at]


class Directories:
    def __init__(self, suspect: Callable[[str], None]) -> None:
        self._suspect = suspect
        self._loop = asyncio.get_running_loop()
        self._inotify = Inotify()
        self._loop.add_reader(self._inotify.fd, self._events)
        # Whom a watch is for; the name is the directory's own where the watch is its parent's.
        self._watched: dict[int, dict[str, str]] = {}
        self._watches: dict[str, set[int]] = {}
        self._directories: dict[str, str] = {}
        # Those that are over, while a thread sets some that may be the same.
        self._beginning = 0
        self._ended: set[int] = set()
        self._mounts_fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._mounts = select.epoll()
        self._mounts.register(self._mounts_fd, select.EPOLLPRI | select.EPOLLERR)
        self._loop.add_reader(self._mounts.fileno(), self._mounts_changed)
        self._reported = False
        self._settling: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._loop.remove_reader(self._inotify.fd)
        self._loop.remove_reader(self._mounts.fileno())
        self._inotify.close()
        self._mounts.close()
        os.close(self._mounts_fd)
        if self._settling:
            self._settling.cancel()

    def are_watched(self, directory: str, whose: str) -> bool:
        return self._directories.get(whose) == directory

    async def watch(self, directory: str, whose: str) -> Identity | None:
        """Which one is watched now, if it is there; TimeoutError where its file system does not answer."""
        self._beginning += 1
        try:
            while True:
                # First: what comes in its place while the watches are set is another one.
                known, watches = await ask(directory, self._identify_and_begin)
                if not self._ended & set(watches):
                    break
        finally:
            self._beginning -= 1
            if not self._beginning:
                self._ended.clear()
        self._directories[whose], self._watches[whose] = directory, set(watches)
        for watch, name in watches.items():
            self._watched.setdefault(watch, {})[whose] = name
        return known

    def _identify_and_begin(self, directory: str) -> tuple[Identity | None, dict[int, str]]:
        return identify(directory), self._begin(directory)

    def _begin(self, directory: str) -> dict[int, str]:
        """In a thread. The watches, and the name that each is for: none is the directory's own."""
        watches = {}
        path = Path(directory)
        # Whose coming and going counts: its own or, where it is missing, that of what it lies in.
        missing = path.name
        for ancestor in (path, *path.parents):
            mask = _ITSELF | (_IN_PARENT if ancestor != path and missing else 0)
            try:
                watch = self._inotify.add(ancestor, mask | inotify.ONLYDIR | inotify.MASK_ADD)
                watches[watch] = missing if ancestor != path else ""
                if ancestor != path:
                    missing = ""
            except OSError as error:
                self._report(ancestor, error)
                missing = ancestor.name
        return watches

    def _report(self, place: Path, error: OSError) -> None:
        """The others, and the look from time to time, remain."""
        # What is not there, or nobody may look into, is an everyday matter.
        is_ordinary = isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError))
        if not is_ordinary and not self._reported:
            self._reported = True
            hint = "; sysctl fs.inotify.max_user_watches allows more" if error.errno == errno.ENOSPC else ""
            logger.warning(
                "directories that go may be noticed late, for %s cannot be watched: %s%s",
                *(place, error.strerror, hint),
            )

    def forget(self, whose: str) -> None:
        self._directories.pop(whose, None)
        for watch in self._watches.pop(whose, ()):
            users = self._watched.get(watch, {})
            users.pop(whose, None)
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
                suspects.update(dict.fromkeys(user for user, name in users.items() if name == event.name))
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
        for whose in suspects:
            self._suspect(whose)
