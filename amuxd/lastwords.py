"""What amuxd has to say when it goes and the disk takes nothing more: said in room that was kept for it."""

import contextlib
import logging
import os
from pathlib import Path

from amuxd.records import LastWord, LastWords, NotReadable, from_text, to_text

logger = logging.getLogger(__name__)

# For two thousand sessions.
ROOM = 256 * 1024


class LastWordsFile:
    """It never grows and is written in place, and so needs no inode, and on most file systems no room either.

    One that copies what is written over takes it anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refusal = ""

    def keep_room(self) -> None:
        """Again and again: there may have been none yet, or somebody has deleted it."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(fd).st_size
                if size < ROOM:
                    # Written and not only reserved: also the file system is to need nothing more for it.
                    _write_at(fd, bytes(ROOM - size), size)
                    os.fsync(fd)
            finally:
                os.close(fd)
            refusal = ""
        except OSError as error:
            refusal = error.strerror or str(error)
        if refusal and refusal != self._refusal:
            logger.warning("no room is kept for what a full disk would refuse: %s", refusal)
        self._refusal = refusal

    def read(self) -> list[LastWord]:
        """What was half written says nothing."""
        with contextlib.suppress(OSError, NotReadable, UnicodeDecodeError):
            text = self._path.read_bytes().rstrip(b"\0").decode()
            return from_text(LastWords, text).words if text else []
        return []

    def write(self, words: list[LastWord]) -> None:
        text = to_text(LastWords(words)).encode() if words else b""
        if len(text) > ROOM:
            raise OSError(f"{len(words)} sessions are too many")
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_at(fd, text.ljust(ROOM, b"\0"), 0)
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_at(fd: int, content: bytes, at: int) -> None:
    """All of it: a disk that is nearly full takes a part, and only then refuses."""
    while content:
        written = os.pwrite(fd, content, at)
        content, at = content[written:], at + written
