"""amuxd, killed by itself at the n-th of the points at which it changes something outside of its memory.

Run as a program it forks an amuxd for each line "start", and answers each line "poll" with how that ended.
The file named by the first argument arms the amuxd that runs: it holds the number, or the name, of the point
to die at. The second file collects the points that were reached.
"""

import asyncio
import contextlib
import fcntl
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ARMED, REACHED = map(Path, sys.argv[1:3])
CHANGES = (
    *("mkdir", "rmdir", "mkfifo", "link", "rename", "unlink", "chmod", "utime"),
    *("write", "pwrite", "truncate", "ftruncate", "fsync", "fdatasync", "kill"),
)


class Points:
    def __init__(self) -> None:
        self.count = self.armed = 0
        self.turn = threading.RLock()
        # The descriptor is the test's own business, and writing to it no point.
        self.write = os.write
        self.reached = os.open(REACHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Who disarms waits for the point that is just being reached, also if it is the last one."""
        fcntl.flock(self.reached, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.reached, fcntl.LOCK_UN)

    def reach(self, what: str, halfway: Callable[[], object] = lambda: None) -> None:
        with contextlib.suppress(FileNotFoundError), self.turn, self.shared:
            armed = ARMED.stat().st_mtime_ns
            fatal = ARMED.read_text()
            self.count = self.count + 1 if armed == self.armed else 1
            self.armed = armed
            self.write(self.reached, f"{self.count} {what}\n".encode())
            if fatal == str(self.count) or what.startswith(fatal):
                halfway()
                signal.raise_signal(signal.SIGKILL)


def dig(points: Points) -> None:
    """Each call outwards becomes a point; what comes after it is the next one's before."""

    def before(owner: Any, name: str, told: Callable[..., str]) -> None:
        original = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            points.reach(told(*arguments))
            return original(*arguments, **options)

        setattr(owner, name, wrapped)

    for name in CHANGES:
        before(os, name, lambda *arguments, name=name: f"{name} {arguments[:1]}")
    before(signal, "pidfd_send_signal", lambda *_: "a signal")
    open_file = os.open

    def open_to_create(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            points.reach(f"create {path}")
        return open_file(path, flags, *arguments, **options)

    os.open = open_to_create
    open_by_path = io.open

    def open_to_write(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not isinstance(path, int) and not mode.startswith("r"):
            points.reach(f"open {path}")
        return open_by_path(path, mode, *arguments, **options)

    io.open = open_to_write  # type: ignore[assignment]

    from amuxd import files
    from amuxd.bus.connection import Bus
    from amuxd.hosts import tmux

    before(Bus, "_send", lambda _, message: f"send {message.member or 'a reply'}")
    unsynced = files.unsynced

    def write_half(path: Path, text: str) -> int:
        what = json.loads(text)["state"] if path.name.startswith("state.json") else ""
        points.reach(f"half of {path.name} {what}", lambda: unsynced(path, text[: len(text) // 2]))
        return int(unsynced(path, text))

    files.unsynced = write_half
    call, run = Bus.call, tmux.run

    async def answered(*arguments: Any, **options: Any) -> Any:
        try:
            return await call(*arguments, **options)
        finally:
            points.reach(f"answer to {arguments[4]}")

    async def asked(*arguments: Any, **options: Any) -> Any:
        points.reach("tmux")
        try:
            return await run(*arguments, **options)
        finally:
            points.reach("tmux is back")

    Bus.call, tmux.run = answered, asked  # type: ignore[method-assign]


def live() -> int:
    from amuxd.daemon import main

    os.dup2(2, 1)
    sys.argv[1:] = []
    dig(Points())
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def main() -> None:
    # Imported once for them all.
    import amuxd.daemon  # noqa: F401

    asyncio.set_event_loop(None)
    pid = 0
    for line in sys.stdin:
        match line.split():
            case ["start"]:
                pid = os.fork()
                if pid == 0:
                    os.close(0)
                    os.open(os.devnull, os.O_RDONLY)
                    os._exit(live())
            case ["signal", number]:
                os.kill(pid, int(number))
            case ["poll"]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                print(os.waitstatus_to_exitcode(status) if ended else "alive", flush=True)


main()
