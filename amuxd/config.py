"""The user's settings, all of them optional."""

import reprlib
import shlex
import signal
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amuxd import hooks, paths
from amuxd.agents import BUILT_IN, IDLE_AFTER, Agent, OnExit, program_of
from amuxd.board import ATTENTION, URGENCY
from amuxd.errors import InvalidArgument
from amuxd.quantities import UNLIMITED, parse_duration, parse_size
from amuxd.retention import Retention

SMALLEST_LOG = 4 * 1024 * 1024
NEVER = "never"
# Thirty years, in seconds: more is a mistake, and less than what timers can count.
LONGEST = 1e9

Reader = Callable[[object], Any]

# What a person wrote is quoted as far as it helps to find it.
_quoting = reprlib.Repr()
_quoting.maxstring = _quoting.maxother = _quoting.maxlong = 100
_quoted = _quoting.repr


@dataclass(frozen=True)
class WorkspaceSettings:
    directory: Path = field(default_factory=lambda: paths.state_directory() / "worktrees")
    copy: tuple[str, ...] = ()
    # By repository; the empty name stands for all others.
    setup: dict[str, str] = field(default_factory=dict)

    def setup_for(self, repository: str) -> str:
        return self.setup.get(repository, self.setup.get("", ""))


@dataclass(frozen=True)
class Settings:
    log_cap: int = 64 * 1024 * 1024
    stop_grace: float = 10.0
    notify: frozenset[str] = frozenset({"failed", ATTENTION})
    terminal: str = ""
    idle_after: float = IDLE_AFTER
    retention: Retention = field(default_factory=Retention)
    agents: Mapping[str, Agent] = field(default_factory=lambda: BUILT_IN)
    workspaces: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    # Why these are not what the file says: they are those of before, or the defaults.
    error: str = ""

    def idle_after_of(self, agent: Agent | None) -> float:
        return self.idle_after if agent is None or agent.idle_after is None else agent.idle_after

    def stop_grace_of(self, agent: Agent | None) -> float:
        return self.stop_grace if agent is None or agent.stop_grace is None else agent.stop_grace


def load(path: Path) -> Settings:
    """A file that is wrong anywhere is refused whole, with the place named."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} cannot be read: it is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read: a value is too long or too deep ({error})") from error
    try:
        return _settings(data)
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}") from None
    except Exception as error:
        # Sessions are looked after also where nobody foresaw what somebody wrote.
        raise InvalidArgument(f"{path} cannot be understood: {error!r}") from error


def _settings(data: dict[str, object]) -> Settings:
    sessions = _section("sessions", data.pop("sessions", {}), _SESSIONS)
    retention = _section("retention", data.pop("retention", {}), _RETENTION)
    agents = _agents(data.pop("agents", {}))
    workspaces = _section("workspaces", data.pop("workspaces", {}), _WORKSPACES)
    if data:
        raise ValueError(f"there is no section [{next(iter(data))}]")
    return Settings(
        **sessions,
        retention=Retention(**retention),
        agents=agents,
        workspaces=WorkspaceSettings(**workspaces),
    )


def _section(name: str, section: object, readers: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ValueError(f"{name} must be a section")
    values = {}
    for key, value in section.items():
        if key not in readers:
            raise ValueError(f"there is no setting {key} in [{name}]")
        try:
            values[key] = readers[key](value)
        except ValueError as error:
            raise ValueError(f"{name}.{key}: {error}") from None
    return values


def _agents(section: object) -> dict[str, Agent]:
    if not isinstance(section, dict):
        raise ValueError("agents must be a section")
    agents = dict(BUILT_IN)
    for name, given in section.items():
        values = _section(f"agents.{name}", given, _AGENT)
        if "env" in values:
            values["environment"] = values.pop("env")
        agents[name] = _agent(name, values)
    return agents


def _agent(name: str, values: dict[str, Any]) -> Agent:
    """What is known of a built-in program holds for each profile that runs it."""
    built_in = BUILT_IN.get(name)
    if built_in is None and "start" not in values:
        raise ValueError(f"agents.{name}: a new agent needs start, the command that starts it")
    start = values["start"] if built_in is None else values.get("start", built_in.start)
    like = BUILT_IN.get(program_of(start[0]), built_in)
    if like is None:
        return Agent(name, **values)
    # How it is continued is a matter of how it is started, which is the profile's own.
    resume = built_in.resume if built_in else ()
    agent = replace(like, **{"name": name, "resume": resume, **values})
    calls = hooks.calls(program_of(agent.start[0]))
    if calls and (unknown := sorted(set(agent.attention) - set(calls))):
        raise ValueError(f"agents.{name}.attention: there is no {_quoted(unknown[0])}: {', '.join(calls)}")
    return agent


def _size(value: object) -> int:
    size = value if type(value) is int else parse_size(_text(value))
    if size < SMALLEST_LOG:
        raise ValueError("a log needs at least 4M")
    if size > UNLIMITED:
        raise ValueError("no log becomes that large")
    return size


def _duration(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LONGEST:
        return float(value)
    duration = parse_duration(_text(value))
    if duration >= LONGEST:
        raise ValueError(f"{_quoted(value)} is too long")
    return duration


def _duration_or_never(value: object) -> float | None:
    return None if value == NEVER else _duration(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{_quoted(value)} is no text")
    return value


def _kinds(value: object) -> frozenset[str]:
    kinds = frozenset(_texts(value))
    if unknown := sorted(kinds - set(URGENCY)):
        raise ValueError(f"there is no {_quoted(unknown[0])} to tell of: {', '.join(URGENCY)}")
    return kinds


def _terminal(value: object) -> str:
    if not shlex.split(_text(value)):
        raise ValueError("it names no program")
    return _text(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{_quoted(value)} is no list of texts")
    return tuple(map(_text, value))


def _command(value: object) -> tuple[str, ...]:
    words = _texts(value)
    if not words or not words[0]:
        raise ValueError("a command needs a program")
    return words


def _on_exit(value: object) -> OnExit:
    try:
        return OnExit(_text(value))
    except ValueError:
        raise ValueError(f"it is complete or stay, not {_quoted(value)}") from None


def _signal(value: object) -> str:
    name = "SIG" + _text(value).upper().removeprefix("SIG")
    # A stopped process ends never, and one that is killed saves nothing.
    if name not in signal.Signals.__members__ or name in {"SIGSTOP", "SIGKILL"}:
        raise ValueError(f"{_quoted(value)} is not a signal that asks a program to end, such as TERM or INT")
    return name


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"it is true or false, not {_quoted(value)}")
    return value


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{_quoted(value)} is no table of variables")
    for name in value:
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{_quoted(name)} cannot be the name of a variable")
    return {name: _text(text) for name, text in value.items()}


def _directory(value: object) -> Path:
    try:
        path = Path(_text(value)).expanduser()
    except RuntimeError:
        raise ValueError(f"{_quoted(value)} begins with a home that is not known") from None
    if not path.is_absolute():
        raise ValueError(f"{_quoted(str(path))} is not absolute")
    return path


def _relative_names(value: object) -> tuple[str, ...]:
    names = _texts(value)
    for name in names:
        if name and not Path(name).parts:
            raise ValueError(f"{_quoted(name)} is the whole repository: name what git does not keep in it")
        if not name or name.startswith("/") or ".." in Path(name).parts or ".git" in Path(name).parts:
            raise ValueError(f"{_quoted(name)} does not lie in a repository")
    return names


def _set_ups(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {"": _text(value)}
    return {str(_directory(repository)): _text(command) for repository, command in value.items()}


_SESSIONS: Mapping[str, Reader] = {
    "log_cap": _size,
    "stop_grace": _duration,
    "idle_after": _duration,
    "notify": _kinds,
    "terminal": _terminal,
}
_RETENTION: Mapping[str, Reader] = dict.fromkeys(Retention.__dataclass_fields__, _duration_or_never)
_AGENT: Mapping[str, Reader] = {
    "start": _command,
    "resume": _texts,
    "on_exit": _on_exit,
    "idle_after": _duration,
    "park_after": _duration_or_never,
    "stop_signal": _signal,
    "stop_children": _flag,
    "stop_grace": _duration,
    "attention": _texts,
    "env": _environment,
}
_WORKSPACES: Mapping[str, Reader] = {
    "directory": _directory,
    "copy": _relative_names,
    "setup": _set_ups,
}
