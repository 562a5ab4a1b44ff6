"""The kernel's file events, which the standard library does not offer."""

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path

ACCESS = 0x001
MODIFY = 0x002
CLOSE_WRITE = 0x008
MOVED_FROM = 0x040
MOVED_TO = 0x080
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
OVERFLOW = 0x4000
IGNORED = 0x8000
ONLYDIR = 0x01000000
MASK_ADD = 0x20000000
ONESHOT = 0x80000000

_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Event:
    watch: int
    mask: int
    name: str


class UsedUp(OSError):
    """The user's other programs have all that the kernel gives one user."""


class Inotify:
    def __init__(self) -> None:
        try:
            self.fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            hint = "sysctl fs.inotify.max_user_instances allows more"
            raise UsedUp(error.errno, f"no file can be watched: {error.strerror} ({hint})") from error

    def add(self, path: Path, mask: int) -> int:
        return _checked(_libc.inotify_add_watch(self.fd, os.fsencode(path), ctypes.c_uint32(mask)))

    def remove(self, watch: int) -> None:
        # A watch whose file is gone has removed itself.
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> list[Event]:
        try:
            data = os.read(self.fd, 64 * 1024)
        except BlockingIOError:
            return []
        events = []
        while data:
            watch, mask, _, length = _HEADER.unpack_from(data)
            name = data[_HEADER.size : _HEADER.size + length].rstrip(b"\0")
            events.append(Event(watch, mask, os.fsdecode(name)))
            data = data[_HEADER.size + length :]
        return events

    def close(self) -> None:
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
