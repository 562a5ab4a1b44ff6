"""Log lines as the journal keeps them: with their fields."""

import contextlib
import logging
import os
import socket
import struct
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "amuxd"
LARGEST_FILE = 1024 * 1024
TARGETS = ("auto", "console", "journal", "null")

_FIELDS = ("AMUX_SESSION", "AMUX_STATE")
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}

# The names of syslog, which org.freedesktop.LogControl1 speaks.
LEVELS = {
    "emerg": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "crit": logging.CRITICAL,
    "err": logging.ERROR,
    "warning": logging.WARNING,
    "notice": logging.INFO,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class JournalHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        # One line with a traceback has to fit: journald takes what the buffer lets through.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            "MESSAGE": self.format(record),
            "PRIORITY": str(_PRIORITIES.get(record.levelno, 6)),
            "SYSLOG_IDENTIFIER": IDENTIFIER,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName,
        }
        fields |= {name: str(getattr(record, name)) for name in _FIELDS if hasattr(record, name)}
        # A journal that is gone or slow must not stop amuxd.
        with contextlib.suppress(OSError):
            self._socket.sendto(b"".join(_field(*item) for item in fields.items()), SOCKET)


def _field(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"


class Log:
    """Where amuxd's own log goes and how much of it, changeable while it runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.level = "info"
        self.target = "auto"
        self._root = logging.getLogger("amuxd")
        self._root.propagate = False
        self.apply()

    def apply(self) -> None:
        self._root.setLevel(LEVELS[self.level])
        for old in self._root.handlers:
            old.close()
        self._root.handlers = [self._handler()]

    def _handler(self) -> logging.Handler:
        if self.target == "null":
            return logging.NullHandler()
        if self.target == "journal" or (self.target == "auto" and _is_in_journal()):
            return JournalHandler()
        handler: logging.Handler = logging.StreamHandler()
        if self.target == "auto" and _is_nowhere():
            # A bus of its own starts amuxd with nobody to listen: then the log is a file.
            handler = RotatingFileHandler(self._file, maxBytes=LARGEST_FILE, backupCount=1, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s"))
        return handler


def _is_nowhere() -> bool:
    try:
        return os.path.samestat(os.fstat(sys.stderr.fileno()), os.stat(os.devnull))  # noqa: PTH116
    except (OSError, ValueError, AttributeError):
        return True


def _is_in_journal() -> bool:
    """systemd names the device and inode of what it connected the output to."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
