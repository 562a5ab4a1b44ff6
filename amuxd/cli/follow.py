"""The files that a run's output is in, and word of their growth from the kernel."""

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from amuxd.logs import END_OF_LOG

_BLOCK = 1 << 18
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100


def opened(log: Path, lines: int | None, marks: Sequence[bytes] = (END_OF_LOG,)) -> list[BinaryIO]:
    """What was put aside when the log was full, then the log; each at where its last lines begin."""
    while True:
        present = _open(log)
        aside = _open(_put_aside(log))
        if present is None or aside is None or not os.path.sameopenfile(present.fileno(), aside.fileno()):
            break
        # The log was put aside in this very moment: it is there twice, and the new one is missing.
        present.close()
        aside.close()
    files = [file for file in (aside, present) if file is not None]
    if lines is not None:
        _seek_last_lines(files, lines, marks)
    return files


def is_beginning_dropped(log: Path) -> bool:
    """When the log was full once more, what had been put aside before had to go."""
    return log.with_name(log.name + ".dropped").exists()


def _put_aside(log: Path) -> Path:
    return log.with_name(log.name + ".1")


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _seek_last_lines(files: list[BinaryIO], wanted: int, marks: Sequence[bytes]) -> None:
    is_end = True
    for file in reversed(files):
        start, wanted = _start_of_last(file, wanted, marks if is_end else ())
        is_end = is_end and os.fstat(file.fileno()).st_size == 0
        file.seek(start)


def _start_of_last(file: BinaryIO, wanted: int, marks: Sequence[bytes]) -> tuple[int, int]:
    """Where the last lines begin, and how many more of them are before this file.

    The marks are those that it may end with, where it is the end.
    """
    position = file.seek(0, os.SEEK_END)
    while mark := next((mark for mark in marks if _ends_with(file, position, mark)), b""):
        position -= len(mark)
    if wanted == 0:
        return position, 0
    # The newline that ends the last line begins no other.
    skip = bool(marks)
    while position > 0:
        size = min(_BLOCK, position)
        position = file.seek(position - size)
        block = file.read(size)
        end = size - 1 if skip and block.endswith(b"\n") else size
        skip = False
        while (newline := block.rfind(b"\n", 0, end)) >= 0:
            wanted -= 1
            if wanted == 0:
                return position + newline + 1, 0
            end = newline
    return 0, wanted


def _ends_with(file: BinaryIO, end: int, mark: bytes) -> bool:
    return end >= len(mark) and os.pread(file.fileno(), len(mark), end - len(mark)) == mark


class Printed:
    """What the session printed: the marks that amuxd knows the places in a log by are not of it."""

    def __init__(self, marks: Sequence[bytes] = (END_OF_LOG,)) -> None:
        self._marks = marks
        self._held = b""

    def of(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            data = self._held + block
            for mark in self._marks:
                data = data.replace(mark, b"")
            held = max(n for mark in self._marks for n in range(len(mark)) if data.endswith(mark[:n]))
            self._held = data[len(data) - held :]
            if shown := data[: len(data) - held]:
                yield shown

    def rest(self) -> bytes:
        """What began like the mark, and was no more than that."""
        held, self._held = self._held, b""
        return held


def blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _return_to_end(file: BinaryIO) -> None:
    """A mark was taken out that had been read, and what is printed next takes its place."""
    end = os.fstat(file.fileno()).st_size
    if file.tell() > end:
        file.seek(end)


class Growth:
    """What a log grows by, also when it is put aside and a new one begun."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file: BinaryIO | None = None
        # Whoever reads slowly may find that what came next is gone.
        self.may_have_missed = False
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
        # The directory, for the log itself is replaced.
        if self._inotify < 0 or libc.inotify_add_watch(self._inotify, os.fsencode(log.parent), mask) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(log.parent))

    def fileno(self) -> int:
        return self._inotify

    def after(self, file: BinaryIO) -> None:
        """This much was read already."""
        self._file = file

    def blocks(self) -> Iterator[bytes]:
        self._forget_events()
        while True:
            self._file = self._file or _open(self._log)
            if self._file is None:
                return
            _return_to_end(self._file)
            yield from blocks(self._file)
            if not self._is_replaced(self._file):
                return
            # It may have been written to until the very moment that it was replaced.
            yield from blocks(self._file)
            self._file = self._next_after(self._file)

    def _next_after(self, file: BinaryIO) -> BinaryIO | None:
        """What was put aside meanwhile, or nothing: then it is the log."""
        aside = _open(_put_aside(self._log))
        if aside is not None and os.path.sameopenfile(aside.fileno(), file.fileno()):
            aside.close()
            aside = None
        file.close()
        self.may_have_missed = self.may_have_missed or aside is not None
        return aside

    def _forget_events(self) -> None:
        try:
            while os.read(self._inotify, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            present = self._log.stat()
        except FileNotFoundError:
            return False
        known = os.fstat(file.fileno())
        return (present.st_ino, present.st_dev) != (known.st_ino, known.st_dev)
