"""When a run ended that nobody watched: to the moment where something tells it, and else between two."""

from pathlib import Path
from typing import NamedTuple

from amuxd.hosts import EXIT_STATUS
from amuxd.logs import last_changed
from amuxd.records import RunState
from amuxd.states import End

NOT_STARTED = "not_started"


class Moment(NamedTuple):
    at: int
    # 0: it was just then. Otherwise it was after this, and at the latest then.
    after: int = 0


def of_end(state: RunState, run_directory: Path, end: End, looked: int) -> Moment:
    """The kernel keeps how a command ended, and not when."""
    written = last_changed(run_directory / (NOT_STARTED if end.not_started else EXIT_STATUS))
    # Where the clock was set, or the file touched, it tells nothing.
    if written and state.started_at <= written <= looked:
        return Moment(written)
    return Moment(looked, known_alive(state, looked))


def known_alive(state: RunState, looked: int) -> int:
    """The last moment at which it is certain not to have ended yet; none to come, where a clock was set."""
    known = [at for at in (state.started_at, state.alive_at) if at] or [state.state_changed_at]
    return max((at for at in known if at <= looked), default=looked)
