"""Who holds a workspace, who waits for it and who is next: decided without I/O."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from amuxd.records import Place, Process, RunState, Workspace, is_of_boot
from amuxd.states import LIVE, State

UNLIMITED = 0
WAITING = "waiting for a slot in"


class NotKnown(Exception):
    """Nobody can read where this session stands."""

    def __init__(self, why: str, may_live: bool = True) -> None:
        super().__init__(why)
        self.may_live = may_live


@dataclass(frozen=True)
class Facts:
    """What is known of sessions and processes at the moment of a decision; state_of may raise NotKnown."""

    state_of: Callable[[str], RunState | None]
    exists: Callable[[Process], bool]
    boot_id: str
    is_taking: Callable[[Place], bool]


@dataclass(frozen=True)
class Taken:
    workspace: Workspace


@dataclass(frozen=True)
class Queued:
    workspace: Workspace
    position: int


@dataclass(frozen=True)
class Busy:
    holders: list[Place]
    ahead: list[Place]


Outcome = Taken | Queued | Busy


def holds(place: Place, facts: Facts) -> bool:
    """A holder whose session is not live is no holder, so that no crash can leave a slot taken."""
    try:
        state = facts.state_of(place.session_id)
    except NotKnown as unknown:
        # It may well run: to give its slot away would be a guess.
        return unknown.may_live
    if state is None or state.run > place.run:
        return False
    if state.run < place.run or state.state is State.CREATED:
        # It is about to be started, by a process that may have gone away since.
        return facts.is_taking(place)
    if state.parked and state.state in {State.RUNNING, State.SUSPENDED}:
        # Its process was ended to free memory; it comes back in the same run, also on another boot.
        return True
    if not is_of_boot(state.boot_id, facts.boot_id):
        return False
    if state.state is State.SUSPENDED:
        # Nobody looks after it, but it works on: another one beside it would be one too many.
        return any(process is not None and facts.exists(process) for process in (state.command, state.server))
    return state.state in LIVE


def waits(place: Place, facts: Facts) -> bool:
    try:
        state = facts.state_of(place.session_id)
    except NotKnown:
        # Once it can be read it is its turn still.
        return True
    if state is not None and state.run < place.run:
        # The run that is to wait is about to be created.
        return facts.is_taking(place)
    return state is not None and state.state is State.CREATED and state.run == place.run


def has_begun(place: Place, facts: Facts) -> bool:
    """Though it is in the queue: its start was written when the amuxd that ended had given it up."""
    try:
        state = facts.state_of(place.session_id)
    except NotKnown:
        return False
    is_begun = state is not None and state.run == place.run and state.state is not State.CREATED
    return is_begun and holds(place, facts)


def tidied(workspace: Workspace, facts: Facts) -> Workspace:
    holders = [place for place in workspace.holders if holds(place, facts)]
    holders += [place for place in workspace.queue if has_begun(place, facts)]
    held = {(place.session_id, place.run) for place in holders}
    queue = [p for p in queued(workspace) if waits(p, facts) and (p.session_id, p.run) not in held]
    if holders == workspace.holders and queue == workspace.queue:
        return workspace
    return replace(workspace, holders=holders, queue=queue)


def queued(workspace: Workspace) -> list[Place]:
    """Whoever waited, and was not begun by the one who gave it the slot, is the next still."""
    return [*(place for place in workspace.holders if place.waited), *workspace.queue]


def free(workspace: Workspace) -> int | None:
    """None: as many as anybody wants."""
    return None if workspace.slots == UNLIMITED else max(0, workspace.slots - len(workspace.holders))


def _in_turn(queue: list[Place], facts: Facts) -> list[Place]:
    """Without those that nobody can begin: they hold up none of the others."""
    return [place for place in queue if _can_be_read(place, facts)]


def _can_be_read(place: Place, facts: Facts) -> bool:
    try:
        facts.state_of(place.session_id)
    except NotKnown:
        return False
    return True


def position(queue: list[Place], session_id: str) -> int:
    """From 1; 0 for a session that does not wait."""
    waiting = [place.session_id for place in queue]
    return waiting.index(session_id) + 1 if session_id in waiting else 0


def take(workspace: Workspace, place: Place, may_wait: bool, facts: Facts) -> Outcome:
    """A slot for the session, or a place in the queue: nobody overtakes those who wait already."""
    present = tidied(workspace, facts)
    others = replace(
        present, holders=[held for held in present.holders if held.session_id != place.session_id]
    )
    waiting = _in_turn(others.queue, facts)
    at = position(waiting, place.session_id)
    ahead = waiting[: at - 1] if at else waiting
    left = free(others)
    if left is None or len(ahead) < left:
        queue = [other for other in others.queue if other.session_id != place.session_id]
        taken = replace(place, waited=at > 0)
        return Taken(replace(others, holders=[*others.holders, taken], queue=queue))
    if at:
        return Queued(present, at)
    if may_wait:
        return Queued(replace(present, queue=[*present.queue, place]), len(waiting) + 1)
    return Busy(others.holders, ahead)


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
