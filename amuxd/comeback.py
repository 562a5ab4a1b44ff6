"""Sessions created with resume=auto come back by themselves, once a boot, until that has failed too often."""

import asyncio
import logging

from amuxd.errors import AmuxError
from amuxd.records import ResumePolicy
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import RestartRequested, State
from amuxd.store import StoreError
from amuxd.supervisor import AMUXD

logger = logging.getLogger(__name__)

MOST_FAILURES = 3
# A run that was seen alive for as long did not take the machine down with it.
LASTING = 5 * 60 * 1_000_000
AT_ONCE = 4

GAVE_UP = f"not resumed by itself: that failed {MOST_FAILURES} times in a row"


async def bring_back(runs: Runs) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(entry: Entry) -> None:
        async with limit, entry.operation:
            if runs.supervisor.registry.get(entry.id) is not entry:
                return
            try:
                await _bring_back(runs, entry)
            except (AmuxError, StoreError) as error:
                logger.error("%s does not come back by itself: %s", entry.session.name, error)

    await asyncio.gather(*(one(entry) for entry in runs.supervisor.registry))


async def _bring_back(runs: Runs, entry: Entry) -> None:
    boot = runs.supervisor.boot_id
    if not is_candidate(entry, boot):
        return
    failures = failures_in_a_row(entry, boot)
    if failures >= MOST_FAILURES:
        await _give_up(runs, entry)
        return
    if entry.session.agent and entry.why_not_resumable:
        logger.warning("%s is not resumed by itself: %s", entry.session.name, entry.why_not_resumable)
        return
    # A plain command has no conversation: to begin again is how it goes on.
    fact = RestartRequested(resume=bool(entry.session.agent), by_itself=True)
    run = entry.state.run + 1
    await runs.begin_again(entry, fact, "resume", AMUXD, auto_boot=boot, auto_run=run, auto_failures=failures)


def is_candidate(entry: Entry, boot: str) -> bool:
    state = entry.state
    if entry.session.resume is not ResumePolicy.AUTO or state.auto_boot == boot:
        return False
    return state.state is State.SUSPENDED or (state.state is State.FAILED and _began_by_itself(entry))


def failures_in_a_row(entry: Entry, boot: str) -> int:
    state = entry.state
    if not _began_by_itself(entry):
        return 0
    if state.state is State.SUSPENDED and _seen_alive_for(entry, boot) >= LASTING:
        return 0
    return state.auto_failures + 1


def _began_by_itself(entry: Entry) -> bool:
    return entry.state.auto_run == entry.state.run


def _seen_alive_for(entry: Entry, boot: str) -> int:
    state = entry.state
    # What was written on an earlier boot was an orderly suspension, else it is but the news of a power cut.
    last = state.state_changed_at if state.boot_id != boot else entry.activity_at
    return max(last, entry.activity_at) - state.started_at


async def _give_up(runs: Runs, entry: Entry) -> None:
    reason = entry.state.reason
    if GAVE_UP not in reason:
        await runs.supervisor.amend(entry, "Reason", reason=f"{reason}; {GAVE_UP}")
        logger.warning("%s is %s", entry.session.name, GAVE_UP)
