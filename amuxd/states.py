"""The state machine: facts in, at most one transition out, and no I/O."""

from dataclasses import dataclass, replace
from enum import StrEnum

from amuxd.stored import Stored


class State(StrEnum):
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STALE = "stale"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    ORPHANED = "orphaned"
    ARCHIVED = "archived"


_S = State

WITHIN_A_RUN: dict[State, frozenset[State]] = {
    _S.CREATED: frozenset({_S.STARTING, _S.FAILED, _S.ORPHANED}),
    _S.STARTING: frozenset({_S.RUNNING, _S.FAILED, _S.ORPHANED}),
    _S.RUNNING: frozenset({_S.STOPPING, _S.COMPLETED, _S.FAILED, _S.ORPHANED, _S.STALE, _S.SUSPENDED}),
    _S.STALE: frozenset({_S.RUNNING, _S.STOPPING, _S.STOPPED, _S.FAILED, _S.ORPHANED}),
    _S.SUSPENDED: frozenset({_S.RUNNING, _S.COMPLETED, _S.FAILED, _S.STOPPED, _S.ORPHANED}),
    _S.STOPPING: frozenset({_S.STOPPED, _S.FAILED}),
    _S.STOPPED: frozenset(),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.ORPHANED: frozenset(),
    _S.ARCHIVED: frozenset(),
}

LIVE = frozenset({_S.STARTING, _S.RUNNING, _S.STALE, _S.STOPPING})
ENDED = frozenset({_S.STOPPED, _S.COMPLETED, _S.FAILED, _S.ORPHANED})
BADGE = frozenset({_S.STARTING, _S.RUNNING, _S.STALE, _S.SUSPENDED})
RERUNNABLE = frozenset({_S.STALE, _S.SUSPENDED}) | ENDED
ARCHIVABLE = frozenset({_S.CREATED, _S.SUSPENDED}) | ENDED


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    NONE = "none"


@dataclass(frozen=True)
class End(Stored):
    """How a command ended. Where neither code nor signal is known, the end is not known."""

    code: int | None = None
    signal: str | None = None
    core_dumped: bool | None = None
    out_of_memory: bool = False
    memory_limit: str = ""
    terminal_died: str = ""
    unit_stopped: bool = False
    not_started: str = ""

    @property
    def known(self) -> bool:
        return any(x is not None for x in (self.code, self.signal)) or bool(
            self.out_of_memory or self.terminal_died or self.unit_stopped or self.not_started
        )

    @property
    def success(self) -> bool:
        besides = self.out_of_memory or self.terminal_died or self.unit_stopped or self.not_started
        return self.code == 0 and not besides

    @property
    def in_short(self) -> str:
        """A word or two, as describe() tells them apart; empty where nothing is known."""
        if self.not_started:
            return "could not start"
        if self.out_of_memory:
            return "out of memory"
        if self.unit_stopped:
            return "unit stopped"
        if self.terminal_died:
            return "terminal died"
        if self.signal is not None:
            return self.signal
        return "" if self.code is None else f"exit {self.code}"

    def describe(self) -> str:
        if self.not_started:
            return f"could not start: {self.not_started}"
        if self.out_of_memory:
            return f"out of memory (limit {self.memory_limit})" if self.memory_limit else "out of memory"
        if self.unit_stopped:
            # By whose hand is not known: a person's systemctl, or a logout. Not by amux, or it were stopped.
            return "its unit was stopped through systemd"
        if self.terminal_died:
            return f"terminal server died ({self.terminal_died})"
        if self.signal is not None:
            return f"killed by {self.signal}" + (" (core dumped)" if self.core_dumped else "")
        if self.code is not None:
            return f"exited with code {self.code}"
        return "ended, and how is not known"


@dataclass(frozen=True)
class Situation:
    """All of a session that decisions depend on."""

    state: State
    run: int
    stays_after_success: bool = False
    # It was asked to end for being idle, and takes its time for it.
    is_leaving: bool = False
    workspace_exists: bool = True
    resumable: bool = False


@dataclass(frozen=True)
class Transition:
    source: State
    target: State
    reason: str
    run: int


# Facts. What a person asked for:


@dataclass(frozen=True)
class StartRequested:
    pass


@dataclass(frozen=True)
class StopRequested:
    pass


@dataclass(frozen=True)
class RestartRequested:
    resume: bool = False
    by_itself: bool = False


@dataclass(frozen=True)
class ArchiveRequested:
    pass


# What was seen:


@dataclass(frozen=True)
class CouldNotStart:
    why: str


@dataclass(frozen=True)
class CommandStarted:
    pass


@dataclass(frozen=True)
class CommandEnded:
    end: End


@dataclass(frozen=True)
class FoundParked:
    """Its process was ended on purpose, so that nothing that happened since can have hurt it."""


@dataclass(frozen=True)
class HomeGone:
    """Nothing of the run is left."""


@dataclass(frozen=True)
class CouldNotStop:
    why: str


@dataclass(frozen=True)
class Probed:
    """A look at what is alive. `home` is the container where there is one, and else the terminal server."""

    session: Liveness
    home: Liveness = Liveness.NONE


@dataclass(frozen=True)
class DaemonStopping:
    why: str = "amuxd was stopped"


@dataclass(frozen=True)
class MachineWentDown:
    pass


@dataclass(frozen=True)
class WorkspaceDeleted:
    directory: str


@dataclass(frozen=True)
class WorkspaceRemoved:
    """Its directory stands, perhaps; whoever waited for a slot in it waits for nothing."""


Fact = (
    StartRequested
    | StopRequested
    | RestartRequested
    | ArchiveRequested
    | CouldNotStart
    | CommandStarted
    | CommandEnded
    | FoundParked
    | HomeGone
    | CouldNotStop
    | Probed
    | DaemonStopping
    | MachineWentDown
    | WorkspaceDeleted
    | WorkspaceRemoved
)


def decide(situation: Situation, fact: Fact) -> Transition | None:
    """The one transition that the fact brings about, or None."""
    outcome = _outcome(situation, fact)
    if outcome is None:
        return None
    target, reason = outcome
    run = situation.run + 1 if target is State.CREATED else situation.run
    return Transition(situation.state, target, reason, run)


def after(situation: Situation, transition: Transition) -> Situation:
    return replace(situation, state=transition.target, run=transition.run)


def _outcome(situation: Situation, fact: Fact) -> tuple[State, str] | None:
    state = situation.state
    match fact:
        case StartRequested():
            return (_S.STARTING, "started") if state is _S.CREATED else None
        case StopRequested():
            return (_S.STOPPING, "stop was asked for") if state in {_S.RUNNING, _S.STALE} else None
        case RestartRequested(resume=resume, by_itself=by_itself):
            if not _can_run_again(situation):
                return None
            verb = "resume" if resume else "restart"
            return _S.CREATED, f"{verb}, as resume=auto wants it" if by_itself else f"{verb} was asked for"
        case ArchiveRequested():
            return (_S.ARCHIVED, "put away") if state in ARCHIVABLE else None
        case CouldNotStart(why=why):
            return (_S.FAILED, f"could not start: {why}") if state in {_S.CREATED, _S.STARTING} else None
        case CommandStarted():
            return (_S.RUNNING, "the command runs") if state is _S.STARTING else None
        case CommandEnded(end=end):
            return _ended(situation, end)
        case FoundParked():
            return (_S.RUNNING, "found parked") if state is _S.SUSPENDED else None
        case HomeGone():
            return _home_gone(state)
        case CouldNotStop(why=why):
            return (_S.FAILED, f"could not be stopped: {why}") if state is _S.STOPPING else None
        case Probed(session=session, home=home):
            return _probed(state, session, home)
        case DaemonStopping(why=why):
            return (_S.SUSPENDED, why) if state is _S.RUNNING else None
        case MachineWentDown():
            return _machine_went_down(state)
        case WorkspaceDeleted(directory=directory):
            if _S.ORPHANED not in WITHIN_A_RUN[state]:
                return None
            return _S.ORPHANED, f"its directory {directory} is gone"
        case WorkspaceRemoved():
            why = "its workspace was removed while it waited for a slot in it"
            return (_S.ORPHANED, why) if state is _S.CREATED else None


def _can_run_again(situation: Situation) -> bool:
    state = situation.state
    return state in RERUNNABLE and situation.workspace_exists


def _ended(situation: Situation, end: End) -> tuple[State, str] | None:
    match situation.state:
        case State.STARTING:
            return _S.RUNNING, "the command ran before amuxd looked again"
        case State.STOPPING:
            return _S.STOPPED, f"stopped; {end.describe()}" if end.known else "stopped"
        case State.RUNNING if situation.is_leaving:
            return None
        case State.RUNNING | State.SUSPENDED as state:
            if end.success:
                if situation.stays_after_success:
                    return (_S.RUNNING, "found parked") if state is _S.SUSPENDED else None
                return _S.COMPLETED, "exited with code 0"
            return _S.FAILED, end.describe()
        case State.STALE:
            return _S.FAILED, end.describe()
    return None


def _home_gone(state: State) -> tuple[State, str] | None:
    match state:
        case State.STOPPING:
            return _S.STOPPED, "stopped"
        case State.STARTING:
            return _S.FAILED, "could not start: it was gone when amuxd looked again"
        case State.RUNNING:
            return _S.FAILED, "gone without a trace, its end is not known"
        case State.STALE:
            return _S.STOPPED, "the container went away"
    return None


def _probed(state: State, session: Liveness, home: Liveness) -> tuple[State, str] | None:
    if Liveness.UNKNOWN in {session, home}:
        return None
    match state, session, home:
        case State.SUSPENDED, Liveness.ALIVE, _:
            return _S.RUNNING, "found alive"
        case State.STARTING, Liveness.ALIVE, _:
            return _S.RUNNING, "the command runs"
        case State.STALE, Liveness.ALIVE, _:
            return _S.RUNNING, "the session in it is back"
        case State.RUNNING, Liveness.DEAD, Liveness.ALIVE:
            return _S.STALE, "the container is up, the session in it is gone"
    return None


def _machine_went_down(state: State) -> tuple[State, str] | None:
    match state:
        case State.RUNNING:
            return _S.SUSPENDED, "the machine went down"
        case State.STARTING:
            return _S.FAILED, "could not start: the machine went down"
        case State.STOPPING:
            return _S.STOPPED, "stopped; the machine went down"
        case State.STALE:
            return _S.STOPPED, "the container went away with the machine"
    return None


def possible(situation: Situation) -> list[str]:
    """What a person can do with a session in this state, by the verbs of the command line."""
    state = situation.state
    verbs = [
        ("start", state is _S.CREATED),
        ("stop", state in {_S.RUNNING, _S.STALE}),
        ("restart", _can_run_again(situation)),
        ("resume", situation.resumable and _can_run_again(situation)),
        ("archive", state in ARCHIVABLE),
        ("rm", state not in LIVE),
    ]
    return [verb for verb, holds in verbs if holds]
