"""git itself does git's work: off the loop, within a deadline, and asking nobody anything."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ORDINARY = 30.0
# Checking out the files of a large repository.
LONG = 100.0

# Hooks and monitors are programs of the repository's: nobody asked for these to run here.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")


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
) -> str:
    """What git prints. Blocks; raises GitFailed."""
    argv = ["git", "--no-optional-locks", *_QUIET, "-C", str(directory), *arguments]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(environment or {}),
            # git's own helpers end with it when the deadline is over.
            start_new_session=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError:
        raise GitFailed(arguments, -1, "git is not installed") from None
    try:
        printed, said = process.communicate(input, timeout=deadline)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise GitFailed(arguments, -1, f"git {arguments[0]} took longer than {deadline:.0f} s") from None
    if process.returncode != 0:
        raise GitFailed(arguments, process.returncode, _one_line(said) or f"git {arguments[0]} failed")
    return printed


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
    """The last that it complained of; hints and progress come before."""
    lines = [line.strip() for line in said.encode(errors="replace").decode().splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (complaints or lines)[-1:] or [""]
    return chosen[0].removeprefix("fatal: ").removeprefix("error: ")
