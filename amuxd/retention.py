"""Which sessions have been kept long enough: a decision, and nothing is touched."""

from dataclasses import dataclass

from amuxd.states import State

_HOUR = 3600.0
_DAY = 24 * _HOUR


@dataclass(frozen=True)
class Retention:
    """For how many seconds after it came to rest a session is kept; None: until it is removed by hand."""

    suspended: float | None = 7 * _DAY
    suspended_resumable: float | None = 30 * _DAY
    failed: float | None = _DAY
    orphaned: float | None = _DAY
    completed: float | None = 7 * _DAY
    stopped: float | None = 7 * _DAY

    def of(self, state: State, resumable: bool) -> float | None:
        match state:
            case State.SUSPENDED:
                return self.suspended_resumable if resumable else self.suspended
            case State.FAILED:
                return self.failed
            case State.ORPHANED:
                return self.orphaned
            case State.COMPLETED:
                return self.completed
            case State.STOPPED:
                return self.stopped
        # What is live, was never started, or was put away is the user's own to remove.
        return None


def is_over(
    retention: Retention, state: State, resumable: bool, since: int, now: int, seen_from: int = 0
) -> bool:
    """Moments are microseconds; a clock that was set back makes nothing old.

    However long nobody could see it, it is there for a day from when somebody can.
    """
    kept = retention.of(state, resumable)
    if kept is None:
        return False
    return now - since >= kept * 1e6 and now - seen_from >= min(kept, _DAY) * 1e6
