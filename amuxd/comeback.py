"""Sessions created with resume=auto come back by themselves, once a boot, until that has failed too often."""

import asyncio
import logging

from amuxd.errors import AmuxError
from amuxd.records import ResumePolicy
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import RestartRequested, State
from amuxd.store import StoreError
from amuxd.supervisor import AMUXD, RETRY_PAUSE, Supervisor, now

logger = logging.getLogger(__name__)

MOST_FAILURES = 3
# A run that was alive for as long did not take the machine down with it.
LASTING = 5 * 60 * 1_000_000
AT_ONCE = 4
_GOES_ON = {State.CREATED, State.STARTING, State.RUNNING}

NOT_RESUMED = "not resumed by itself"
GAVE_UP = (
    f"{NOT_RESUMED}: {MOST_FAILURES} times in a row it failed, "
    f"or the machine went down within {LASTING // 60_000_000} minutes"
)


async def bring_back(runs: Runs) -> None:
    """An agent whose profile cannot be read would begin as its user may not want it: it waits until then."""
    entries, boot = list(runs.supervisor.registry), runs.supervisor.boot_id
    waiting = [
        entry
        for entry in entries
        if runs.settings.error and entry.session.agent and is_candidate(entry, boot)
    ]
    for entry in waiting:
        logger.warning("%s is %s: %s", entry.session.name, NOT_RESUMED, runs.settings.error)
    await _bring_these_back(runs, [entry for entry in entries if entry not in waiting])
    if waiting:
        await runs.has_configuration.wait()
        await _bring_these_back(runs, waiting)


async def _bring_these_back(runs: Runs, entries: list[Entry]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(entry: Entry) -> None:
        async with limit, entry.operation:
            if runs.supervisor.registry.get(entry.id) is not entry:
                return
            try:
                await _bring_back(runs, entry)
            except (AmuxError, StoreError) as error:
                logger.error("%s does not come back by itself: %s", entry.session.name, error)

    await asyncio.gather(*(one(entry) for entry in entries))
    for entry in entries:
        if _began_by_itself(entry) and not entry.state.auto_lasted:
            runs.supervisor.spawn(_see_it_last(runs.supervisor, entry))


async def _bring_back(runs: Runs, entry: Entry) -> None:
    boot = runs.supervisor.boot_id
    if not is_candidate(entry, boot):
        return
    failures = failures_in_a_row(entry)
    if failures >= MOST_FAILURES:
        await _give_up(runs, entry)
        return
    if entry.session.agent and entry.why_not_resumable:
        logger.warning("%s is %s: %s", entry.session.name, NOT_RESUMED, entry.why_not_resumable)
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


def failures_in_a_row(entry: Entry) -> int:
    state = entry.state
    if not _began_by_itself(entry):
        return 0
    if state.state is State.SUSPENDED and (state.auto_lasted or not state.cut_short):
        return 0
    return state.auto_failures + 1


def _began_by_itself(entry: Entry) -> bool:
    return entry.state.auto_run == entry.state.run


async def _see_it_last(supervisor: Supervisor, entry: Entry) -> None:
    """Written down while it runs: after a power cut nobody could tell for how long it did."""
    run = entry.state.run

    def goes_on() -> bool:
        return entry.state.run == run and entry.state.state in _GOES_ON

    while goes_on():
        begun = entry.state.started_at
        if (left := begun + LASTING - now() if begun else LASTING) > 0:
            await asyncio.sleep(left / 1e6)
            continue
        try:
            await supervisor.amend_if(entry, goes_on, auto_lasted=True)
            return
        except StoreError as error:
            logger.error("%s cannot be written: %s", entry.session.name, error)
            await asyncio.sleep(RETRY_PAUSE)


async def _give_up(runs: Runs, entry: Entry) -> None:
    reason = entry.state.reason
    if NOT_RESUMED not in reason:
        await runs.supervisor.amend(entry, "Reason", reason=f"{reason}; {GAVE_UP}")
        logger.warning("%s is %s", entry.session.name, GAVE_UP)
