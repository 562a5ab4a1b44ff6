"""What a session, a run and its end are, and their JSON. Moments are microseconds since the epoch."""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from amuxd.states import ENDED, End, State

SCHEMA = 1

Record = TypeVar("Record")
Json = dict[str, Any]

# Each entry turns a file's content of that schema into the next one.
MIGRATIONS: dict[int, Callable[[Json], Json]] = {}


class NotReadable(Exception):
    """The text is no record that this amuxd can read."""


class HostKind(StrEnum):
    LOCAL = "local"
    CONTAINER = "container"


class ResumePolicy(StrEnum):
    MANUAL = "manual"
    AUTO = "auto"


@dataclass(frozen=True)
class Limits:
    memory_max: int | None = None
    memory_high: int | None = None
    cpu_quota: int | None = None
    cpu_weight: int | None = None
    tasks_max: int | None = None


@dataclass(frozen=True)
class Session:
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
    resume: ResumePolicy = ResumePolicy.MANUAL
    environment: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Process:
    """A process that no other can be mistaken for: numbers are used again, start times with them are not."""

    pid: int
    started: int


@dataclass(frozen=True)
class RunState:
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
    # Until when a stop waits, in microseconds on the clock of this boot: another amuxd may have to keep it.
    stop_by: int = 0
    command: Process | None = None
    server: Process | None = None
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
    conversation_id: str = ""
    resuming: bool = False
    auto_boot: str = ""
    auto_run: int = 0
    auto_failures: int = 0
    auto_lasted: bool = False
    # The machine went down under it, and not in order.
    cut_short: bool = False
    # Of a run that has ended, so that its end and its state are one.
    end: End | None = None


@dataclass(frozen=True)
class HistoryEntry:
    at: int
    run: int
    from_state: State | None
    to_state: State
    reason: str
    by: str


@dataclass(frozen=True)
class Certificate:
    """How a run ended. Complete once the last lines are certain to be all that it printed."""

    session_id: str
    run: int
    ended_at: int
    reason: str
    end: End
    last_lines: list[str] = field(default_factory=list)
    complete: bool = False


def certificate_in(state: RunState) -> Certificate | None:
    """Until the last lines are known, the state is all that says how its run ended."""
    if state.end is None or state.state not in ENDED:
        return None
    return Certificate(state.session_id, state.run, state.state_changed_at, state.reason, state.end)


@dataclass(frozen=True)
class Place:
    """A session's place in a workspace, or in the queue for one; the process that took it for the session."""

    session_id: str
    run: int
    taker: Process
    taken_at: int
    waited: bool = False


@dataclass(frozen=True)
class Workspace:
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
    # The PATH of who made it: there is what git calls in it.
    search_path: str = ""
    holders: list[Place] = field(default_factory=list)
    queue: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class Allowed:
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
    return json.dumps(encode(record), ensure_ascii=False, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    # Most values are one of these, and every transition writes some dozens.
    if type(value) in _SCALARS:
        return value
    if is_dataclass(value):
        return {_KEYS.get(f.name, f.name): _plain(getattr(value, f.name)) for f in fields(value)}
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
        raise NotReadable(f"it is of schema {schema}, and this amuxd reads up to {SCHEMA}")
    for step in range(schema, SCHEMA):
        if step not in MIGRATIONS:
            raise NotReadable(f"it is of schema {schema}, which never was")
        data = MIGRATIONS[step](data)
    record = _typed(kind, data, kind.__name__)
    assert isinstance(record, kind)
    return record


_hints: dict[type, dict[str, Any]] = {}


def _typed(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in kind.__args__:
            return None
        (kind,) = (a for a in kind.__args__ if a is not type(None))
    if type(value) is kind:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
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


def _record(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise NotReadable(f"{where} is not an object")
    if kind not in _hints:
        _hints[kind] = typing.get_type_hints(kind)
    hints = _hints[kind]
    arguments = {}
    for f in fields(kind):
        key = _KEYS.get(f.name, f.name)
        if key in value:
            arguments[f.name] = _typed(hints[f.name], value[key], f"{where}.{key}")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise NotReadable(f"{where} is not whole ({error})") from None
