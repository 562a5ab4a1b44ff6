"""spare_logger.py LOG CAP UP PYTHON SAYS: takes down the output while logger.sh cannot.

That needs other programs, and a session at its own limit has no process for them. A shell that is refused one
ends; so it becomes this instead, which needs none, and which becomes it again once one is to be had. It does
as the shell does with a log at its cap, and with what comes while there is no room.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PAUSE = 1.0
# By not more does the log pass its cap.
_BLOCK = 16384
# Not one page at a time, of what is dropped.
_MUCH = 1 << 20
_MOST_WAITING = 16 << 20

LOST = "the disk was full, output is missing here"
TO_THE_END = "the disk was full to the end, output may be missing here"


def main() -> None:
    log, cap, ready, says = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[5]
    with contextlib.suppress(OSError):
        # The shell's own way to the log, which may not be the log for long.
        os.close(3)
    full = ready.with_name("full")
    with contextlib.suppress(OSError):
        # Whoever waits for room waits here.
        full.unlink()
    with contextlib.suppress(OSError):
        tell(ready)
    taker = Taker(log, cap, full)
    if says:
        taker.append(sentence(says))
    while taker.take_down(PAUSE):
        if can_fork():
            script = Path(__file__).with_name("logger.sh")
            # What is ignored from the start a shell can never heed.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.execv("/bin/sh", ["/bin/sh", str(script), *sys.argv[1:5]])


def tell(ready: Path) -> None:
    """The shell may not have come to it; nobody may be there to hear it any more."""
    fd = os.open(ready, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(fd, b"log\n")
    finally:
        os.close(fd)


class Taker:
    def __init__(self, log: Path, cap: int, full: Path) -> None:
        self._log = log
        self._cap = cap
        self._full = full

    def take_down(self, seconds: float) -> bool:
        """From the next output on. False: that was all."""
        patience, began = None, 0.0
        while select.select([0], [], [], patience)[0]:
            data = os.read(0, _BLOCK)
            if not data:
                return False
            self.append(data)
            began = began or time.monotonic()
            patience = max(0.0, began + seconds - time.monotonic())
            if not patience:
                break
        return True

    def append(self, data: bytes) -> None:
        data = self._written(data)
        if data:
            with self._waiting() as room:
                while data:
                    room.wait()
                    data = self._written(data)
            if room.dropped:
                self.append(sentence(LOST))

    def _written(self, data: bytes) -> bytes:
        """What is left of it, where there was no room for all."""
        try:
            while data:
                # Each time: it may have been put aside, or deleted.
                fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    data = data[os.write(fd, data) :]
                    size = os.fstat(fd).st_size
                finally:
                    os.close(fd)
                if size >= self._cap:
                    self._put_aside()
        except OSError:
            pass
        return data

    def _put_aside(self) -> None:
        """There is no moment at which the beginning is gone and nothing says so, nor the other way round."""
        log = self._log
        aside, dropped, empty = (log.with_name(log.name + end) for end in (".1", ".dropped", ".empty"))
        with contextlib.suppress(OSError):
            if aside.exists():
                aside.replace(dropped)
            log.replace(aside)
            log.touch()
            if dropped.exists() and dropped.stat().st_size:
                # Not emptied itself: whoever reads it still goes on with it.
                empty.touch()
                empty.replace(dropped)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator["Room"]:
        """Until there is room, or the session ends."""
        signal.signal(signal.SIGTERM, lambda *_: self._end_without_room())
        with contextlib.suppress(OSError):
            self._full.touch()
        yield Room(self._cap, self._log.parent)
        with contextlib.suppress(OSError):
            self._full.unlink()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _end_without_room(self) -> None:
        last = sentence(TO_THE_END)
        left = self._written(last)
        for log in (self._log, self._log.with_name(self._log.name + ".1")) if left else ():
            # Over what came last, where there is no other room for it: that is among what is missing.
            with contextlib.suppress(OSError), log.open("r+b") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - len(last)))
                file.write(last)
                break
        os._exit(1)


class Room:
    """Waited for, with what comes meanwhile in the memory of the terminal, and not without bounds."""

    def __init__(self, cap: int, directory: Path) -> None:
        self._directory = directory
        self._most_used = used() + most_waiting(cap)
        self.dropped = False

    def wait(self) -> None:
        until = time.monotonic() + PAUSE
        terminal = select.poll()
        terminal.register(0, 0)
        while (left := until - time.monotonic()) > 0:
            if used() > self._most_used:
                # Without its terminal the session could not go on.
                self.dropped = True
                if select.select([0], [], [], left)[0] and not os.read(0, _MUCH):
                    time.sleep(left)
            elif terminal.poll(left * 1000):
                # Whoever printed is gone.
                if not self._directory.exists():
                    os._exit(1)
                time.sleep(left)


def used() -> int:
    """Of the terminal's memory, in bytes."""
    with contextlib.suppress(OSError, IndexError):
        pages = Path(f"/proc/{os.getppid()}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")
    return 0


def most_waiting(cap: int) -> int:
    """What waits counts against the memory limit of the session."""
    bounds = [cap, _MOST_WAITING]
    with contextlib.suppress(OSError):
        groups = Path("/proc/self/cgroup").read_text().split("\n")
        for group in (line.removeprefix("0::/") for line in groups if line.startswith("0::/")):
            for name in ("memory.max", "memory.high"):
                with contextlib.suppress(OSError, ValueError):
                    bounds.append(int(Path("/sys/fs/cgroup", group, name).read_text()) // 4)
    return min(bounds)


def sentence(says: str) -> bytes:
    return f"\r\n[amux: {says}]\r\n".encode()


def can_fork() -> bool:
    try:
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return True


if __name__ == "__main__":
    main()
