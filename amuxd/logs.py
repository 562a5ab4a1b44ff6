"""The end of a log as a person would have seen it."""

import contextlib
import os
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

LINES = 20
LONGEST_LINE = 500
# A word to the terminal that no terminal knows, and so shows.
END_OF_LOG = b"\x1b]7702;amux;end\x1b\\"
_TAIL = 64 * 1024
_MUCH = 1024 * 1024
# What stat counts in.
_BLOCK = 512
# A file system may need so much itself to say where a file is.
_OVERHEAD = 16 * 1024
# An amuxd prints one, and another after it where that one was killed; a program may print any number itself.
_MOST_ENDS = 16

_ESCAPES = re.compile(
    r"\x1b(?:\[(?:(?P<count>[0-9]*)[0-9;]*(?P<move>[ABCEFGHade`f])|[0-?]*[ -/]*[@-~])"  # a control sequence
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a string, such as a title
    r"|[ -/]*[0-~])"  # everything shorter
)
_FORWARD, _TO_LINE = "Ca", "ABEFHdef"
_MOVED_TO_LINE = "\v"
_OTHER_LINE = re.compile(r"[\v\f]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def shell_word(session_id: str, run: int) -> str:
    """Said when the shell opens after the command in it: no other run's, which the command may print."""
    return f"7702;amux;shell;{session_id};{run}"


def shell_mark(session_id: str, run: int) -> bytes:
    return f"\x1b]{shell_word(session_id, run)}\x1b\\".encode()


def last_lines(log: Path, count: int = LINES, before: bytes = b"") -> list[str]:
    """Of all that was printed, or of what came before a mark."""
    data = _printed_before(log, before) if before else None
    if data is None:
        data = _tail(log)
        if len(data) < _TAIL:
            data = _tail(aside_of(log)) + data
    lines = _seen(data)
    while lines and not lines[-1]:
        lines.pop()
    return lines[-count:]


def last_written(log: Path) -> int:
    """In microseconds since the epoch; 0 where nothing was written."""
    return last_changed(log) if size_of(log) else 0


def last_changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def shows(output: bytes) -> bool:
    """Whether a person sees anything of it."""
    return any(_seen(output))


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def is_deleted(log: Path) -> bool:
    """And not only being put aside."""
    return not log.exists() and not aside_of(log).exists()


class Ending:
    """Looks for a mark in what a log grows by, or in all of it, also when it is put aside meanwhile."""

    def __init__(self, log: Path, mark: bytes = END_OF_LOG, from_start: bool = False) -> None:
        self._log = log
        self._mark = mark
        self._file: BinaryIO | None = None
        self._last = b""
        if from_start:
            self._open(aside_of(log))
        elif self._open(log):
            assert self._file
            self._file.seek(0, os.SEEK_END)

    def has_come(self) -> bool:
        """Since it was asked last. A child of the command may print after it."""
        while True:
            if self._file is None and not self._open(self._log):
                return False
            # Asked first: what was written into it until it was put aside is read after that.
            whole = self._is_put_aside()
            if self._read_on():
                return True
            if not whole:
                return False
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> bool:
        try:
            self._file = path.open("rb", buffering=0)
        except OSError:
            return False
        return True

    def _is_put_aside(self) -> bool:
        assert self._file
        try:
            return not os.path.samestat(self._log.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def _read_on(self) -> bool:
        assert self._file
        while block := self._file.read(_TAIL):
            self._last += block
            if self._mark in self._last:
                self._last = b""
                return True
            self._last = self._last[1 - len(self._mark) :]
        return False


class Place(NamedTuple):
    """In a log that may be put aside meanwhile."""

    file: int = 0
    offset: int = 0


def end_of(log: Path) -> Place:
    try:
        status = log.stat()
    except OSError:
        return Place()
    return Place(status.st_ino, status.st_size)


def take_out_ends(log: Path, since: Place | None = None) -> None:
    """Where somebody printed on after it as well; only where nobody writes to the log any more.

    A bit before the place may stand what an amuxd has left that was killed.
    """
    start = max(0, _counted(log, since or end_of(log)) - _TAIL)
    for _ in range(_MOST_ENDS):
        if not take_out(log, END_OF_LOG, start):
            return


def take_out(log: Path, mark: bytes, start: int = 0) -> bool:
    """From the midst of it; only where nobody writes to the log any more. False: it is not there."""
    place = _place(log, mark, start)
    if place is None:
        return False
    begin, end = place, place + len(mark)
    # It may lie over the place where a full log was put aside and another begun.
    for path in (aside_of(log), log):
        size = size_of(path)
        if (first := max(begin, 0)) < (last := min(end, size)):
            _cut(path, first, last)
        begin, end = begin - size, end - size
    return True


def _cut(path: Path, begin: int, end: int) -> None:
    """Needs no room."""
    with path.open("r+b", buffering=0) as file:
        status = os.fstat(file.fileno())
        while block := os.pread(file.fileno(), _MUCH, end):
            moved = os.pwrite(file.fileno(), block, begin)
            begin, end = begin + moved, end + moved
        os.ftruncate(file.fileno(), begin)
        # Nothing was printed by that.
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def say(log: Path, sentence: str) -> None:
    """As whoever takes down the output does, where nobody is left who could."""
    with contextlib.suppress(OSError), log.open("ab") as file:
        file.write(f"\r\n[amux: {sentence}]\r\n".encode())


def give_back_reserved(log: Path) -> None:
    """The room for more output, of whoever was killed who kept it; only where nobody writes any more."""
    for path in (log, aside_of(log)):
        # It is room, and nothing more.
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_blocks * _BLOCK > status.st_size + _OVERHEAD:
                os.truncate(path, status.st_size)
                # Nothing was printed by that.
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def aside_of(log: Path) -> Path:
    return log.with_name(log.name + ".1")


def _seen(output: bytes) -> list[str]:
    lines = []
    for printed in _ESCAPES.sub(_in_its_place, output.decode(errors="replace")).split("\n"):
        # Where nothing was written between two moves is no line.
        lines += [line for line in map(_line, _OTHER_LINE.split(printed)) if line] or [""]
    return lines


def _in_its_place(escape: re.Match[str]) -> str:
    """What keeps apart the words before and after a move of the cursor, and nothing for all else."""
    count, move = escape["count"], escape["move"]
    if not move:
        return ""
    if move in _TO_LINE:
        return _MOVED_TO_LINE
    if move in _FORWARD:
        return " " * (LONGEST_LINE if len(count) > 3 else int(count or 1) or 1)
    return "\r" if count in ("", "0", "1") else " "


def _line(line: str) -> str:
    # A carriage return begins the line anew: of a progress bar only the last state was left to see.
    parts = [part for part in line.split("\r") if part]
    return _INVISIBLE.sub("", parts[-1]).rstrip()[:LONGEST_LINE] if parts else ""


def _printed_before(log: Path, mark: bytes) -> bytes | None:
    """The last of it; None where no mark is."""
    place = _place(log, mark)
    if place is None:
        return None
    data = b""
    for path in (aside_of(log), log):
        size = size_of(path)
        if place > 0:
            data += _tail(path, _TAIL, min(place, size))
        place -= size
    return data[-_TAIL:]


def _counted(log: Path, place: Place) -> int:
    """From the beginning of what was put aside; 0 where the file is gone."""
    before = 0
    for path in (aside_of(log), log):
        present = end_of(path)
        if present.file == place.file:
            return before + place.offset
        before += present.offset
    return 0


def _place(log: Path, mark: bytes, start: int = 0) -> int | None:
    """Where the first one is after the start, counted from the beginning of what was put aside."""
    at, last = 0, b""
    for path in (aside_of(log), log):
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            if at < start:
                at += file.seek(min(start - at, size_of(path)))
            while block := file.read(_MUCH):
                data = last + block
                if (found := data.find(mark)) >= 0:
                    return at - len(last) + found
                at += len(block)
                last = data[1 - len(mark) :]
    return None


def _tail(path: Path, size: int = _TAIL, end: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            end = path.stat().st_size if end is None else end
            file.seek(max(0, end - size))
            return file.read(end - file.tell())
    except OSError:
        return b""
