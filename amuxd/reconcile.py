"""Brings what the disk says together with what is alive: at the start, and now and then as a net."""

import asyncio
import contextlib
import logging
import select
from functools import partial
from typing import Any, TypeGuard

from amuxd import attention, moments, states
from amuxd.aftermath import Work
from amuxd.config import Settings
from amuxd.errors import Internal
from amuxd.hosts import Alive, Ended, Gone, Unknown
from amuxd.logs import give_back_reserved, last_written
from amuxd.records import LastWord, ends_later, is_of_boot
from amuxd.registry import Entry, UnreadableSession
from amuxd.runs import Runs
from amuxd.states import ENDED, LIVE, End, Liveness, State
from amuxd.store import StoreError, Unreadable
from amuxd.supervisor import AMUXD, KERNEL, RETRY_PAUSE, Supervisor, now
from amuxd.workspaces.orphans import end_orphan

logger = logging.getLogger(__name__)

SWEEP = 60.0
AT_ONCE = 16


async def load(supervisor: Supervisor, settings: Settings) -> None:
    for known in await supervisor.on_disk(supervisor.store.load_all):
        if isinstance(known, Unreadable):
            logger.error(
                "session %s is left as it is: %s", known.id, known.why, extra={"AMUX_SESSION": known.id}
            )
            supervisor.registry.not_readable[known.id] = UnreadableSession(
                known.id, known.name, known.why, known.session, known.run
            )
            continue
        agent = settings.agents.get(known.session.agent)
        entry = Entry(known.session, known.state, known.certificate, agent)
        entry.configuration_error = settings.error
        entry.activity_at = known.state.last_activity_at
        if known.state.state in LIVE | {State.SUSPENDED}:
            # It may have printed while nobody watched.
            log = supervisor.store.log(entry.id, known.state.run)
            entry.activity_at = max(entry.activity_at, last_written(log))
        if known.certificate is not None and not known.certificate.complete:
            # An amuxd before this one had begun to end it.
            entry.ends_later = ends_later(known.state)
        entry.activity_hash = known.state.last_activity_hash
        entry.checked_at = known.state.last_checked_at
        supervisor.registry.add(entry)


async def reconcile(runs: Runs) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(entry: Entry) -> None:
        async with limit:
            await _try_to_reconcile(runs, entry)

    await runs.parting.read()
    await asyncio.gather(*(one(entry) for entry in runs.supervisor.registry))
    await runs.parting.forget()
    for entry in runs.supervisor.registry:
        runs.homes.look_again(entry)


async def _try_to_reconcile(runs: Runs, entry: Entry) -> None:
    """One session that cannot be looked at, or written down, must not keep amuxd from the others."""
    before = entry.looked_in_vain
    _saw(entry)
    try:
        await _reconcile(runs, entry)
        if entry.state.attention and entry.home is None and not (entry.looked_in_vain or entry.unwritten):
            await runs.supervisor.attend(entry, attention.Died())
    except StoreError as error:
        logger.error("%s cannot be written: %s", entry.session.name, error, extra={"AMUX_SESSION": entry.id})
        entry.miss(f"it cannot be written: {error}")
    except Exception as error:
        logger.exception("%s could not be looked at", entry.session.name)
        entry.miss(error)
    if entry.looked_in_vain != before:
        runs.supervisor.changed(entry, "SessionAlive", "HostAlive", "Resumable")


async def _reconcile(runs: Runs, entry: Entry) -> None:
    state = entry.state.state
    if state in ENDED or state is State.ARCHIVED:
        incomplete = entry.certificate is not None and not entry.certificate.complete
        if incomplete and not is_of_boot(entry.state.boot_id, runs.supervisor.boot_id):
            # What is left of it is looked for by the numbers of its processes, which are others' by now.
            await runs.supervisor.amend(entry, command=None, server=None)
        if incomplete and state is State.ORPHANED:
            runs.aftermath.follow(entry, partial(end_orphan, runs, entry))
        elif incomplete or runs.host.has_terminal(entry.id):
            runs.aftermath.follow(entry, partial(runs.aftermath.settle, entry))
    elif state is State.CREATED:
        if entry.state.run > 1:
            await _look_at_next_run(runs, entry)
    elif entry.state.parked and state in {State.RUNNING, State.SUSPENDED}:
        await runs.parking.found(entry)
    elif not is_of_boot(entry.state.boot_id, runs.supervisor.boot_id):
        await _look_after_boot(runs, entry)
    elif state is State.STARTING:
        # The gate was never opened: the command has not run, and can begin as if nothing had been.
        await runs.host.tear_down(entry.id, at_once=True)
        runs.supervisor.spawn(runs.begin_where_it_was_left(entry))
    else:
        await _look(runs, entry)


async def _look_at_next_run(runs: Runs, entry: Entry) -> None:
    """It waits for a slot, or is left from an earlier amuxd, which took two steps to begin it."""
    await runs.host.tear_down(entry.id, at_once=True)
    if not entry.waits_for_slot:
        # Who asked for it may have been refused: it must not begin by itself now.
        why = "amuxd was gone before it was begun"
        await runs.supervisor.apply(entry, states.CouldNotStart(why), AMUXD, end=End(not_started=why))
        runs.aftermath.settle_if_ended(entry)


async def _look_after_boot(runs: Runs, entry: Entry) -> None:
    """Nothing of it is alive; what it wrote down of its end before that is still true."""
    supervisor, starting = runs.supervisor, entry.state.state is State.STARTING
    await supervisor.on_disk(give_back_reserved, supervisor.store.log(entry.id, entry.state.run))
    told = await supervisor.on_disk(runs.host.end_on_record, entry.session, entry.state.run)
    entry.checked_at = now()
    if told is not None and not starting:
        await _tell(runs, entry, partial(_tell_end, runs, entry, told))
    else:
        end = End(not_started="the machine went down") if starting else End()
        went_down = partial(_tell_gone, runs, entry, states.MachineWentDown(), end, cut_short=True)
        await _tell(runs, entry, went_down)


async def _look(runs: Runs, entry: Entry) -> None:
    finding = await runs.host.find(entry.session, entry.state)
    entry.checked_at = now()
    match finding:
        case Alive(home=home):
            try:
                await runs.supervisor.apply(entry, states.Probed(Liveness.ALIVE), AMUXD)
            except BaseException:
                home.close()
                raise
            runs.homes.take(entry, home)
            # Since when nobody has used it is not known any more.
            entry.used_at = entry.checked_at
            if runs.host.may_be_attached(entry.id):
                runs.homes.attachment_changed(entry.id)
            if entry.state.state is State.STOPPING:
                runs.supervisor.spawn(runs.stop_where_it_was_left(entry))
        case Ended(end=end):
            await _tell(runs, entry, partial(_tell_end, runs, entry, end))
        case Gone():
            await _tell(runs, entry, partial(_tell_gone, runs, entry, states.HomeGone(), End()))
        case Unknown(why=why):
            logger.warning("%s cannot be looked at now: %s", entry.session.name, why)
            entry.miss(why)


def _saw(entry: Entry) -> None:
    entry.looked_in_vain, entry.why_in_vain = False, ""


async def _tell(runs: Runs, entry: Entry, telling: Work) -> None:
    """What was found: if the disk refuses it now, that is said until it is written."""
    with contextlib.suppress(Internal):
        await runs.tell(entry, telling)


async def _tell_end(runs: Runs, entry: Entry, end: End) -> None:
    ended, word, run = states.CommandEnded(end), runs.parting.word_of(entry), entry.state.run
    directory, checked_at = runs.supervisor.store.run_directory(entry.id, run), entry.checked_at

    async def change() -> None:
        await _suspend_if_left_alive(runs, entry, word)
        looked = (entry.state, directory, end, checked_at)
        at, after = await runs.supervisor.on_disk(moments.of_end, *looked)
        if word is not None and word.ended_at:
            at, after = word.ended_at, 0
        await runs.supervisor.apply(entry, ended, KERNEL, end=end, run=run, at=at, ended_after=after)

    await runs.supervisor.surely(entry, ended, change)
    runs.aftermath.settle_if_ended(entry)


async def _tell_gone(runs: Runs, entry: Entry, gone: states.Fact, end: End, **known: Any) -> None:
    """Of what nothing is left, and so nobody knows how it ended."""
    word = runs.parting.word_of(entry)
    # After a boot there is nothing to clear away.
    leaves_something = isinstance(gone, states.HomeGone)
    if _says_alive(word):
        suspend = partial(_suspend_if_left_alive, runs, entry, word)
        await runs.supervisor.surely(entry, states.DaemonStopping(word.why), suspend)
    else:
        at, after = entry.checked_at, moments.known_alive(entry.state, entry.checked_at)
        if word is not None:
            gone, at, after, known = states.HomeGone(), word.ended_at, 0, {}
        known |= {"run": entry.state.run, "end": end, "ended_after": after, **attention.as_changes(None)}
        await runs.supervisor.apply_surely(entry, gone, AMUXD, at=at, **known)
    if leaves_something:
        await _clear_away(runs, entry)
    runs.aftermath.settle_if_ended(entry)


async def _clear_away(runs: Runs, entry: Entry) -> None:
    """That it is gone is told all the same."""
    try:
        await runs.host.tear_down(entry.id, at_once=True)
    except Exception:
        # Says why not, and tries again.
        await runs.homes.tear_down(entry)


def _says_alive(word: LastWord | None) -> TypeGuard[LastWord]:
    """By the amuxd before, which could not mark it suspended, and only say so."""
    return word is not None and not word.ended_at


async def _suspend_if_left_alive(runs: Runs, entry: Entry, word: LastWord | None) -> None:
    if _says_alive(word):
        # By now it is dead, and waits for nobody.
        known = {"alive_at": word.at, **attention.as_changes(None)}
        await runs.supervisor.apply(entry, states.DaemonStopping(word.why), AMUXD, at=word.at, **known)


async def sweep_forever(runs: Runs) -> None:
    """Events tell of every end. This is for the one that did not come, and for what could not be seen."""
    while True:
        in_vain = any(entry.looked_in_vain for entry in runs.supervisor.registry)
        await asyncio.sleep(RETRY_PAUSE if in_vain else SWEEP)
        await sweep(runs)


async def sweep(runs: Runs) -> None:
    for entry in _ended_unseen(runs):
        if entry.home is not None:
            logger.warning("the end of %s was missed until now", entry.session.name)
            runs.aftermath.command_ended(entry, entry.home)
    for entry in runs.supervisor.registry:
        runs.aftermath.look_for_end_in_shell(entry)
        # Whoever does something with it may be long about it: it is looked at the next time.
        if entry.looked_in_vain and not entry.operation.locked():
            async with entry.operation:
                if entry.looked_in_vain and runs.supervisor.registry.get(entry.id) is entry:
                    await _try_to_reconcile(runs, entry)
    await runs.parting.forget()
    await runs.parting.keep_room()


def _ended_unseen(runs: Runs) -> list[Entry]:
    poll = select.poll()
    held = {entry.home.command_fd: entry for entry in runs.supervisor.registry if entry.home is not None}
    for fd, entry in held.items():
        entry.checked_at = now()
        poll.register(fd, select.POLLIN)
    return [entry for fd, _ in poll.poll(0) if not (entry := held[fd]).ended.is_set()]
