"""The end of a log as a person would have seen it."""

import os
import re
from pathlib import Path

LINES = 20
LONGEST_LINE = 500
# A word to the terminal that no terminal knows, and so shows.
END_OF_LOG = b"\x1b]7702;amux;end\x1b\\"
_TAIL = 64 * 1024
_END_TAIL = 4096

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # a control sequence
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a string, such as a title
    r"|[ -/]*[0-~])"  # everything shorter
)
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def last_lines(log: Path, count: int = LINES) -> list[str]:
    data = _tail(log)
    if len(data) < _TAIL:
        data = _tail(log.with_name(log.name + ".1")) + data
    text = _ESCAPES.sub("", data.decode(errors="replace"))
    lines = [_line(line) for line in text.split("\n")]
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
    return any(map(_line, _ESCAPES.sub("", output.decode(errors="replace")).split("\n")))


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def take_out_end(log: Path) -> bool:
    """Whether the log has come to its end; the mark of it is not left in it."""
    try:
        with log.open("r+b") as file:
            start = file.seek(max(0, file.seek(0, os.SEEK_END) - _END_TAIL))
            # The log may grow while it is looked at: what was read says where it ends, not what its size was.
            tail = file.read()
            if tail.endswith(END_OF_LOG):
                file.truncate(start + len(tail) - len(END_OF_LOG))
            return END_OF_LOG in tail
    except OSError:
        return False


def _line(line: str) -> str:
    # A carriage return begins the line anew: of a progress bar only the last state was left to see.
    parts = [part for part in line.split("\r") if part]
    return _INVISIBLE.sub("", parts[-1]).rstrip()[:LONGEST_LINE] if parts else ""


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read()
    except OSError:
        return b""
