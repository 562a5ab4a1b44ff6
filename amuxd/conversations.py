"""Which conversation a run continues, by which command, and how an agent's own choice is found out."""

import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from amuxd import hooks
from amuxd.agents import CONVERSATION, Filling, Kept, fill, program_of
from amuxd.hosts import LaunchRefused
from amuxd.paths import amux_program
from amuxd.records import Session
from amuxd.registry import Entry


@dataclass(frozen=True)
class Plan:
    """The session as its host shall start it, and the conversation that it is then in, if that is known."""

    session: Session
    conversation: str


def plan(entry: Entry, resuming: bool) -> Plan:
    session, agent = entry.session, entry.agent
    if not session.agent:
        return Plan(session, "")
    if agent is None:
        raise LaunchRefused(f"there is no agent {session.agent!r} any more")
    environment = {**agent.environment, **session.environment}
    template = agent.start
    if resuming:
        conversation = entry.state.conversation_id
        # Where nothing was said yet there is nothing to continue but the id that was promised to it.
        if not agent.takes_our_id or _has_begun(agent.kept, conversation, environment):
            template = agent.resume
    else:
        conversation = str(uuid.uuid4()) if agent.takes_our_id else ""
    program, *words = fill(template, _filling(session, conversation, environment))
    # For this run alone, and to the agent itself: the user's own files and wrappers stay as they are.
    reporting = []
    if agent.attention:
        reporting = hooks.arguments(program_of(program), amux_program(), agent.attention)
    command = [program, *reporting, *words, *session.command]
    return Plan(replace(session, command=command, environment=environment), conversation)


def command(entry: Entry) -> list[str]:
    """The present run's, as a person would type it."""
    session, agent = entry.session, entry.agent
    if not session.agent:
        return session.command
    if agent is None:
        return [session.agent, *session.command]
    template = agent.resume if entry.state.resuming and agent.resume else agent.start
    conversation = entry.state.conversation_id or CONVERSATION
    return [*fill(template, _filling(session, conversation, session.environment)), *session.command]


def _filling(session: Session, conversation: str, environment: dict[str, str]) -> Filling:
    shell = environment.get("SHELL") or os.environ.get("SHELL") or "/bin/sh"
    return Filling(conversation, session.id, session.name, session.directory, shell)


def _has_begun(kept: Kept | None, conversation: str, environment: dict[str, str]) -> bool:
    if kept is None:
        return True
    home = Path(environment.get("HOME") or Path.home())
    base = Path(environment.get(kept.variable) or home / kept.directory)
    return any(base.glob(kept.written_for(conversation)))


def is_to_be_found(entry: Entry) -> bool:
    """Whether the agent chose the id itself, and leaves a trace of it that only its own process can leave."""
    agent = entry.agent
    return (
        agent is not None
        and agent.kept is not None
        and bool(agent.resume)
        and not agent.takes_our_id
        and not entry.state.conversation_id
    )


def find(pid: int, kept: Kept) -> str:
    """The one conversation that the process or its children are writing; empty where that is not certain.

    Not the newest in the directory: another session may be there.
    """
    found = written(pid, kept)
    return found.pop() if len(found) == 1 else ""


def written(pid: int, kept: Kept) -> set[str]:
    """Those that the process and its children have open to write on."""
    return {
        conversation
        for process in _family(pid)
        for path in _written_by(process)
        if (conversation := kept.written_as(path))
    }


def _family(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def _written_by(pid: int) -> list[str]:
    written = []
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            flags = Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text().split("flags:")[1].split()[0]
            if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                written.append(str(fd.readlink()))
    except OSError:
        # It ended, or closed the file, while it was looked at: the next look sees better.
        return written
    return written
