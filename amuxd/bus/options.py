"""What callers ask for in an a{sv}, checked before anything exists."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amuxd.agents import why_unknown
from amuxd.bus.interface import Interface
from amuxd.config import Settings
from amuxd.errors import InvalidArgument
from amuxd.helpers import INHERITED
from amuxd.records import Limits, ResumePolicy, Session
from amuxd.supervisor import now

# systemd counts in 64 bits, and a quota in microseconds a second.
_LARGEST = {
    "memory_max": 2**64 - 1,
    "memory_high": 2**64 - 1,
    "cpu_quota": 2**32 - 1,
    "cpu_weight": 10_000,
    "tasks_max": 2**64 - 1,
}


def take(options: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    if name not in options:
        return default
    value = options.pop(name)
    if kind is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidArgument(f"{name} cannot be {value!r}")
    return value


def nothing_left(options: dict[str, Any], what: str) -> None:
    if options:
        raise InvalidArgument(f"there is no {what} {next(iter(options))!r}")


def session_from(
    session_id: str, command: Sequence[str], options: dict[str, Any], settings: Settings
) -> Session:
    """What was asked for, or InvalidArgument before anything exists."""
    agent = take(options, "agent", str, "")
    agents = settings.agents
    if agent and agent not in agents:
        if settings.error:
            raise InvalidArgument(why_unknown(agent, settings.error))
        known = ", ".join(sorted(agents))
        hint = "what config.toml has got since is known after a reload"
        raise InvalidArgument(f"there is no agent {agent!r}; known: {known}; {hint}")
    if not agent and not (command and command[0]):
        raise InvalidArgument("a session needs a command")
    if any("\0" in word for word in command):
        raise InvalidArgument("a command cannot hold NUL")
    directory = take(options, "cwd", str, "") or str(Path.home())
    if not directory.startswith("/"):
        raise InvalidArgument(f"the directory must be absolute, and {directory!r} is not")
    if take(options, "host", str, "local") != "local":
        raise InvalidArgument("there is no host but local")
    resume = take(options, "resume", str, "manual")
    if resume not in set(ResumePolicy):
        raise InvalidArgument(f"resume must be manual or auto, not {resume!r}")
    shell = take(options, "shell", bool, False)
    if agent and shell:
        raise InvalidArgument("an agent is not started in a shell")
    session = Session(
        id=session_id,
        name="",
        command=list(command),
        directory=os.path.normpath(directory),
        created_at=now(),
        description=take(options, "description", str, ""),
        agent=agent,
        shell=shell,
        umask=umask_from(options),
        resume=ResumePolicy(resume),
        environment=environment_from(take(options, "env", dict, {})),
        limits=_limits(options),
    )
    nothing_left(options, "option")
    return session


def environment_from(environment: dict[object, object]) -> dict[str, str]:
    checked = {}
    for name, value in environment.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"a variable is text, and {name!r} cannot be {value!r}")
        if not name or "=" in name or "\0" in name + value:
            raise InvalidArgument(f"{name!r} cannot be a variable")
        checked[name] = value
    return checked


def umask_from(options: dict[str, Any]) -> int:
    umask: int = take(options, "umask", int, INHERITED)
    if umask != INHERITED and not 0 <= umask <= 0o777:
        raise InvalidArgument(f"umask must be from 0 to 0777, not {umask:#o}")
    return umask


def _limits(options: dict[str, Any]) -> Limits:
    limits = Limits(
        memory_max=take(options, "memory_max", int, None),
        memory_high=take(options, "memory_high", int, None),
        cpu_quota=take(options, "cpu_quota", int, None),
        cpu_weight=take(options, "cpu_weight", int, None),
        tasks_max=take(options, "tasks_max", int, None),
    )
    for name, largest in _LARGEST.items():
        value = getattr(limits, name)
        if value is not None and not 1 <= value <= largest:
            raise InvalidArgument(f"{name} must be from 1 to {largest}, not {value}")
    return limits


def properties_from(filter: dict[str, Any], interface: Interface) -> list[str] | None:
    """Those that are asked for; None: all."""
    names: list[str] | None = take(filter, "properties", list, None)
    for name in names or []:
        if name not in interface.properties:
            raise InvalidArgument(f"there is no property {name!r}")
    return names
