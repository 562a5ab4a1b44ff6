"""What a session, a run and its end are, and their JSON. Moments are microseconds since the epoch."""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from amuxd.states import ENDED, End, State
from amuxd.stored import UNKNOWN, Stored

SCHEMA = 1

Record = TypeVar("Record")
Json = dict[str, Any]

# Each entry turns a file's content of that schema into the next one.
MIGRATIONS: dict[int, Callable[[Json], Json]] = {}


class NotReadable(Exception):
    """The text is no record that this amuxd can read."""


class OfLaterSchema(NotReadable):
    """It may well be whole, for the amuxd that wrote it."""


class HostKind(StrEnum):
    LOCAL = "local"
    CONTAINER = "container"


class ResumePolicy(StrEnum):
    MANUAL = "manual"
    AUTO = "auto"


@dataclass(frozen=True)
class Limits(Stored):
    memory_max: int | None = None
    memory_high: int | None = None
    cpu_quota: int | None = None
    cpu_weight: int | None = None
    tasks_max: int | None = None


@dataclass(frozen=True)
class Session(Stored):
    """What the user asked for: written once, and changed only by the user."""

    id: str
    name: str
    command: list[str]
    directory: str
    created_at: int
    description: str = ""
    agent: str = ""
    workspace_id: str = ""
    queue: bool = False
    host: HostKind = HostKind.LOCAL
    image: str = ""
    shell: bool = False
    # -1: as the user's manager has it.
    umask: int = -1
    resume: ResumePolicy = ResumePolicy.MANUAL
    environment: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Process(Stored):
    """A process that no other can be mistaken for: numbers are used again, start times with them are not."""

    pid: int
    started: int


@dataclass(frozen=True)
class Ground(Stored):
    """Which directory its workspace was when this process began to work there.

    While the process lives no other one gets its numbers: the terminal of the run holds on to it.
    """

    command: Process
    device: int
    inode: int
    mount: int


@dataclass(frozen=True)
class HistoryEntry(Stored):
    at: int
    run: int
    from_state: State | None
    to_state: State
    reason: str
    by: str


@dataclass(frozen=True)
class RunState(Stored):
    """Where the session stands."""

    session_id: str
    state: State
    state_changed_at: int
    updated_by: int
    run: int
    boot_id: str
    reason: str
    previous: State | None = None
    changed_for: str = ""
    workspace_id: str = ""
    started_at: int = 0
    # When amuxd last wrote something of it and knew that its command had not ended.
    alive_at: int = 0
    # Until when a stop waits, in microseconds on the clock of this boot: another amuxd may have to keep it.
    stop_by: int = 0
    command: Process | None = None
    server: Process | None = None
    # An earlier amuxd carries along that of another process.
    ground: Ground | None = None
    # How many of its processes the kernel had killed for memory, when amuxd last looked.
    memory_kills: int = 0
    not_enforced: list[str] = field(default_factory=list)
    last_activity_hash: int = 0
    last_activity_at: int = 0
    last_checked_at: int = 0
    attention: str = ""
    attention_message: str = ""
    attention_at: int = 0
    parked: bool = False
    parked_at: int = 0
    # How and when the process of a parked session ended, where that is known.
    parked_end: End | None = None
    parked_end_at: int = 0
    conversation_id: str = ""
    # Whether anything was said in the conversation; None: it is not known.
    said: bool | None = None
    # The conversation of which only a look that failed made that unknown: the next one decides.
    not_looked_into: str = ""
    resuming: bool = False
    # An agent's, as its run was begun, without what makes it report.
    agent_command: list[str] = field(default_factory=list)
    auto_boot: str = ""
    auto_run: int = 0
    auto_failures: int = 0
    auto_lasted: bool = False
    # The machine went down under it, and not in order.
    cut_short: bool = False
    # The step before this one, where both were made as one.
    step_before: HistoryEntry | None = None
    # Of a run that has ended, so that its end and its state are one.
    end: End | None = None
    # Not 0: when it ended is not known, but that it was after this and before the state changed.
    ended_after: int = 0
    # Not 0: it ended then, which is before the state changed.
    ended_at: int = 0
    # Not 0: that the state changed was known only then.
    known_at: int = 0
    # By the clock of its boot, which nobody sets. An earlier amuxd carries along that of another change.
    uptime_at_change: int = 0


@dataclass(frozen=True)
class Certificate(Stored):
    """How a run ended. Complete once the last lines are certain to be all that it printed."""

    session_id: str
    run: int
    ended_at: int
    reason: str
    end: End
    last_lines: list[str] = field(default_factory=list)
    complete: bool = False
    # Not 0: it ended after this, and at the latest at ended_at.
    ended_after: int = 0
    # The next run may begin another one.
    conversation_id: str = ""


def is_of_boot(recorded: str, boot: str) -> bool:
    """Earlier amuxds wrote down the kernel's boot alone, also in a container."""
    return recorded in (boot, boot.partition("/")[0])


def history_in(state: RunState) -> list[HistoryEntry]:
    """What the state itself tells of how it came about."""
    at, run = state.state_changed_at, state.run
    entry = HistoryEntry(at, run, state.previous, state.state, state.reason, state.changed_for)
    return [state.step_before, entry] if state.step_before else [entry]


def end_of_parked(state: RunState) -> tuple[End | None, int]:
    """How and when its process ended. An earlier amuxd carries that along to a later run."""
    return (state.parked_end, state.parked_end_at) if state.parked_end_at >= state.started_at else (None, 0)


def certificate_in(state: RunState) -> Certificate | None:
    """Until the last lines are known, the state is all that says how its run ended."""
    if state.end is None or state.state not in ENDED:
        return None
    # An earlier amuxd carries along that of another run.
    ended_at = state.ended_at if state.ended_at >= state.started_at else 0
    return Certificate(
        *(state.session_id, state.run, ended_at or state.state_changed_at, state.reason, state.end),
        ended_after=state.ended_after,
        conversation_id=state.conversation_id,
    )


def ends_later(state: RunState) -> bool:
    """Whether its process may live on for a while, although its run is over."""
    has_ended = state.end is not None and state.end.known
    return state.state is State.ORPHANED and state.command is not None and not has_ended


@dataclass(frozen=True)
class LastWord(Stored):
    """Of a session that ran when amuxd went: which state it says it of, when and why amuxd went."""

    session_id: str
    state_changed_at: int
    at: int
    why: str
    # Not 0: its command had ended then, and that could not be written.
    ended_at: int = 0


@dataclass(frozen=True)
class LastWords(Stored):
    words: list[LastWord]


@dataclass(frozen=True)
class Place(Stored):
    """A session's place in a workspace, or in the queue for one; the process that took it for the session."""

    session_id: str
    run: int
    taker: Process
    taken_at: int
    waited: bool = False


@dataclass(frozen=True)
class Workspace(Stored):
    """A directory that sessions work in, and who holds its slots: 0 slots are as many as anybody wants."""

    id: str
    name: str
    directory: str
    created_at: int
    slots: int = 0
    repository: str = ""
    branch: str = ""
    made_branch: bool = False
    base: str = ""
    being_made: bool = False
    copied: dict[str, str] = field(default_factory=dict)
    # Where the files lay that were copied; empty: in the repository.
    copied_from: str = ""
    # What came of the repository's own hook when it was made; empty: no harm.
    hook_failure: str = ""
    # The PATH of who made it: there is what git calls in it.
    search_path: str = ""
    # The last boot on which its directory was there.
    seen_on: str = ""
    holders: list[Place] = field(default_factory=list)
    queue: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class Allowed(Stored):
    """Which set-up commands the user has allowed in which repository."""

    commands: dict[str, list[str]] = field(default_factory=dict)


# The names that files use where Python's own words are in the way.
_KEYS = {"from_state": "from", "to_state": "to"}
_SCALARS = frozenset({str, int, bool, type(None)})


def encode(record: Any) -> Json:
    plain = _plain(record)
    assert isinstance(plain, dict)
    return {"schema": SCHEMA, **plain}


def to_text(record: Any) -> str:
    text = json.dumps(encode(record), ensure_ascii=False, separators=(",", ":")) + "\n"
    # What is no text in the name of a file is told by surrogates, and JSON escapes them as Python does.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    # Most values are one of these, and every transition writes some dozens.
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Stored):
        told = {key: _plain(getattr(value, name)) for key, name in _known(type(value)).items()}
        return told | value.unknown
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def from_text(kind: type[Record], text: str) -> Record:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotReadable(f"it is not JSON ({error})") from None
    return decode(kind, data)


def decode(kind: type[Record], data: Any) -> Record:
    if not isinstance(data, dict):
        raise NotReadable("it is not an object")
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise NotReadable("it names no schema")
    if schema > SCHEMA:
        raise OfLaterSchema(f"it is of schema {schema}, and this amuxd reads up to {SCHEMA}")
    for step in range(schema, SCHEMA):
        if step not in MIGRATIONS:
            raise NotReadable(f"it is of schema {schema}, which never was")
        data = MIGRATIONS[step](data)
    record = _typed(kind, {key: value for key, value in data.items() if key != "schema"}, kind.__name__)
    assert isinstance(record, kind)
    return record


_hints: dict[type, dict[str, Any]] = {}
_keys: dict[type, dict[str, str]] = {}


def _typed(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in kind.__args__:
            return None
        (kind,) = (a for a in kind.__args__ if a is not type(None))
    if type(value) is kind:
        return value
    if isinstance(kind, type) and issubclass(kind, Stored):
        return _record(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError:
            raise NotReadable(f"{where} cannot be {value!r}") from None
    origin = typing.get_origin(kind)
    if origin is list and isinstance(value, list):
        (item,) = typing.get_args(kind)
        return [_typed(item, v, where) for v in value]
    if origin is dict and isinstance(value, dict):
        _, item = typing.get_args(kind)
        return {k: _typed(item, v, where) for k, v in value.items()}
    raise NotReadable(f"{where} cannot be {value!r}")


def _record(kind: type[Stored], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise NotReadable(f"{where} is not an object")
    if kind not in _hints:
        _hints[kind] = typing.get_type_hints(kind)
    hints, known = _hints[kind], _known(kind)
    arguments: Json = {UNKNOWN: {key: told for key, told in value.items() if key not in known}}
    for key, name in known.items():
        if key in value:
            arguments[name] = _typed(hints[name], value[key], f"{where}.{key}")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise NotReadable(f"{where} is not whole ({error})") from None


def _known(kind: type[Stored]) -> dict[str, str]:
    """The keys that a file has for it, and the fields that they are read into."""
    if kind not in _keys:
        _keys[kind] = {_KEYS.get(f.name, f.name): f.name for f in fields(kind) if f.name != UNKNOWN}
    return _keys[kind]
