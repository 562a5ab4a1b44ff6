"""Sessions created with resume=auto come back by themselves, once a boot, until that has failed too often."""

import asyncio
import logging
import time
from dataclasses import dataclass

from amuxd.errors import (
    AmuxError,
    Busy,
    Displaced,
    LaunchFailed,
    NotResumable,
    NotResumableYet,
    WorkspaceBusy,
)
from amuxd.records import ResumePolicy, is_of_boot
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
# Where a home is mounted at all, it is by then.
MOUNTED = 5 * 60.0
_GOES_ON = {State.CREATED, State.STARTING, State.RUNNING}

NOT_RESUMED = "not resumed by itself"
COMES_BACK = "comes back by itself"
FAILED_TOO_OFTEN = (
    f"{MOST_FAILURES} times in a row it failed, "
    f"or the machine went down within {LASTING // 60_000_000} minutes"
)


@dataclass(frozen=True)
class _Refusal:
    """Why one does not come back, as was told, and since when it does not."""

    why: str
    since: float


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
    # Of those too that come later.
    limit = asyncio.Semaphore(AT_ONCE)
    untold = [entry for entry in entries if entry.telling is not None and not entry.telling.done()]
    for entry in untold:
        runs.supervisor.spawn(_once_it_is_told(runs, entry, limit))
    at_once = [entry for entry in entries if entry not in waiting and entry not in untold]
    await _bring_these_back(runs, at_once, limit)
    if waiting:
        await runs.has_configuration.wait()
        await _bring_these_back(runs, [entry for entry in waiting if entry not in untold], limit)


async def _once_it_is_told(runs: Runs, entry: Entry, limit: asyncio.Semaphore) -> None:
    """What was found of it, on a disk that refuses, may be that it is suspended, or over."""
    await runs.aftermath.settled(entry)
    if entry.session.agent:
        await runs.has_configuration.wait()
    await _bring_these_back(runs, [entry], limit)


async def _bring_these_back(
    runs: Runs, entries: list[Entry], limit: asyncio.Semaphore, refusal: _Refusal | None = None
) -> None:
    # What there is no room for now comes when there is: who could begin at once does not wait for it.
    await asyncio.gather(*(_in_turn(runs, entry, limit, refusal) for entry in entries))
    for entry in entries:
        if _began_by_itself(entry) and not entry.state.auto_lasted:
            runs.supervisor.spawn(_see_it_last(runs.supervisor, entry))


async def _in_turn(runs: Runs, entry: Entry, limit: asyncio.Semaphore, before: _Refusal | None) -> None:
    async with limit, entry.operation:
        if runs.supervisor.registry.get(entry.id) is not entry:
            return
        try:
            await _bring_back(runs, entry, limit)
        except (AmuxError, StoreError) as error:
            refusal = _Refusal(str(error), before.since if before else time.monotonic())
            waits = is_candidate(entry, runs.supervisor.boot_id)
            if waits and not _may_pass(entry, error, refusal) and await _is_given_up(runs, entry, error):
                return
            if before is None or refusal.why != before.why:
                logger.error("%s does not come back by itself: %s", entry.session.name, error)
            if waits:
                runs.supervisor.spawn(_once_that_has_passed(runs, entry, limit, refusal))
            else:
                entry.stays_down = True


async def _once_that_has_passed(
    runs: Runs, entry: Entry, limit: asyncio.Semaphore, refusal: _Refusal
) -> None:
    """It stays what it is until then: what lacked room, or could not be seen, is no failure of its own."""
    await asyncio.sleep(RETRY_PAUSE)
    await _bring_these_back(runs, [entry], limit, refusal)


def _may_pass(entry: Entry, error: AmuxError | StoreError, refusal: _Refusal) -> bool:
    if _is_of_disk(error) or isinstance(error, Busy | NotResumableYet | WorkspaceBusy):
        return True
    # What is not mounted yet looks like what is lost, and a program there as one that nobody has.
    may_be_mounted = bool(entry.lost) or isinstance(error, Displaced | LaunchFailed)
    return may_be_mounted and time.monotonic() - refusal.since < MOUNTED


async def _once_it_is_there(runs: Runs, entry: Entry, limit: asyncio.Semaphore) -> None:
    boot, registry = runs.supervisor.boot_id, runs.supervisor.registry
    while not await runs.places.look(entry):
        await asyncio.sleep(RETRY_PAUSE)
        if registry.get(entry.id) is not entry or not is_candidate(entry, boot):
            return
    await _bring_these_back(runs, [entry], limit)


def _is_of_disk(error: BaseException) -> bool:
    return isinstance(error, StoreError) or isinstance(error.__cause__, StoreError)


async def _bring_back(runs: Runs, entry: Entry, limit: asyncio.Semaphore) -> None:
    boot = runs.supervisor.boot_id
    if not is_candidate(entry, boot):
        return
    if entry.unwritten:
        raise Busy(f"{entry.session.name}: {entry.why_unwritten}")
    failures = failures_in_a_row(entry)
    if failures >= MOST_FAILURES:
        await _give_up(runs, entry, FAILED_TOO_OFTEN)
        return
    if entry.session.agent and entry.why_not_resumable:
        await _give_up(runs, entry, entry.why_not_resumable)
        return
    if entry.why_not_by_itself:
        await _give_up(runs, entry, entry.why_not_by_itself)
        return
    if not await runs.places.look(entry):
        # It is of a file system, perhaps, that is mounted later.
        await _say_that_it_waits(runs, entry)
        runs.supervisor.spawn(_once_it_is_there(runs, entry, limit))
        return
    # A plain command has no conversation: to begin again is how it goes on.
    fact = RestartRequested(resume=bool(entry.session.agent), by_itself=True)
    run = entry.state.run + 1
    await runs.begin_again(entry, fact, "resume", AMUXD, auto_boot=boot, auto_run=run, auto_failures=failures)


def is_candidate(entry: Entry, boot: str) -> bool:
    return _is_to_come_back(entry) and not is_of_boot(entry.state.auto_boot, boot)


def is_tried_again(entry: Entry) -> bool:
    """On the next boot, whatever has become of it on this one."""
    return _is_to_come_back(entry) and failures_in_a_row(entry) < MOST_FAILURES


def _is_to_come_back(entry: Entry) -> bool:
    state = entry.state
    if entry.session.resume is not ResumePolicy.AUTO:
        return False
    if state.state is State.FAILED:
        # One that lasted has come back, and what became of it since is its own end.
        return _began_by_itself(entry) and not state.auto_lasted
    return state.state is State.SUSPENDED


def failures_in_a_row(entry: Entry) -> int:
    state = entry.state
    if not _began_by_itself(entry):
        return 0
    if state.auto_lasted or (state.state is State.SUSPENDED and not state.cut_short):
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


async def _say_that_it_waits(runs: Runs, entry: Entry) -> None:
    waits = f"{COMES_BACK} once {entry.session.directory} is there"
    if await _explain(runs, entry, waits):
        logger.warning("%s %s", entry.session.name, waits)


async def _is_given_up(runs: Runs, entry: Entry, error: AmuxError | StoreError) -> bool:
    """Only once that is written: what it was said to wait for is not waited for any more."""
    why = entry.lost if isinstance(error, NotResumable) else ""
    try:
        await _give_up(runs, entry, why or str(error))
    except StoreError as refused:
        logger.error("%s cannot be written: %s", entry.session.name, refused)
        return False
    return True


async def _give_up(runs: Runs, entry: Entry, why: str) -> None:
    if await _explain(runs, entry, f"{NOT_RESUMED}: {why}"):
        logger.warning("%s is %s: %s", entry.session.name, NOT_RESUMED, why)
    entry.stays_down = True


async def _explain(runs: Runs, entry: Entry, outlook: str) -> bool:
    """In place of what was said before of its coming back; False: that was the same."""
    state, reason = entry.state.state, entry.state.reason
    for earlier in (NOT_RESUMED, COMES_BACK):
        reason, _, _ = reason.partition(f"; {earlier}")
    explained = f"{reason}; {outlook}"
    if explained == entry.state.reason:
        return False
    await runs.supervisor.explain(entry, state, explained)
    return True
