"""Turns the kernel's events into calls: a process ended, a run prints or reads, a terminal came or went."""

import asyncio
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amuxd import inotify
from amuxd.inotify import Inotify

# A busy run is looked at once in so many seconds; a quiet one is not looked at.
BEAT = 1.0
_GREW_OR_ROTATED = inotify.MODIFY | inotify.MOVE_SELF
_ONCE = inotify.ACCESS | inotify.MODIFY


@dataclass
class _Log:
    path: Path
    printed: Callable[[int, int], None]
    replaced: Callable[[], None]
    # What was printed while nobody watched counts too.
    file: int = 0
    size: int = 0
    changed_at: int = 0
    watch: int | None = None

    def has_grown(self, status: os.stat_result) -> bool:
        """Or was begun anew, be it as long as before."""
        return status.st_size != self.size or (status.st_ino != self.file and status.st_size > 0)


@dataclass
class _Once:
    happened: Callable[[], None]
    missed: Callable[[], None]


@dataclass
class _Directory:
    written: Callable[[str], None]
    missed: Callable[[], None]


class Watch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inotify = Inotify()
        self._loop.add_reader(self._inotify.fd, self._file_events)
        self._logs: dict[str, _Log] = {}
        self._armed: dict[int, str] = {}
        self._busy: set[str] = set()
        self._beat: asyncio.TimerHandle | None = None
        self._directories: dict[int, _Directory] = {}
        self._once: dict[int, _Once] = {}

    def close(self) -> None:
        self._loop.remove_reader(self._inotify.fd)
        self._inotify.close()
        if self._beat:
            self._beat.cancel()

    def process(self, pidfd: int, ended: Callable[[], None]) -> None:
        """Calls once, when the process is no more."""

        def readable() -> None:
            self._loop.remove_reader(pidfd)
            ended()

        self._loop.add_reader(pidfd, readable)

    def forget_process(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)

    def directory(
        self,
        path: Path,
        written: Callable[[str], None],
        missed: Callable[[], None],
        mask: int = inotify.CLOSE_WRITE | inotify.MOVED_TO,
    ) -> int:
        """Calls with the name of each file that is written there, and where one may have been missed."""
        watch = self._inotify.add(path, mask)
        self._directories[watch] = _Directory(written, missed)
        return watch

    def forget_directory(self, watch: int) -> None:
        if self._directories.pop(watch, None):
            self._inotify.remove(watch)

    def terminal(self, path: Path, read: Callable[[], None], missed: Callable[[], None]) -> int:
        """Calls one of them, once: when a program reads there what was typed, or may have."""
        watch = self._inotify.add(path, inotify.ACCESS | inotify.ONESHOT)
        self._once[watch] = _Once(read, missed)
        return watch

    def file(self, path: Path, changed: Callable[[], None]) -> int:
        """Calls once, when it is written or, if it is the kernel's, something else is to be read there.

        And where that may have been missed.
        """
        watch = self._inotify.add(path, inotify.MODIFY | inotify.ONESHOT)
        self._once[watch] = _Once(changed, changed)
        return watch

    def forget_once(self, watch: int) -> None:
        if self._once.pop(watch, None):
            self._inotify.remove(watch)

    def log(
        self,
        key: str,
        path: Path,
        printed: Callable[[int, int], None],
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls with the moment and a hash when the log grew: at once after a quiet time, then each beat.

        And where its file is gone, or is another: it was put aside, or somebody took it away.
        """
        self.forget_log(key)
        log = self._logs[key] = _Log(path, printed, replaced)
        self._arm(key, log)

    def last_look(self, key: str) -> int | None:
        """Tells what there is to tell, and forgets the log: its size; None where it was not watched."""
        log = self._logs.get(key)
        if log is None:
            return None
        self._look(log)
        self.forget_log(key)
        return log.size

    def forget_log(self, key: str) -> None:
        log = self._logs.pop(key, None)
        self._busy.discard(key)
        if log is not None:
            self._disarm(log)

    def _arm(self, key: str, log: _Log) -> None:
        self._disarm(log)
        try:
            log.watch = self._inotify.add(log.path, _GREW_OR_ROTATED | inotify.ONESHOT)
            self._armed[log.watch] = key
            # Before anybody watched, but after it was looked at.
            changed = log.has_grown(log.path.stat())
        except OSError:
            changed = True
        if changed:
            self._turn_busy(key)

    def _disarm(self, log: _Log) -> None:
        if log.watch is not None:
            self._armed.pop(log.watch, None)
            self._inotify.remove(log.watch)
            log.watch = None

    def _file_events(self) -> None:
        for event in self._inotify.read():
            if event.watch in self._directories:
                self._directories[event.watch].written(event.name)
            elif event.mask & _ONCE and (once := self._once.pop(event.watch, None)):
                once.happened()
            elif event.mask & _GREW_OR_ROTATED and (key := self._armed.pop(event.watch, None)):
                self._logs[key].watch = None
                self._turn_busy(key)
            elif event.mask & inotify.OVERFLOW:
                # Whose word was lost is not known.
                for key in self._logs:
                    self._turn_busy(key)
                self._miss_all()

    def _miss_all(self) -> None:
        pending, self._once = self._once, {}
        # Before anybody watches the same again, which would get the same number.
        for watch in pending:
            self._inotify.remove(watch)
        for missed in [once.missed for once in pending.values()]:
            missed()
        for missed in [directory.missed for directory in self._directories.values()]:
            missed()

    def _turn_busy(self, key: str) -> None:
        self._busy.add(key)
        self._look(self._logs[key])
        if self._beat is None:
            self._beat = self._loop.call_later(BEAT, self._on_beat)

    def _look(self, log: _Log) -> bool:
        try:
            status = log.path.stat()
        except OSError:
            return False
        # Whoever takes it down has its time changed for a moment when room is reserved in it or given back.
        is_set_right = status.st_mtime_ns < log.changed_at
        if not log.has_grown(status) and not is_set_right:
            return False
        if log.file not in {0, status.st_ino}:
            log.replaced()
        log.file, log.size, log.changed_at = status.st_ino, status.st_size, status.st_mtime_ns
        log.printed(status.st_mtime_ns // 1000, zlib.crc32(b"%d" % status.st_size))
        return True

    def _on_beat(self) -> None:
        self._beat = None
        looked = {key: self._look(self._logs[key]) for key in self._busy}
        missing = {key for key in looked if not self._logs[key].path.exists()}
        quiet = {key for key, grew in looked.items() if not grew} - missing
        self._busy -= quiet
        for key in missing:
            self._logs[key].replaced()
        if self._busy:
            self._beat = self._loop.call_later(BEAT, self._on_beat)
        for key in quiet:
            self._arm(key, self._logs[key])
