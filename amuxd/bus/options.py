"""What callers ask for in an a{sv}, checked before anything exists."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amuxd.agents import Agent
from amuxd.errors import InvalidArgument
from amuxd.records import Limits, ResumePolicy, Session
from amuxd.supervisor import now


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
    session_id: str, command: Sequence[str], options: dict[str, Any], agents: Mapping[str, Agent]
) -> Session:
    """What was asked for, or InvalidArgument before anything exists."""
    agent = take(options, "agent", str, "")
    if agent and agent not in agents:
        raise InvalidArgument(f"there is no agent {agent!r}; known: {', '.join(sorted(agents))}")
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
        resume=ResumePolicy(resume),
        environment=_environment(take(options, "env", dict, {})),
        limits=_limits(options),
    )
    nothing_left(options, "option")
    return session


def _environment(environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + str(value):
            raise InvalidArgument(f"{name!r} cannot be the name of a variable")
    return environment


def _limits(options: dict[str, Any]) -> Limits:
    limits = Limits(
        memory_max=take(options, "memory_max", int, None),
        memory_high=take(options, "memory_high", int, None),
        cpu_quota=take(options, "cpu_quota", int, None),
        cpu_weight=take(options, "cpu_weight", int, None),
        tasks_max=take(options, "tasks_max", int, None),
    )
    if limits.cpu_weight is not None and not 1 <= limits.cpu_weight <= 10_000:
        raise InvalidArgument(f"cpu_weight must be from 1 to 10000, not {limits.cpu_weight}")
    for name in ("memory_max", "memory_high", "cpu_quota", "tasks_max"):
        if getattr(limits, name) == 0:
            raise InvalidArgument(f"{name} must be more than 0")
    return limits
