"""What an amuxd that did not start, or died of it, said last."""

import os
import subprocess
import sys
from pathlib import Path

_TIMEOUT = 5
_TAIL = 8192
_LONGEST = 300


def in_journal() -> str:
    # By the name that systemd gave its output: of a process that is gone already the journal knows no unit.
    lines = ["--identifier=amuxd", f"_UID={os.getuid()}", "--lines=1", "--output=cat"]
    return _quoted(_output("journalctl", "--quiet", "--no-pager", *lines, errors=subprocess.DEVNULL))


def in_log(log: Path, since: float) -> str:
    """Where there is no journal; unless the log is older, when it did not come so far as to write one."""
    try:
        if log.stat().st_mtime >= since:
            with log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                return _quoted(file.read())
    except OSError:
        pass
    return _quoted(_output(sys.executable, "-c", "import amuxd.daemon"))


def _output(*command: str, errors: int = subprocess.STDOUT) -> bytes:
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return finished.stdout


def _quoted(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    # In its own log each line has the time in front.
    said = last.partition(" ERROR: ")[2] or last
    return f"; it last said: {said[:_LONGEST]}" if said else ""
