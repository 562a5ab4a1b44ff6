"""git itself does git's work: off the loop, within a deadline, and asking nobody anything."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from amuxd import helpers
from amuxd.helpers import INHERITED, Stopping, TookTooLong
from amuxd.lines import lines_of

ORDINARY = 30.0
# Commits that are brought from one repository to another.
LONG = 100.0
# The files of a large repository.
CHECKOUT = 600.0

# Hooks and monitors are programs of the repository's: hooks run where their user would have git run them.
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_QUIET = ("-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")

_FILTER = re.compile(r"^error: external filter '(.*)' failed", re.MULTILINE)
_NOT_FOUND = re.compile(r"^error: cannot run |: (command )?not found$")

# For a look before something is thrown away: a file counts as unchanged only if nothing about it has changed,
# whatever the user has configured to make git quicker or more lenient.
STRICTLY = {
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.trustctime",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_CONFIG_KEY_1": "core.checkStat",
    "GIT_CONFIG_VALUE_1": "default",
    # It hides a new file beside one whose name differs in case alone.
    "GIT_CONFIG_KEY_2": "core.ignoreCase",
    "GIT_CONFIG_VALUE_2": "false",
}


class Surroundings(dict[str, str]):
    """git's whole environment, and where git is by it: found once for many questions."""

    def __init__(self, more: Mapping[str, str]) -> None:
        super().__init__(_environment(more))
        self.program = shutil.which("git", path=self.get("PATH", os.defpath)) or "git"


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
    # What commits lead to is asked of these, and not of what is to be shown in their place.
    as_it_is = ["--no-replace-objects"] if arguments[0] == "rev-list" else []
    options = [*_QUIET, *(() if hooks else _NO_HOOKS), *as_it_is]
    if not isinstance(environment, Surroundings):
        environment = Surroundings(environment or {})
    words = [environment.program, "--no-optional-locks", *options, "-C", str(directory), *arguments]
    try:
        with _given(input) as given, _memory() as printed, _memory() as said:
            code = helpers.run(words, (given, printed, said), environment, deadline, umask)
            answer, complaint = _written(printed), _written(said).replace("\r", "\n")
    except FileNotFoundError:
        raise GitFailed(arguments, -1, "git is not installed") from None
    except Stopping as error:
        raise GitFailed(arguments, -1, str(error)) from None
    except TookTooLong:
        raise GitFailed(arguments, -1, f"git {arguments[0]} took longer than {deadline:.0f} s") from None
    except OSError as error:
        # No descriptor, process or memory is left for it, say.
        raise GitFailed(arguments, -1, f"git could not be run: {error.strerror}") from error
    if code != 0:
        raise GitFailed(arguments, code, _one_line(complaint))
    if missing is not None:
        missing += dict.fromkeys(_FILTER.findall(complaint))
    return answer


@contextlib.contextmanager
def _memory() -> Iterator[int]:
    fd = os.memfd_create("git", os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _given(text: str | None) -> Iterator[int | None]:
    if text is None:
        yield None
        return
    with _memory() as fd:
        with open(fd, "wb", closefd=False) as file:
            file.write(text.encode(errors="surrogateescape"))
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd


def _written(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="surrogateescape")


def programs_in(search_path: str) -> dict[str, str]:
    """The environment in which git finds what its caller had in the PATH, and its filters what amuxd has."""
    return {"PATH": f"{search_path}:{os.environ.get('PATH', os.defpath)}"} if search_path else {}


def without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Without git's own variables: which repository it is about is never said by these."""
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def _without_language(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("LANG", "LC_"))}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {
        **_without_language({**without_own(os.environ), **more}),
        # Its words are read; of a language that it knows it would look for a translation first.
        "LANG": "C",
        "LC_CTYPE": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    }


def _one_line(said: str) -> str:
    """The last that it complained of, and a program that it did not find; hints and progress come before."""
    lines = [line.strip() for line in lines_of(said.encode(errors="replace").decode()) if line.strip()]
    complaints = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (complaints or lines)[-1:] or [""]
    told = chosen[0].removeprefix("fatal: ").removeprefix("error: ")
    cause = next((line.removeprefix("error: ") for line in lines if _NOT_FOUND.search(line)), told)
    return told if cause == told else f"{told} ({cause})"
