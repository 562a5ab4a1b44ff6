"""Which conversation a run continues, by which command, and how an agent's own choice is found out."""

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from amuxd import hooks, processes
from amuxd.agents import CONVERSATION, Agent, Filling, Kept, fill, program_of
from amuxd.hosts import Host, LaunchRefused
from amuxd.paths import amux_program
from amuxd.records import Session
from amuxd.registry import Entry
from amuxd.threads import alone

# How long it may take to read what is kept of a conversation that goes on.
PLANNED = 10.0

_LONGEST_BEGINNING = 1 << 20
_A_HELPERS = re.compile(rb'"thread_source":"(?!user")|"source":\{')


@dataclass(frozen=True)
class Plan:
    """The session as its host shall start it, and the conversation that it is then in, if that is known."""

    session: Session
    conversation: str
    said: bool | None = None
    # An agent's command, as a person would type it.
    shown: list[str] = field(default_factory=list)


async def planned(entry: Entry, resuming: bool, host: Host) -> Plan:
    """What an agent keeps may be on a disk that does not answer, which is nobody else's trouble."""
    surroundings = None
    if resuming and is_kept(entry):
        surroundings = await host.environment(with_environment(entry))
    try:
        return await alone(partial(plan, entry, resuming, surroundings), PLANNED)
    except TimeoutError:
        raise LaunchRefused(
            f"what is kept of its conversation could not be read within {PLANNED:.0f} s"
        ) from None


def plan(entry: Entry, resuming: bool, surroundings: Mapping[str, str] | None = None) -> Plan:
    """surroundings: all variables that the run will find, where they are more than its own."""
    session, agent = with_environment(entry), entry.agent
    if not session.agent:
        return Plan(session, "", None)
    if agent is None:
        raise LaunchRefused(entry.why_no_agent)
    goes_on, said = resuming, None
    if not resuming:
        conversation = str(uuid.uuid4()) if agent.takes_our_id else ""
        said = False if is_kept(entry) else None
    elif kept := _kept(entry):
        goes_on, conversation, said = _continued(entry, kept, session, surroundings)
    else:
        conversation = entry.state.conversation_id
    program, *words = fill(agent.resume if goes_on else agent.start, _filling(session, conversation))
    # For this run alone, and to the agent itself: the user's own files and wrappers stay as they are.
    reporting = hooks.arguments(program_of(program), amux_program(), agent.attention)
    given = _given(session, agent, goes_on)
    command = [program, *reporting, *words, *given]
    shown = [program, *words, *given]
    return Plan(replace(session, command=command), conversation, said, shown)


def _continued(
    entry: Entry, kept: Kept, session: Session, surroundings: Mapping[str, str] | None
) -> tuple[bool, str, bool]:
    """Whether what was said goes on. Where nothing was, all that there is to continue is the promised id."""
    if why := why_lost(entry, surroundings):
        raise LaunchRefused(why)
    conversation = entry.state.conversation_id
    files = _files_of(kept, conversation, session, surroundings)
    if any(_has_message(file, kept.message) for file in files) or (files and entry.state.said):
        return True, conversation, True
    question = None if _is_asked_again(entry) else kept.question
    if question and any(_has_message(file, question) for file in files):
        return True, conversation, False
    # And that the agent does not take for another one, once there is a file.
    return False, str(uuid.uuid4()) if files else conversation, False


def why_lost(entry: Entry, surroundings: Mapping[str, str] | None = None) -> str:
    """Why what was said in its conversation cannot go on; empty where it can, or nothing was said."""
    kept = _kept(entry)
    if kept is None or entry.state.said is False:
        return ""
    conversation, session = entry.state.conversation_id, with_environment(entry)
    if _files_of(kept, conversation, session, surroundings):
        return ""
    directory = _base_of(kept, session, surroundings)
    why = f"nothing is kept in {directory} of its conversation {conversation}"
    return why if entry.state.said else f"{why}, and whether anything was said in it is not known"


def why_unanswered(entry: Entry) -> str:
    """Why its agent may keep nothing of it if it ended now; empty where that is nothing, or is kept."""
    kept = _kept(entry)
    if kept is None or not kept.once_answered or entry.state.said:
        return ""
    return f"{entry.session.agent} may keep nothing of a conversation before it has answered in it"


def was_said(entry: Entry, conversation: str, surroundings: Mapping[str, str] | None = None) -> bool | None:
    """Whether the agent keeps something that was said in it; None: there is no place where it would."""
    kept = _kept(entry)
    if kept is None:
        return False
    session = with_environment(entry)
    files = _files_of(kept, conversation, session, surroundings)
    if any(_has_message(file, kept.message) for file in files):
        return True
    return False if _base_of(kept, session, surroundings).exists() else None


def with_environment(entry: Entry) -> Session:
    """The session, with the variables of its agent's profile."""
    profile = entry.agent.environment if entry.agent else {}
    return replace(entry.session, environment={**profile, **entry.session.environment})


def is_kept(entry: Entry) -> bool:
    """Whether there is a file to be looked for, of a conversation with an id of amux's own choice."""
    return _kept(entry) is not None


def _kept(entry: Entry) -> Kept | None:
    agent = entry.agent
    return agent.kept if agent is not None and agent.takes_our_id else None


def command(entry: Entry) -> list[str]:
    """The present run's, as a person would type it; of one that has not begun, what it is likely to be."""
    session, agent = entry.session, entry.agent
    if not session.agent:
        return session.command
    if entry.state.agent_command:
        return entry.state.agent_command
    if agent is None:
        return [session.agent, *session.command]
    goes_on = entry.state.resuming and bool(agent.resume)
    filling = _filling(session, entry.state.conversation_id or CONVERSATION)
    return [*fill(agent.resume if goes_on else agent.start, filling), *_given(session, agent, goes_on)]


def _given(session: Session, agent: Agent, goes_on: bool) -> list[str]:
    """A conversation that goes on has been asked its first question."""
    return agent.questions.left_out_of(session.command) if goes_on and agent.questions else session.command


def _is_asked_again(entry: Entry) -> bool:
    """Another conversation begins with its first question, which is lost to nobody."""
    return entry.agent is not None and _given(entry.session, entry.agent, True) != entry.session.command


def _filling(session: Session, conversation: str) -> Filling:
    shell = session.environment.get("SHELL") or os.environ.get("SHELL") or "/bin/sh"
    return Filling(conversation, session.id, session.name, session.directory, shell)


def _files_of(
    kept: Kept, conversation: str, session: Session, surroundings: Mapping[str, str] | None
) -> list[Path]:
    return list(_base_of(kept, session, surroundings).glob(kept.written_for(conversation)))


def _base_of(kept: Kept, session: Session, surroundings: Mapping[str, str] | None) -> Path:
    environment = session.environment if surroundings is None else surroundings
    home = Path(environment.get("HOME") or Path.home())
    return Path(session.directory, environment.get(kept.variable) or home / kept.directory)


def _has_message(path: Path, message: re.Pattern[bytes]) -> bool:
    """A file that cannot be read is the agent's to complain of."""
    try:
        with path.open("rb") as file:
            return any(message.search(line) for line in file)
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
    except (_GoneMeanwhile, OSError):
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
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It has ended, or is another user's.
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
        is_written = processes.open_flags(fd) & os.O_ACCMODE != os.O_RDONLY
        written = is_written and _is_with_a_person(fd)
        at = fd.stat().st_mtime_ns
        is_same = fd.readlink() == file
    except OSError:
        raise _GoneMeanwhile from None
    if not is_same:
        raise _GoneMeanwhile
    return (at, conversation) if written else None


def _is_with_a_person(fd: Path) -> bool:
    """As its beginning tells: codex has helpers, and each of them a conversation of its own."""
    with fd.open("rb") as file:
        beginning = file.readline(_LONGEST_BEGINNING)
    return bool(beginning) and not _A_HELPERS.search(beginning)
