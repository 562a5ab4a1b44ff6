"""Who takes down what a session prints: begun with its terminal, and again where somebody has ended them."""

import asyncio
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from amuxd import processes
from amuxd.hosts.pipes import hear
from amuxd.hosts.tmux import Terminal, pipe_arguments
from amuxd.logs import aside_of
from amuxd.records import Process

_SCRIPT = Path(str(files("amuxd.hosts"))) / "logger.sh"
# The one that stands in for the other while no process can be had.
_NAMES = (_SCRIPT.name, "spare_logger.py")
# What its output goes to is open there as this.
_OUTPUT = 3

ENDED = "what took down the output had ended, some of it may be missing here"
TAKEN_AWAY = "the log was deleted or moved away, and is begun anew here"


def command(log: Path, cap: int, gates: Path) -> list[str]:
    return ["/bin/sh", str(_SCRIPT), str(log), str(cap), str(gates / "up"), sys.executable]


class Found(NamedTuple):
    logger: Process | None
    # Somebody has taken away the file that it writes to, and not itself, to put it aside.
    has_lost_log: bool = False
    # Where there are no processes at all, the kernel tells nothing of them, or the terminal has ended.
    is_certain: bool = True


def look(terminal: Process, log: Path) -> Found:
    """In a thread: what hangs in a mapping of its memory does not tell its name either."""
    children = processes.children(terminal.pid)
    found = find(children, log)
    return Found(found, found is not None and has_lost_log(found, log), bool(children))


def find(terminal_processes: list[int], log: Path) -> Process | None:
    """Of two the later one: the other is about to end."""
    for pid in reversed(terminal_processes):
        words = processes.command_line(pid)
        if str(log) in words and any(word.endswith(_NAMES) for word in words):
            found = processes.identify(pid)
            if found is not None and not processes.is_dying(found):
                return found
    return None


def has_lost_log(logger: Process, log: Path) -> bool:
    output = Path(f"/proc/{logger.pid}/fd/{_OUTPUT}")
    try:
        # While it becomes the other, or is read itself, something else is open there.
        was_log = _is_appended_to(output)
        written = output.stat()
        return (was_log and _is_appended_to(output) and log.parent.exists()) and not any(
            _is(path, written) for path in (aside_of(log), log)
        )
    except OSError:
        return False


def _is_appended_to(output: Path) -> bool:
    return bool(processes.open_flags(output) & os.O_APPEND)


def _is(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False


async def begin_again(
    terminal: Terminal, argv: list[str], gates: Path, former: Process | None, deadline: float
) -> None:
    """Raises TmuxUnreachable, TmuxRefused, TimeoutError."""
    place = ["", ENDED] if former is None else [str(former.pid)]
    up = os.open(gates / "up", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(deadline):
            await terminal.run(*pipe_arguments([*argv, *place]))
            await hear(up, [], 1)
    finally:
        os.close(up)
