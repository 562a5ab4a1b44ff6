"""Removes the sessions that have been kept long enough."""

import asyncio
import logging

from amuxd.aftermath import SETTLED
from amuxd.comeback import is_candidate, is_tried_again
from amuxd.errors import AmuxError, ConfigurationError
from amuxd.processes import uptime
from amuxd.records import is_of_boot
from amuxd.registry import Entry
from amuxd.retention import is_over
from amuxd.runs import Runs
from amuxd.states import Liveness, State
from amuxd.supervisor import now

logger = logging.getLogger(__name__)


async def clean(runs: Runs, dry_run: bool) -> list[str]:
    """The ids of those that are gone, or would be."""
    if runs.settings.error:
        # It may say that just these are to be kept.
        raise ConfigurationError(
            f"nothing is removed while the configuration is wrong: {runs.settings.error}"
        )
    registry = runs.supervisor.registry
    entries = list(registry)
    # At once: of each that has not settled yet it takes a while to know.
    answers = await asyncio.gather(*(_is_over(runs, entry) for entry in entries))
    over = [entry for entry, is_so in zip(entries, answers, strict=True) if is_so]
    if dry_run:
        return [entry.id for entry in over]
    removed = []
    for entry in over:
        async with entry.operation:
            # Somebody may have begun it again, or removed it, while the ones before it went.
            if registry.get(entry.id) is not entry or not await _is_over(runs, entry):
                continue
            try:
                await runs.discard(entry)
            except AmuxError as error:
                logger.error("%s stays: %s", entry.session.name, error)
            else:
                removed.append(entry.id)
    return removed


async def _is_over(runs: Runs, entry: Entry) -> bool:
    """Not what somebody looks at, what lives, or may, nor what is about to come back by itself."""
    if is_candidate(entry, runs.supervisor.boot_id) and not entry.stays_down:
        return False
    retention, resumable = runs.settings.retention, not entry.why_not_resumable
    # What happened while the machine was off, say, nobody has seen before amuxd did.
    since = max(entry.state.state_changed_at, entry.state.known_at)
    seen_from = runs.boots.seen_from(since)
    if entry.unwritten or entry.attached:
        return False
    at = now()
    if is_of_boot(entry.state.boot_id, runs.supervisor.boot_id):
        since = max(since, at - _rested_at_most(entry, at))
    if not all(is_over(retention, state, resumable, since, at, seen_from) for state in _rests_as(entry)):
        return False
    return not await _may_live(runs, entry)


def _rested_at_most(entry: Entry, for_ever: int) -> int:
    """On this boot: a clock that somebody sets forward makes nothing old."""
    rested = uptime() - entry.state.uptime_at_change
    return rested if entry.state.uptime_at_change and rested >= 0 else for_ever


def _rests_as(entry: Entry) -> list[State]:
    """It is kept as long as each of them would be."""
    # The next boot may be far off, and what it brings back is no more over than what is suspended.
    if is_tried_again(entry):
        return [State.SUSPENDED]
    state = entry.state
    has_more_to_say = state.said is not False and not entry.why_not_resumable and not entry.lost
    if state.state is State.FAILED and state.resuming and has_more_to_say:
        # What it was to go on with is still there.
        return [State.FAILED, State.SUSPENDED]
    return [state.state]


async def _may_live(runs: Runs, entry: Entry) -> bool:
    """A shell that stayed open, what could not be stopped, or what nobody could look at, or write down."""
    # Of one that has just ended, or was just found, that is only clear then.
    await runs.aftermath.settled(entry, SETTLED)
    if entry.unwritten or entry.host_alive in {Liveness.ALIVE, Liveness.UNKNOWN}:
        return True
    if not runs.host.has_terminal(entry.id):
        return False
    try:
        return bool(await runs.host.members(entry.id))
    except Exception as error:
        logger.warning("%s stays, and cannot be looked at now: %s", entry.session.name, error)
        return True
