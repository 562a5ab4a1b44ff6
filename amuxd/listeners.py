"""Who listens where in the file system, as the kernel tells it: to knock and see would wake systemd."""

import contextlib
import os
import socket
import struct
from pathlib import Path

# From the kernel's linux/sock_diag.h and linux/unix_diag.h.
_SOCK_DIAG = 4
_BY_FAMILY = 20
_DUMP = 0x301
_LISTENING = 1 << 10
_SHOW_PLACE = 2
_PLACE = 1
_EVERY = 0xFFFFFFFF
_ERROR, _DONE = 2, 3

_MESSAGE = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBHIIIII")
_SOCKET = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_INODE = struct.Struct("=II")
_LONGEST = 1 << 16

# A file: its device and its number there, as far as the kernel tells that of a socket.
Place = tuple[int, int]


def place_of(path: Path) -> Place | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    # The kernel's own way to write a device down is another one than that of stat().
    return os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino & 0xFFFFFFFF


def place_of_socket(listening: socket.socket) -> Place | None:
    """Where it was bound, whatever lies at that path by now; None: nobody can tell."""
    return places().get(os.fstat(listening.fileno()).st_ino)


def is_listened_at(path: Path) -> bool:
    place = place_of(path)
    return place is not None and place in places().values()


def places() -> dict[int, Place]:
    """Of every socket that is listened on; empty where the kernel does not tell."""
    question = _QUESTION.pack(socket.AF_UNIX, 0, 0, _LISTENING, 0, _SHOW_PLACE, _EVERY, _EVERY)
    found: dict[int, Place] = {}
    header = _MESSAGE.pack(_MESSAGE.size + len(question), _BY_FAMILY, _DUMP, 0, 0)
    # What was told until it fails is true.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel,
    ):
        kernel.send(header + question)
        while _take_in(kernel.recv(_LONGEST), found):
            pass
    return found


def _take_in(answer: bytes, found: dict[int, Place]) -> bool:
    """False: it was the last."""
    at = 0
    while at < len(answer):
        length, kind, *_ = _MESSAGE.unpack_from(answer, at)
        if kind in (_ERROR, _DONE):
            return False
        _read_socket(answer[at + _MESSAGE.size : at + length], found)
        at += _aligned(length)
    return bool(answer)


def _read_socket(told: bytes, found: dict[int, Place]) -> None:
    number = _SOCKET.unpack_from(told)[4]
    at = _SOCKET.size
    while at < len(told):
        length, kind = _ATTRIBUTE.unpack_from(told, at)
        if kind == _PLACE:
            inode, device = _INODE.unpack_from(told, at + _ATTRIBUTE.size)
            found[number] = device, inode
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
