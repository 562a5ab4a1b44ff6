"""git itself does git's work: off the loop, within a deadline, and asking nobody anything."""

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ORDINARY = 30.0
# Commits that are brought from one repository to another.
LONG = 100.0
# The files of a large repository.
CHECKOUT = 600.0
# For what is to end because amuxd ends.
PATIENCE = 2.0

# The umask that amuxd was started with, which is the user's own.
INHERITED = -1

# Hooks and monitors are programs of the repository's: hooks run where their user would have git run them.
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_QUIET = ("-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")

_FILTER = re.compile(r"^error: external filter '(.*)' failed", re.MULTILINE)
_NOT_FOUND = re.compile(r"^error: cannot run |: (command )?not found$")

# For a look before something is thrown away: a file counts as unchanged only if nothing about it has changed,
# whatever the user has configured to make git quicker.
STRICTLY = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.trustctime",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_CONFIG_KEY_1": "core.checkStat",
    "GIT_CONFIG_VALUE_1": "default",
}

# Who waits for git is a thread, which cannot be cancelled, and which amuxd waits for when it ends.
_at_work: set[subprocess.Popen[bytes]] = set()
_changed = threading.Condition()
_stopping = threading.Event()


class GitFailed(Exception):
    """What git said, in one line; where it said nothing, that it failed."""

    def __init__(self, arguments: Sequence[str], code: int, said: str) -> None:
        super().__init__(said or f"git {arguments[0]} failed")
        self.arguments = list(arguments)
        self.code = code
        self.said = said


def git(
    directory: Path | str,
    *arguments: str,
    deadline: float = ORDINARY,
    input: str | None = None,
    environment: Mapping[str, str] | None = None,
    umask: int = INHERITED,
    missing: list[str] | None = None,
    hooks: bool = False,
) -> str:
    """What git prints, and in missing the filters that it went on without. Blocks; raises GitFailed."""
    if _stopping.is_set():
        raise GitFailed(arguments, -1, "amuxd is stopping")
    options = [*_QUIET, *(() if hooks else _NO_HOOKS)]
    argv = ["git", "--no-optional-locks", *options, "-C", str(directory), *arguments]
    # No pipes: what a helper of git's leaves behind may keep these open for as long as it likes.
    with _given(input) as given, _memory() as printed, _memory() as said:
        try:
            process = subprocess.Popen(
                argv,
                stdin=given,
                stdout=printed,
                stderr=said,
                env=_environment(environment or {}),
                umask=umask,
                # git's own helpers end with it when the deadline is over.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise GitFailed(arguments, -1, "git is not installed") from None
        with _known(process):
            if not _ends_within(process, deadline):
                _kill(process)
                raise GitFailed(arguments, -1, f"git {arguments[0]} took longer than {deadline:.0f} s")
        complaint = _written(said).replace("\r", "\n")
        if process.returncode != 0:
            raise GitFailed(arguments, process.returncode, _one_line(complaint))
        if missing is not None:
            missing += dict.fromkeys(_FILTER.findall(complaint))
        return _written(printed)


@contextlib.contextmanager
def _memory() -> Iterator[int]:
    fd = os.memfd_create("git", os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _given(text: str | None) -> Iterator[int]:
    if text is None:
        yield subprocess.DEVNULL
        return
    with _memory() as fd:
        with open(fd, "wb", closefd=False) as file:
            file.write(text.encode(errors="surrogateescape"))
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd


def _ends_within(process: subprocess.Popen[bytes], deadline: float) -> bool:
    until = time.monotonic() + deadline
    # wait() with a deadline looks from time to time, and that less and less often: so it has to do
    # only where no descriptor is left to be woken by.
    with contextlib.suppress(OSError):
        _until_it_ends(process.pid, deadline)
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _until_it_ends(pid: int, deadline: float) -> None:
    fd = os.pidfd_open(pid)
    try:
        ends = select.poll()
        ends.register(fd, select.POLLIN)
        ends.poll(deadline * 1000)
    finally:
        os.close(fd)


def _written(fd: int) -> str:
    with open(fd, "rb", buffering=0, closefd=False) as file:
        file.seek(0)
        return file.read().decode(errors="surrogateescape")


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGKILL)
    # A file system that hangs may hold even what was killed.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)


def programs_in(search_path: str) -> dict[str, str]:
    """The environment in which git finds what its caller had in the PATH, and its filters what amuxd has."""
    return {"PATH": f"{search_path}:{os.environ.get('PATH', os.defpath)}"} if search_path else {}


def stop(patience: float = PATIENCE) -> None:
    """What is at work is asked to end, later killed, and nothing begins any more. Does not wait."""
    _stopping.set()
    with _changed:
        _end(_at_work, patience)


def _end(processes: Iterable[subprocess.Popen[bytes]], patience: float) -> None:
    for process in processes:
        # git takes its locks away then, and what it had half made.
        _signal(process, signal.SIGTERM)
    threading.Thread(target=_kill_the_rest, args=(patience,), daemon=True, name="end git").start()


def _kill_the_rest(patience: float) -> None:
    with _changed:
        _changed.wait_for(lambda: not _at_work, patience)
        for process in _at_work:
            _signal(process, signal.SIGKILL)


@contextlib.contextmanager
def _known(process: subprocess.Popen[bytes]) -> Iterator[None]:
    with _changed:
        _at_work.add(process)
        if _stopping.is_set():
            # It had begun, and nobody knew of it yet.
            _end([process], PATIENCE)
    try:
        yield
    finally:
        with _changed:
            _at_work.discard(process)
            _changed.notify_all()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Without git's own variables: which repository it is about is never said by these."""
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {
        **without_own(os.environ),
        **more,
        # Its words are read.
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    }


def _one_line(said: str) -> str:
    """The last that it complained of, and a program that it did not find; hints and progress come before."""
    lines = [line.strip() for line in said.encode(errors="replace").decode().splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (complaints or lines)[-1:] or [""]
    told = chosen[0].removeprefix("fatal: ").removeprefix("error: ")
    cause = next((line.removeprefix("error: ") for line in lines if _NOT_FOUND.search(line)), told)
    return told if cause == told else f"{told} ({cause})"
