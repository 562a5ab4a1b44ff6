"""Programs that a thread begins and waits for: each within a deadline, and none of them longer than amuxd."""

import contextlib
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

# For what is to end because amuxd ends, or because its time is over.
PATIENCE = 2.0
# The umask that amuxd was started with, which is the user's own.
INHERITED = -1

_PAUSE = 0.05
_WITH_UMASK = ("/bin/sh", "-c", 'umask "$0" && exec "$@"')
# Those that Python ignores, and no other program expects to be ignored.
_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)

Item = TypeVar("Item")

# Who waits is a thread, which cannot be cancelled, and which amuxd waits for when it ends.
_at_work: dict[int, Sequence[str]] = {}
# Killed, and not seen to end.
_unreaped: set[int] = set()
_changed = threading.Condition()
_stopping = threading.Event()


class Stopping(Exception):
    """amuxd ends, and nothing begins any more."""


class TookTooLong(Exception):
    """It was killed."""


def run(
    words: Sequence[str],
    streams: tuple[int | None, int, int],
    environment: Mapping[str, str],
    deadline: float,
    umask: int = INHERITED,
) -> int:
    """Its exit code, -N where signal N ended it. No pipes: what it leaves behind may keep these open.

    Raises FileNotFoundError where its environment's PATH does not lead to it.
    """
    _refuse_when_stopping()
    _reap()
    pid = _begin(words, streams, environment, umask)
    with _known(pid, words):
        in_time = _ends_within(pid, deadline)
        if not in_time:
            _signal(pid, signal.SIGKILL)
            if not _ends_within(pid, PATIENCE):
                # A file system that hangs may hold even what was killed.
                with _changed:
                    _unreaped.add(pid)
                raise TookTooLong
    _, status = os.waitpid(pid, 0)
    if not in_time:
        raise TookTooLong
    return os.waitstatus_to_exitcode(status)


def unless_stopping(items: Iterable[Item]) -> Iterator[Item]:
    """For what a thread does by itself, piece by piece: it raises Stopping before the next one."""
    for item in items:
        _refuse_when_stopping()
        yield item


def is_stopping() -> bool:
    return _stopping.is_set()


def _refuse_when_stopping() -> None:
    if is_stopping():
        raise Stopping("amuxd is stopping")


def stop(patience: float = PATIENCE) -> None:
    """What is at work is asked to end, later killed, and nothing begins any more. Does not wait."""
    _stopping.set()
    with _changed:
        _end(list(_at_work), patience)


def words_to(session: int) -> Sequence[str]:
    """Of the helper whose session that is, and of all that it calls in turn; none where there is no such."""
    return _at_work.get(session, ())


def _begin(
    words: Sequence[str], streams: tuple[int | None, int, int], environment: Mapping[str, str], umask: int
) -> int:
    """Half as long as subprocess takes, which in a thread costs whatever else amuxd does as much."""
    program: str | None = words[0]
    if "/" not in words[0]:
        program = shutil.which(words[0], path=environment.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(words[0])
    given, printed, said = streams
    if given is None:
        stdin: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    else:
        stdin = (os.POSIX_SPAWN_DUP2, given, 0)
    argv = list(words)
    if umask != INHERITED:
        argv = [*_WITH_UMASK, f"{umask:04o}", program, *words[1:]]
        program = argv[0]
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=[stdin, (os.POSIX_SPAWN_DUP2, printed, 1), (os.POSIX_SPAWN_DUP2, said, 2)],
        # Its own helpers end with it.
        setsid=True,
        setsigdef=_TO_DEFAULT,
    )


def _reap() -> None:
    """By whoever begins something next: a thread that waits for it may not be had."""
    # Each once: its number may be that of another right after.
    with _changed:
        for pid in list(_unreaped):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                _unreaped.discard(pid)


@contextlib.contextmanager
def _known(pid: int, words: Sequence[str]) -> Iterator[None]:
    with _changed:
        _at_work[pid] = words
    try:
        if _stopping.is_set():
            # It had begun, and nobody knew of it yet.
            _end([pid], PATIENCE)
        yield
    finally:
        # Before it is reaped: until then its number is nobody else's.
        with _changed:
            _at_work.pop(pid, None)
            _changed.notify_all()


def _ends_within(pid: int, deadline: float) -> bool:
    try:
        end = os.pidfd_open(pid)
    except OSError:
        # No descriptor is left to be woken by.
        return _is_seen_to_end(pid, deadline)
    try:
        ends = select.poll()
        ends.register(end, select.POLLIN)
        return bool(ends.poll(deadline * 1000))
    finally:
        os.close(end)


def _is_seen_to_end(pid: int, deadline: float) -> bool:
    until = time.monotonic() + deadline
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
    return True


def _end(pids: Sequence[int], patience: float) -> None:
    for pid in pids:
        # git takes its locks away then, and what it had half made.
        _signal(pid, signal.SIGTERM)
    try:
        threading.Thread(target=_kill_the_rest, args=(patience,), daemon=True, name="end helpers").start()
    except RuntimeError:
        # No thread can be had that gives them the time.
        for pid in pids:
            _signal(pid, signal.SIGKILL)


def _kill_the_rest(patience: float) -> None:
    with _changed:
        _changed.wait_for(lambda: not _at_work, patience)
        for pid in _at_work:
            _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
