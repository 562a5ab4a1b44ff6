"""What a session waits for a person for: facts in, a wait or none out, and no I/O."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from amuxd.lengths import shortened
from amuxd.records import RunState

# Microseconds. What is printed this soon after the call is the question being drawn, not an answer to it.
AFTERGLOW = 2_000_000
LONGEST_MESSAGE = 500


class Kind(StrEnum):
    PERMISSION = "permission"
    QUESTION = "question"
    TURN = "turn"
    BELL = "bell"
    CUSTOM = "custom"


# What a hook reports when nobody needs to come any more.
WORKING = "working"
# And when the agent has gone over to another conversation: a matter of resuming, not of waiting.
CONVERSATION = "conversation"
# Of a conversation in which nothing was said an agent reports none of these.
OF_A_TURN = (Kind.PERMISSION, Kind.QUESTION, Kind.TURN, WORKING)
REPORTS = (*Kind, WORKING, CONVERSATION)


@dataclass(frozen=True)
class Wait:
    kind: Kind
    message: str
    since: int


@dataclass(frozen=True)
class Reported:
    """By a hook of the agent itself, with the token of this very run."""

    kind: Kind
    message: str
    at: int


@dataclass(frozen=True)
class Works:
    """The agent says that it goes on."""


@dataclass(frozen=True)
class Printed:
    at: int


@dataclass(frozen=True)
class Pressed:
    """A key was read, perhaps; what a terminal answers to the program itself comes as soon as it asks."""

    at: int


@dataclass(frozen=True)
class Rang:
    """A call in the output itself; of some agents it says what for."""

    message: str
    at: int
    kind: Kind = Kind.BELL


@dataclass(frozen=True)
class Typed:
    """A person answered."""


@dataclass(frozen=True)
class Died:
    """Whatever it said last, the dead wait for nobody."""


Fact = Reported | Works | Printed | Pressed | Rang | Typed | Died


def decide(wait: Wait | None, fact: Fact) -> Wait | None:
    match fact:
        case Reported(kind=kind, message=message, at=at):
            return Wait(kind, message, at)
        case Rang(message=message, at=at, kind=Kind.BELL):
            return _rang(wait, message, at)
        case Rang(message=message, at=at, kind=kind):
            return Wait(kind, message, at)
        case Printed(at=at) | Pressed(at=at):
            return None if wait is not None and at > wait.since + AFTERGLOW else wait
    return None


def while_parked(wait: Wait | None) -> Wait | None:
    """Without its process it can be answered nothing any more; that it is the person's turn stays true."""
    return wait if wait is not None and wait.kind is Kind.TURN else None


def _rang(wait: Wait | None, message: str, at: int) -> Wait | None:
    if wait is None:
        return Wait(Kind.BELL, message, at)
    if wait.kind is Kind.BELL:
        return replace(wait, message=message or wait.message, since=at)
    # The agent has said better what it waits for; many ring as well.
    return wait


def one_line(message: str) -> str:
    """What a program sent, as a line that a file, the bus and a terminal can hold."""
    clean = message.encode(errors="replace").decode()
    line = " ".join("".join(c if c.isprintable() else " " for c in clean).split())
    return shortened(line, LONGEST_MESSAGE)


def wait_of(state: RunState) -> Wait | None:
    if not state.attention:
        return None
    return Wait(Kind(state.attention), state.attention_message, state.attention_at)


def as_changes(wait: Wait | None) -> dict[str, Any]:
    """What of the state on disk says that it waits so."""
    if wait is None:
        return {"attention": "", "attention_message": "", "attention_at": 0}
    return {"attention": wait.kind.value, "attention_message": wait.message, "attention_at": wait.since}
