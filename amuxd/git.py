"""git itself does git's work: off the loop, within a deadline, and asking nobody anything."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ORDINARY = 30.0
# Checking out the files of a large repository.
LONG = 100.0
# For what is to end because amuxd ends.
PATIENCE = 2.0

# The umask that amuxd was started with, which is the user's own.
INHERITED = -1

# Hooks and monitors are programs of the repository's: nobody asked for these to run here.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")

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
    """What git said, in one line."""

    def __init__(self, arguments: Sequence[str], code: int, said: str) -> None:
        super().__init__(said)
        self.arguments = list(arguments)
        self.code = code


def git(
    directory: Path | str,
    *arguments: str,
    deadline: float = ORDINARY,
    input: str | None = None,
    environment: Mapping[str, str] | None = None,
    umask: int = INHERITED,
    missing: list[str] | None = None,
) -> str:
    """What git prints, and in missing the filters that it went on without. Blocks; raises GitFailed."""
    if _stopping.is_set():
        raise GitFailed(arguments, -1, "amuxd is stopping")
    argv = ["git", "--no-optional-locks", *_QUIET, "-C", str(directory), *arguments]
    with _memory() as printed, _memory() as said:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
                # No pipes: what a helper of git's leaves behind may keep these open for as long as it likes.
                stdout=printed,
                stderr=said,
                env=_environment(environment or {}),
                umask=umask,
                # git's own helpers end with it when the deadline is over.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise GitFailed(arguments, -1, "git is not installed") from None
        try:
            with _known(process):
                process.communicate(None if input is None else _encoded(input), timeout=deadline)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise GitFailed(arguments, -1, f"git {arguments[0]} took longer than {deadline:.0f} s") from None
        complaint = _written(said).replace("\r", "\n")
        if process.returncode != 0:
            raise GitFailed(
                arguments, process.returncode, _one_line(complaint) or f"git {arguments[0]} failed"
            )
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


def _written(fd: int) -> str:
    with open(fd, "rb", buffering=0, closefd=False) as file:
        file.seek(0)
        return file.read().decode(errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGKILL)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
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


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **inherited,
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
