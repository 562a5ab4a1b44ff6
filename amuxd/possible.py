"""What a person can have done with a session now: asked by who offers it, and by who refuses it."""

from amuxd import states
from amuxd.errors import AmuxError, Busy, InvalidTransition, NotResumable, NotResumableYet
from amuxd.registry import Entry
from amuxd.states import Liveness, State

_OFFERED = ("start", "stop", "restart", "resume", "archive", "rm")
# What would end whatever lives on when a run is over, without a word of it.
_ENDING = ("archive", "rm")
_TARGETS = {
    "start": State.STARTING,
    "stop": State.STOPPING,
    "restart": State.CREATED,
    "resume": State.CREATED,
    "archive": State.ARCHIVED,
}


def possible(entry: Entry) -> list[str]:
    """By the verbs of the command line."""
    granted = states.possible(entry.situation)
    free = [verb for verb in _OFFERED if _is_granted(entry, verb, granted) and not _obstacle(entry, verb)]
    return [verb for verb in free if not _is_in_vain(entry, verb)]


def _is_in_vain(entry: Entry, verb: str) -> bool:
    """As things are now: tried it is all the same, when somebody asks for it."""
    if entry.unwritten:
        # What has happened to it is told first, once it can be written down.
        return True
    if verb == "start":
        # It begins by itself as soon as it can.
        return entry.waits_for_slot
    return verb == "resume" and bool(entry.lost)


def refusal(entry: Entry, verb: str) -> AmuxError | None:
    """None: it would be done, as far as that is known before it is tried."""
    if not _is_granted(entry, verb, states.possible(entry.situation)):
        return impossible(entry, verb)
    error = _obstacle(entry, verb)
    return not_resumable(entry, str(error)) if isinstance(error, NotResumable) else error


def not_resumable(entry: Entry, why: str) -> NotResumable:
    kind = NotResumable if why in (entry.why_not_resumable, entry.lost) else NotResumableYet
    return kind(f"{entry.session.name} cannot be resumed: {why}{_hint(entry)}")


def _is_granted(entry: Entry, verb: str, granted: list[str]) -> bool:
    if verb == "resume" and entry.parked:
        return True
    if verb == "stop" and (entry.may_live or entry.shell_open):
        # There is something to stop, and what is in the way of that is told apart.
        return True
    # Why its conversation cannot go on is told apart.
    return ("restart" if verb == "resume" else verb) in granted


def _obstacle(entry: Entry, verb: str) -> AmuxError | None:
    name = entry.session.name
    has_profile = entry.agent is not None or not entry.session.agent
    may_be_back = verb in {"start", "resume"} and entry.configuration_error
    if not has_profile and (verb == "restart" or may_be_back):
        return InvalidTransition(f"{name}: {verb} is not possible: {entry.why_no_agent}")
    if verb == "resume" and entry.why_not_resumable:
        return NotResumable(entry.why_not_resumable)
    if entry.shell_open and verb in _ENDING:
        besides = ", and a forced removal as well" if verb == "rm" else ""
        return InvalidTransition(
            f"a shell is open in {name}, {verb} is not possible; amux stop {entry.id} closes it{besides}"
        )
    if entry.may_live:
        why = f" ({entry.why_in_vain})" if entry.why_in_vain else ""
        how = "is alive" if entry.session_alive is Liveness.ALIVE else f"could not be looked at{why}"
        return Busy(f"{name} {how}, and is looked at again and again: {verb} is not possible until then")
    return None


def impossible(entry: Entry, verb: str) -> AmuxError:
    state = "parked" if entry.parked else entry.state.state
    target = _TARGETS.get(verb)
    way = f" (from {entry.state.state} to {target})" if target else ""
    if verb in {"restart", "resume"} and entry.lacks_place:
        way = f": its directory {entry.session.directory} is not there"
    return InvalidTransition(f"{entry.session.name} is {state}, {verb} is not possible{way}{_hint(entry)}")


def _hint(entry: Entry) -> str:
    ways = possible(entry)
    return f"; possible: {', '.join(ways)}" if ways else ""
