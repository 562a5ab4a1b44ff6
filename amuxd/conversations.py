"""Which conversation a run continues, by which command, and how an agent's own choice is found out."""

import os
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from amuxd import hooks, processes
from amuxd.agents import CONVERSATION, Filling, Kept, fill, program_of
from amuxd.hosts import LaunchRefused
from amuxd.paths import amux_program
from amuxd.records import Session
from amuxd.registry import Entry

_LONGEST_BEGINNING = 1 << 20
_A_HELPERS = re.compile(rb'"thread_source":"(?!user")|"source":\{')


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
        raise LaunchRefused(entry.why_no_agent)
    environment = {**agent.environment, **session.environment}
    template = agent.start
    if resuming:
        conversation = entry.state.conversation_id
        if not agent.takes_our_id or agent.kept is None:
            template = agent.resume
        # Where nothing was said yet there is nothing to continue but the id that was promised to it.
        elif files := _kept_of(agent.kept, conversation, environment):
            if any(_has_message(file, agent.kept.message) for file in files):
                template = agent.resume
            else:
                # And that the agent does not take for another one, once there is a file.
                conversation = str(uuid.uuid4())
    else:
        conversation = str(uuid.uuid4()) if agent.takes_our_id else ""
    program, *words = fill(template, _filling(session, conversation, environment))
    # For this run alone, and to the agent itself: the user's own files and wrappers stay as they are.
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


def _kept_of(kept: Kept, conversation: str, environment: dict[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or Path.home())
    base = Path(environment.get(kept.variable) or home / kept.directory)
    return list(base.glob(kept.written_for(conversation)))


def _has_message(path: Path, message: bytes) -> bool:
    """A file that cannot be read is the agent's to complain of."""
    try:
        with path.open("rb") as file:
            return any(message in line for line in file)
    except OSError:
        return True


def is_to_be_found(entry: Entry) -> bool:
    """Whether the agent chooses the id itself, and leaves a trace that only its own process can leave."""
    agent = entry.agent
    return agent is not None and agent.kept is not None and bool(agent.resume) and not agent.takes_our_id


def find(pid: int, kept: Kept) -> str:
    """The conversation that the agent wrote to last; empty where that is not certain.

    Not the newest in the directory: another session may be there. And an agent that has begun another one may
    hold the one before open as well.
    """
    try:
        return _last_written(pid, kept)
    except _GoneMeanwhile:
        return ""


def _last_written(pid: int, kept: Kept) -> str:
    terminal = _terminal_of(pid)
    processes_of_one_depth = [pid]
    while processes_of_one_depth:
        # What has no terminal serves others too; and what the agent itself runs is deeper than it.
        own = [process for process in processes_of_one_depth if _terminal_of(process) == terminal]
        if found := [writing for process in own for writing in _written_by(process, kept)]:
            *others, (last, conversation) = sorted(found)
            return "" if others and others[-1][0] == last and others[-1][1] != conversation else conversation
        processes_of_one_depth = [child for process in own for child in processes.children(process)]
    return ""


def _terminal_of(pid: int) -> Path | None:
    process = processes.identify(pid)
    return processes.terminal_of(process) if process else None


class _GoneMeanwhile(Exception):
    """A conversation was closed while it was looked at: the next look sees better."""


def _written_by(pid: int, kept: Kept) -> list[tuple[int, str]]:
    """When it was last written to, and which conversation that is."""
    try:
        fds = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        # It has ended.
        return []
    return [written for fd in fds if (written := _written_through(fd, kept)) is not None]


def _written_through(fd: Path, kept: Kept) -> tuple[int, str] | None:
    try:
        file = fd.readlink()
    except OSError:
        return None
    conversation = kept.written_as(str(file))
    if not conversation:
        return None
    try:
        written = _is_open_for_writing(fd) and _is_with_a_person(fd)
        at = fd.stat().st_mtime_ns
        is_same = fd.readlink() == file
    except OSError:
        raise _GoneMeanwhile from None
    if not is_same:
        raise _GoneMeanwhile
    return (at, conversation) if written else None


def _is_open_for_writing(fd: Path) -> bool:
    flags = (fd.parent.parent / "fdinfo" / fd.name).read_text().split("flags:")[1].split()[0]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _is_with_a_person(fd: Path) -> bool:
    """As its beginning tells: codex has helpers, and each of them a conversation of its own."""
    with fd.open("rb") as file:
        beginning = file.readline(_LONGEST_BEGINNING)
    return bool(beginning) and not _A_HELPERS.search(beginning)
