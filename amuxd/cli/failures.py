"""Every way to fail, as a sentence, a hint and an exit code. The rest of the CLI just raises."""

import contextlib
import errno
import sys
from typing import TYPE_CHECKING

from amuxd import __version__
from amuxd.errors import PREFIX, STOPPING, UNFINISHED

if TYPE_CHECKING:
    from click import UsageError

DID_NOT_WORK, WRONG_USAGE, NO_SUCH_SESSION, NOT_POSSIBLE, UNREACHABLE = 1, 2, 3, 4, 5
TIMED_OUT, INTERRUPTED, BROKEN_PIPE = 124, 130, 141

BUS_ERROR = "org.freedesktop.DBus.Error."
NO_REPLY = BUS_ERROR + "NoReply"
SERVICE_UNKNOWN = BUS_ERROR + "ServiceUnknown"
UNKNOWN_OBJECT = BUS_ERROR + "UnknownObject"
_NOT_UNDERSTOOD = frozenset(
    BUS_ERROR + name
    for name in ("UnknownMethod", "UnknownInterface", "UnknownObject", "UnknownProperty", "InvalidArgs")
)
# What amuxd says of an option that it does not know; amux itself gives none that does not exist.
_NO_SUCH_OPTION = ("there is no option ", "there is no filter ", "there is no property ")

_CODES = {
    "NoSuchSession": NO_SUCH_SESSION,
    "Ambiguous": NO_SUCH_SESSION,
    "NoSuchWorkspace": NO_SUCH_SESSION,
    "InvalidTransition": NOT_POSSIBLE,
    "NotResumable": NOT_POSSIBLE,
    "WorkspaceBusy": NOT_POSSIBLE,
    "WorkspaceDirty": NOT_POSSIBLE,
    "SetupNotAllowed": NOT_POSSIBLE,
    "InvalidArgument": WRONG_USAGE,
    "InvalidName": WRONG_USAGE,
}
_NOT_STARTED = (
    SERVICE_UNKNOWN,
    BUS_ERROR + "NameHasNoOwner",
    BUS_ERROR + "TimedOut",
    BUS_ERROR + "Spawn.",
    "org.freedesktop.systemd1.",
)


# To whoever looks on, and does not start it: why amuxd stays away.
STOPPED = "amuxd was stopped; this goes on once it is started again\n      systemctl --user start amuxd"
ENDED = "amuxd has ended; this goes on once it is started again\n      amux ls"


class Failure(Exception):
    exit_code = DID_NOT_WORK

    def __init__(self, sentence: str, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class WrongUsage(Failure):
    exit_code = WRONG_USAGE


class NotPossible(Failure):
    exit_code = NOT_POSSIBLE


class Unreachable(Failure):
    exit_code = UNREACHABLE


class NotStarted(Unreachable):
    """It is still starting."""


class Unanswered(Unreachable):
    """It was asked, and may do it yet."""


class Interrupted(Failure):
    """Ctrl-C, where something needs to be said about what goes on without us."""

    exit_code = INTERRUPTED


class BrokenOutput(Failure):
    exit_code = BROKEN_PIPE


class RemoteError(Exception):
    """An error reply."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        # Whose reply it was, as the bus calls it.
        self.sender = ""
        # What amuxd said last, and where it tells more: on a private bus there is no unit and no journal.
        self.said_last = ""
        self.ask = "journalctl --user -u amuxd"

    @property
    def is_not_started(self) -> bool:
        return self.name.startswith(_NOT_STARTED)

    @property
    def is_of_one_that_stops(self) -> bool:
        return self.name.startswith(PREFIX) and self.message in (STOPPING, UNFINISHED)

    @property
    def is_not_understood(self) -> bool:
        if self.name == PREFIX + "InvalidArgument":
            return self.message.startswith(_NO_SUCH_OPTION)
        return self.name in _NOT_UNDERSTOOD


def other_version(daemon: str, restart: str) -> Unreachable:
    return Unreachable(
        f"amuxd is {daemon}, amux {__version__}: they do not understand each other",
        f"{restart}  (no session ends)",
    )


def may_be_done(problem: BaseException) -> bool:
    """Of what was asked for: nobody said that it is not."""
    if isinstance(problem, RemoteError):
        return problem.name == NO_REPLY
    return isinstance(problem, (Unanswered, ConnectionResetError))


def explain(problem: BaseException) -> Failure:
    # Imported in here: what goes well need not load it.
    from click import ClickException, UsageError

    if isinstance(problem, Failure):
        return problem
    if isinstance(problem, RemoteError):
        return _explain_remote(problem)
    if isinstance(problem, UsageError):
        # click has a list of choices below one another.
        sentence = problem.format_message().replace("\n\t", " ")
        return WrongUsage(_lower_first(sentence), _usage_hint(problem))
    if isinstance(problem, ClickException):
        return Failure(problem.format_message())
    if isinstance(problem, UnicodeEncodeError):
        return WrongUsage(f"not valid UTF-8: {problem.object!a}")
    if isinstance(problem, ConnectionResetError):
        return Unreachable("the message bus closed the connection")
    if isinstance(problem, OSError) and problem.errno == errno.EBADF:
        return Failure("standard output is closed")
    if isinstance(problem, OSError):
        about = f"{problem.filename}: " if problem.filename else ""
        return Failure(about + (problem.strerror or str(problem)))
    return Failure(f"internal error: {problem!r}", "AMUX_DEBUG=1 shows where")


def _usage_hint(problem: "UsageError") -> str:
    from click import Argument, NoSuchOption

    if problem.ctx is None:
        return ""
    command = problem.ctx.command_path
    hint = f"{command} --help"
    takes_names = any(
        isinstance(parameter, Argument) and parameter.name in ("name", "names")
        for parameter in problem.ctx.command.get_params(problem.ctx)
    )
    if isinstance(problem, NoSuchOption) and takes_names:
        hint += f"; a name that begins with a dash: {command} -- NAME"
    return hint


def _explain_remote(problem: RemoteError) -> Failure:
    message = problem.message.rstrip(".\n") or problem.name
    if problem.name.startswith(PREFIX):
        code = _CODES.get(problem.name.removeprefix(PREFIX), DID_NOT_WORK)
        hint = "amux ws ls" if problem.name.endswith(".NoSuchWorkspace") else "amux ls -a"
        return Failure(message, hint if code == NO_SUCH_SESSION else "", code)
    if problem.name == UNKNOWN_OBJECT:
        return Failure("the session was removed", exit_code=NO_SUCH_SESSION)
    if problem.name == NO_REPLY:
        return Unreachable("amuxd went away before it answered", problem.ask)
    if problem.is_not_started:
        return Unreachable(f"amuxd does not start: {message}{problem.said_last}", problem.ask)
    return Failure(f"amuxd: {message} ({problem.name})")


def say(line: str) -> None:
    """On standard error, which may be full or closed: the exit code is true all the same."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def tell(problem: BaseException) -> int:
    """Says it on stderr; the exit code."""
    from amuxd.cli.text import harmless

    failure = explain(problem)
    say(f"amux: {harmless(failure.sentence)}")
    if failure.hint:
        say(f"      {harmless(failure.hint)}")
    return failure.exit_code


def _lower_first(sentence: str) -> str:
    sentence = sentence.rstrip(".")
    return sentence[:1].lower() + sentence[1:]
