"""The life of a run: brought up, watched, brought down, and its end told truly."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NoReturn, Protocol

from amuxd import conversations, processes, states
from amuxd.aftermath import tried
from amuxd.boots import Boots
from amuxd.config import Settings
from amuxd.errors import (
    Busy,
    Displaced,
    Internal,
    InvalidTransition,
    LaunchFailed,
    NoSuchWorkspace,
    StillAlive,
    WorkspaceBusy,
)
from amuxd.homes import Homes
from amuxd.hosts import Home, Host, LaunchRefused
from amuxd.operations import Operations
from amuxd.parking import NOT_PARKED, Parking
from amuxd.parting import Parting
from amuxd.possible import not_resumable, refusal
from amuxd.records import Ground, Process, Workspace, end_of_parked
from amuxd.registry import Entry, Waking
from amuxd.states import ENDED, LIVE, End, State
from amuxd.store import StoreError
from amuxd.supervisor import AMUXD, KERNEL, USER, Supervisor, now
from amuxd.watch import Watch
from amuxd.workspaces.ledger import UnreadableWorkspace

logger = logging.getLogger(__name__)

# How long a killed process may take to go.
KILLED = 10.0
# How often, and after how long again, it is asked how what was stopped has ended.
ASKED, ASKED_AGAIN = 3, 1.0
# How long the files of all agents, and of how many at once, are looked at before amuxd goes: it has half a
# minute, and what is suspended is to be written down in it.
ALL_LOOKED_AT = 10.0
LOOKED_AT_ONCE = 16
# How long amuxd waits, before it goes, for what the disk has been given to write.
LAST_WRITTEN = 5.0


class Places(Protocol):
    """Where there is room for a run."""

    def slot(self, entry: Entry, run: int, patient: bool) -> AbstractAsyncContextManager[bool]:
        """A slot for a run that begins in the meantime; False: it has a place in the queue instead."""

    async def look(self, entry: Entry) -> bool:
        """Whether its directory is there."""

    async def check(self, entry: Entry) -> None:
        """Raises Displaced where what stands in the place of its directory is another."""

    def shown_of(self, entry: Entry) -> Workspace | UnreadableWorkspace | None: ...

    async def ground(self, entry: Entry, command: Process) -> Ground | None:
        """What the process works in; None where it has no workspace, or nobody can tell."""


class Runs:
    def __init__(
        self, supervisor: Supervisor, host: Host, watch: Watch, places: Places, settings: Settings
    ) -> None:
        self.supervisor = supervisor
        self.places = places
        self.host = host
        self.has_configuration = asyncio.Event()
        self.configured: Callable[[], None] = lambda: None
        self.parting = Parting(supervisor)
        self.boots = Boots()
        self.parking = Parking(self)
        self.homes = Homes(supervisor, host, watch, self.parking.stay)
        self.aftermath = self.homes.aftermath
        operations = Operations(supervisor, self.aftermath, self._way_without_disk)
        self.operation, self.tell = operations.operation, operations.tell
        self.configure(settings)

    async def start(self, entry: Entry) -> None:
        await self.supervisor.to_the_end(self._start(entry))

    async def start_new(self, entry: Entry) -> None:
        """A command that cannot be started leaves a session that says why; what is refused leaves none."""
        try:
            if entry.session.workspace_id and self.places.shown_of(entry) is None:
                raise NoSuchWorkspace(f"the workspace of {entry.session.name} has just been removed")
            with contextlib.suppress(LaunchFailed):
                await self.start(entry)
        except (WorkspaceBusy, NoSuchWorkspace, Displaced):
            # Somebody was faster: with its slot, or with its removal.
            await self.remove(entry, force=False)
            raise

    async def _start(self, entry: Entry) -> None:
        async with self.operation(entry):
            _refuse(entry, "start")
            async with self.places.slot(entry, entry.state.run, entry.session.queue) as has_slot:
                if has_slot:
                    await self.supervisor.request(entry, states.StartRequested(), "start", USER)
            if has_slot:
                await self.bring_up(entry)

    def configure(self, settings: Settings) -> None:
        self.settings = settings
        if settings.error:
            self.has_configuration.clear()
        else:
            self.has_configuration.set()
        for entry in self.supervisor.registry:
            entry.agent = settings.agents.get(entry.session.agent)
            entry.configuration_error = settings.error
            self.supervisor.changed(entry, "Command", "Resumable", "IdleAfterUSec")
        self.configured()

    def grace_of(self, entry: Entry) -> float:
        return self.settings.stop_grace_of(entry.agent)

    async def restart(self, entry: Entry) -> None:
        await self.supervisor.to_the_end(self._restart(entry))

    async def _restart(self, entry: Entry) -> None:
        async with self.operation(entry):
            await self.begin_again(entry, states.RestartRequested(), "restart", USER)

    async def resume(self, entry: Entry) -> None:
        await self.supervisor.to_the_end(self._resume(entry))

    async def _resume(self, entry: Entry) -> None:
        async with self.operation(entry):
            if entry.parked:
                await self.parking.begin_again(entry)
            else:
                await self.begin_again(entry, states.RestartRequested(resume=True), "resume", USER)

    async def begin_again(
        self, entry: Entry, fact: states.RestartRequested, verb: str, by: str, **changes: Any
    ) -> None:
        """Run n + 1, with what it needs of run n. Whoever calls holds the session's operation."""
        await self._look_at_place(entry, fact)
        # By itself a plain command is begun again when others are resumed.
        _refuse(entry, "resume" if fact.resume else "restart")
        await self._end_what_is_left(entry)
        if fact.resume and (why := await self.homes.why_lost(entry)):
            raise not_resumable(entry, why)
        if fact.by_itself:
            # What it needs is there before it is said to begin.
            await self.places.check(entry)
            await self._look_at_launch(entry, fact.resume)
            await self.supervisor.on_disk(self.supervisor.store.prepare_run, entry.id, entry.state.run + 1)
        # What began by itself is counted by whoever began it; a person's word begins the count anew.
        fresh: dict[str, Any] = {"auto_run": 0, "auto_failures": 0, "auto_lasted": False, "cut_short": False}
        fresh |= {
            **NOT_PARKED,
            "command": None,
            "server": None,
            "ground": None,
            "started_at": 0,
            "not_enforced": [],
            "resuming": fact.resume,
            "agent_command": [],
            **changes,
        }
        # Nobody is there to hear of a refusal of what nobody asked for.
        patient = entry.session.queue or fact.by_itself
        async with self.places.slot(entry, entry.state.run + 1, patient) as has_slot:
            then = states.StartRequested() if has_slot else None
            await self.supervisor.request(entry, fact, verb, by, then=then, **fresh)
        if entry.keeps_terminal and not entry.attached:
            await self.homes.tear_down(entry)
        self.homes.shells.let_go(entry)
        if has_slot:
            await self.bring_up(entry)

    async def _look_at_place(self, entry: Entry, fact: states.RestartRequested) -> None:
        """It may be gone or back, and nothing tells of that where no workspace is known."""
        # What nobody asked for cannot be refused: that it failed is told.
        if entry.state.state is State.ORPHANED or not fact.by_itself:
            await self.places.look(entry)

    async def launch(self, entry: Entry, resuming: bool) -> tuple[Home, dict[str, Any]]:
        """The command at its gate, and what is to be known of it once it is let go."""
        plan = await conversations.planned(entry, resuming, self.host)
        home = await self.host.launch(plan.session, entry.state.run, entry.keeps_terminal)
        return home, {
            "command": home.command,
            "server": home.server,
            "ground": await self.places.ground(entry, home.command),
            "memory_kills": home.memory_kills,
            "not_enforced": home.not_enforced,
            "conversation_id": plan.conversation,
            "said": plan.said,
            "agent_command": plan.shown,
        }

    async def _look_at_launch(self, entry: Entry, resuming: bool) -> None:
        try:
            plan = await conversations.planned(entry, resuming, self.host)
            await self.host.check(plan.session)
        except (LaunchRefused, OSError) as error:
            raise LaunchFailed(str(error)) from error

    async def bring_up(self, entry: Entry) -> None:
        """From starting to running, or to failed and LaunchFailed with the reason."""
        try:
            home, begun = await self.launch(entry, entry.state.resuming)
        except (LaunchRefused, OSError, StoreError) as error:
            await self._give_up(entry, str(error))
        except Exception as error:
            logger.exception("%s could not be started", entry.session.name)
            await self._give_up(entry, str(error) or type(error).__name__)
        entry.keeps_terminal = False
        try:
            await self.supervisor.apply(entry, states.CommandStarted(), AMUXD, started_at=now(), **begun)
        except StoreError as error:
            # The gate is closed still: nothing has run that the disk does not know of.
            home.close()
            await self._give_up(entry, str(error))
        if home.not_enforced:
            logger.warning(
                "%s: nothing enforces %s",
                entry.session.name,
                ", ".join(home.not_enforced),
                extra={"AMUX_SESSION": entry.id},
            )
        entry.waking = Waking(asyncio.get_running_loop().time(), 0) if entry.agent else None
        self.homes.take(entry, home)

    async def _give_up(self, entry: Entry, why: str) -> NoReturn:
        entry.keeps_terminal = False
        at = now()
        with contextlib.suppress(Exception):
            await self.host.tear_down(entry.id, at_once=True)
        fact, end = states.CouldNotStart(why), End(not_started=why)
        await self.tell(entry, partial(self._conclude, entry, fact, end=end, at=at))
        raise LaunchFailed(f"{entry.session.name} could not start: {why}")

    async def _conclude(self, entry: Entry, fact: states.Fact, **known: Any) -> None:
        await self.supervisor.apply_surely(entry, fact, AMUXD, **known)
        await self.supervisor.certify(entry)

    async def stop(self, entry: Entry, grace: float | None) -> None:
        await self.supervisor.to_the_end(self._stop(entry, grace))

    async def _stop(self, entry: Entry, grace: float | None) -> None:
        asked_in, shell_was_open = entry.state.state, entry.shell_open
        async with self.operation(entry):
            await self._until_shell_is_clear(entry)
            if _was_stopped_since(entry, asked_in, shell_was_open):
                return
            if entry.shell_open:
                # Its run is over: what is left to stop is the shell that stayed open.
                await self.homes.surely_tear_down(entry)
                return
            if entry.may_live and (error := refusal(entry, "stop")):
                raise Busy(f"{error}{self._way_past(entry)}")
            await self._request_stop(entry, self.grace_of(entry) if grace is None else grace)
            await self.bring_down(entry)

    async def _until_shell_is_clear(self, entry: Entry) -> None:
        """Of one whose command has just ended it is not known yet whether its shell stays open."""
        if entry.session.shell and entry.state.state in ENDED:
            await self.aftermath.settled(entry)

    async def _request_stop(self, entry: Entry, grace: float) -> None:
        stop_by = int((time.monotonic() + grace) * 1e6)
        try:
            await self.supervisor.request(
                entry, states.StopRequested(), "stop", USER, parked=False, parked_at=0, stop_by=stop_by
            )
        except Internal as error:
            raise Internal(f"{error}{self._way_without_disk(entry)}") from error

    def _way_without_disk(self, entry: Entry) -> str:
        """It may be the very session that fills the disk."""
        if entry.home is None:
            return ""
        if way := self._way_past(entry):
            return way
        if entry.ended.is_set():
            return ""
        return f"; its command can be ended by: amux kill --signal SIGKILL {entry.id}"

    def _way_past(self, entry: Entry) -> str:
        unit = self.host.unit(entry.id)
        return (
            f"; its processes can be ended by: systemctl --user kill --signal=SIGKILL {unit}" if unit else ""
        )

    def _grace_left(self, entry: Entry) -> float:
        if not entry.state.stop_by:
            return self.grace_of(entry)
        return max(0.0, entry.state.stop_by / 1e6 - time.monotonic())

    async def bring_down(self, entry: Entry) -> None:
        """From stopping to stopped: the command first, then everything that is left."""
        end: End | None = None
        try:
            end = await self._end_gently(entry, self._grace_left(entry))
            end = await self._end_the_rest(entry, end)
        except Exception as error:
            logger.exception("%s could not be stopped", entry.session.name)
            with contextlib.suppress(Internal):
                await self.tell(entry, partial(self._stay_unstopped, entry, str(error), end))
            raise Internal(f"{entry.session.name} could not be stopped: {error}") from error
        self.homes.leave(entry)
        entry.keeps_terminal = False
        entry.attached = 0
        self.supervisor.changed(entry, "Attached")
        ended_at = 0
        parked_end, parked_end_at = end_of_parked(entry.state)
        if not end.known and parked_end:
            # It ended as it was parked, and only what was left stopped now.
            end, ended_at = parked_end, parked_end_at
        fact = states.CommandEnded(end) if end.known else states.HomeGone()
        await self.tell(entry, partial(self._conclude, entry, fact, end=end, ended_at=ended_at, at=now()))

    async def _stay_unstopped(self, entry: Entry, why: str, end: End | None) -> None:
        """Its end is certified now if its command has ended, and else when it has."""
        await self.supervisor.apply_surely(entry, states.CouldNotStop(why), AMUXD, end=end or End())
        home = entry.home
        if home is None:
            self.aftermath.settle_if_ended(entry)
        elif entry.ended.is_set():
            end = end or processes.end_of(home.command_fd, home.command)
            end = end or self.host.end_on_record(entry.session, entry.state.run) or End()
            self.aftermath.settle_left(entry, home, end)

    async def end_processes(self, entry: Entry, grace: float, by_force: bool = True) -> End:
        end = await self._end_gently(entry, grace)
        if end is None and entry.home is not None and not by_force:
            raise StillAlive(f"its command was asked to end, and has not within {grace:g} seconds")
        return await self._end_the_rest(entry, end)

    async def _end_gently(self, entry: Entry, grace: float) -> End | None:
        """How the command ended when it was asked to; None: it did not."""
        home = entry.home
        if home is None:
            return None
        await self.homes.learn_last(entry)
        agent = entry.agent
        number = signal.Signals[agent.stop_signal] if agent else signal.SIGTERM
        await self.host.ask_to_end(entry.session, home, number, agent is not None and agent.stop_children)
        if not await _happens(entry.ended, grace):
            return None
        # The terminal may be the only one who knows how, and it goes next.
        return await self._asked_again(entry, partial(self.host.end_of, entry.session, entry.state.run, home))

    async def _end_the_rest(self, entry: Entry, end: End | None) -> End:
        home = entry.home
        if home is None:
            await self.host.tear_down(entry.id)
            return End()
        if end is not None:
            # Some write what was said only as they end.
            await tried(entry, self.homes.look_what_was_said(entry))
            await tried(entry, self.homes.drain(entry))
            await self.host.tear_down(entry.id)
            return end
        # By itself and first: it may have left its unit, and the end of its terminal would be another signal.
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(home.command_fd, signal.SIGKILL)
        await self.host.tear_down(entry.id, at_once=True)
        if not await _happens(entry.ended, KILLED):
            raise Internal(f"process {home.command.pid} does not end, though it was killed")

        async def end_of() -> End:
            return processes.end_of(home.command_fd, home.command) or End()

        return await self._asked_again(entry, end_of)

    async def _asked_again(self, entry: Entry, how: Callable[[], Awaitable[End]]) -> End:
        """It is over, and that it cannot be asked how, for want of descriptors say, does not undo that."""
        for _ in range(ASKED):
            try:
                return await how()
            except OSError as error:
                logger.warning("how %s ended cannot be asked now: %s", entry.session.name, error)
                await asyncio.sleep(ASKED_AGAIN)
        return End()

    async def archive(self, entry: Entry) -> None:
        await self.supervisor.to_the_end(self._archive(entry))

    async def _archive(self, entry: Entry) -> None:
        async with self.operation(entry):
            if entry.state.state is State.ARCHIVED:
                raise InvalidTransition(f"{entry.session.name} is archived already")
            await self._until_shell_is_clear(entry)
            _refuse(entry, "archive")
            await self._leave_nothing(entry)
            await self.supervisor.request(entry, states.ArchiveRequested(), "archive", USER)

    async def remove(self, entry: Entry, force: bool) -> None:
        await self.supervisor.to_the_end(self._remove(entry, force))

    async def _remove(self, entry: Entry, force: bool) -> None:
        async with self.operation(entry):
            if entry.state.state in LIVE:
                if not force:
                    raise InvalidTransition(
                        f"{entry.session.name} is {entry.state.state}: stop it first, or force its removal"
                    )
                await self._end(entry)
            elif not force:
                await self._until_shell_is_clear(entry)
                _refuse(entry, "rm")
            await self.discard(entry)

    async def _end(self, entry: Entry) -> None:
        """Whoever holds the operation finds starting or stopping only what an amuxd before this one began."""
        if entry.state.state is State.STARTING:
            with contextlib.suppress(LaunchFailed):
                await self._give_up(entry, "it was removed first")
            return
        if entry.state.state is not State.STOPPING:
            await self._request_stop(entry, self.grace_of(entry))
        await self.bring_down(entry)

    async def begin_where_it_was_left(self, entry: Entry) -> None:
        async with entry.operation:
            if self._is_left(entry, State.STARTING):
                with contextlib.suppress(LaunchFailed, Internal):
                    await self.bring_up(entry)

    async def stop_where_it_was_left(self, entry: Entry) -> None:
        async with entry.operation:
            if self._is_left(entry, State.STOPPING):
                with contextlib.suppress(Internal):
                    await self.bring_down(entry)

    def _is_left(self, entry: Entry, state: State) -> bool:
        return self.supervisor.registry.get(entry.id) is entry and entry.state.state is state

    async def discard(self, entry: Entry) -> None:
        """Whoever calls holds the operation of a session of which nothing lives."""
        await self._leave_nothing(entry)
        await self.supervisor.forget(entry)

    async def _leave_nothing(self, entry: Entry) -> None:
        await self._end_what_is_left(entry)
        if entry.keeps_terminal or self.host.has_terminal(entry.id):
            await self.homes.surely_tear_down(entry)

    async def _end_what_is_left(self, entry: Entry) -> None:
        """What a stop could not end must not outlive what is known of it, nor end within the next run."""
        await self.aftermath.settled(entry)
        if entry.home is not None:
            await self.homes.surely_tear_down(entry)
            # It may have left its unit.
            await self._end_the_rest(entry, None)
            await self.aftermath.settled(entry)

    async def part(self, why: str, refused: Collection[Entry] = ()) -> None:
        """The last that amuxd does: what is half done stays so, and whatever runs is said to be left.

        Of what could not be suspended a moment ago only that is said.
        """
        # Who waits to write that is among what ends now.
        found_over = [entry for entry in self.supervisor.registry if _is_found_over(entry)]
        self.supervisor.cancel_tasks()
        # What they had begun to write lands all the same, and may be that a command runs.
        await self.supervisor.written(LAST_WRITTEN)
        await self.suspend(why, [*refused, *found_over])
        await self.parting.leave(why)

    async def suspend(self, why: str, but: Collection[Entry] = ()) -> list[Entry]:
        """Whatever runs goes on without amuxd, and the disk says so; those of which it does not."""
        running = [
            entry
            for entry in self.supervisor.registry
            if entry.state.state is State.RUNNING and not (entry in but or _is_found_over(entry))
        ]
        # A turn each: more at once would only take the time from each other.
        turns, over = asyncio.Semaphore(LOOKED_AT_ONCE), time.monotonic() + ALL_LOOKED_AT
        suspending = (self._suspend(entry, why, turns, over) for entry in running)
        with self.supervisor.many_change():
            outcomes = await asyncio.gather(*suspending, return_exceptions=True)
        refused = []
        for entry, outcome in zip(running, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                logger.error("%s could not be suspended: %s", entry.session.name, outcome)
                refused.append(entry)
        moments = {e.id: o for e, o in zip(running, outcomes, strict=True) if isinstance(o, int)}
        await self.homes.attending.look_away(moments)
        return refused

    async def _suspend(self, entry: Entry, why: str, turns: asyncio.Semaphore, over: float) -> int:
        """When that was, in nanoseconds."""
        home, kills = entry.home, entry.state.memory_kills
        # What has ended is not suspended, also where that cannot be written.
        await self._tell_end_first(entry)
        try:
            async with turns:
                await self.homes.learn_last(entry, over - time.monotonic())
            if home is not None:
                seen = self.homes.memory_kills(entry, home)
                if seen != kills and not processes.is_dying(home.command):
                    kills = seen
        except Exception:
            # The next amuxd looks for itself, if only this one says that nobody does until then.
            logger.exception("%s is suspended with less than could be known", entry.session.name)
        await self.supervisor.apply(entry, states.DaemonStopping(why), AMUXD, memory_kills=kills)
        return time.time_ns()

    async def _tell_end_first(self, entry: Entry) -> None:
        home = entry.home
        if home is not None and entry.ended.is_set() and not entry.parked:
            try:
                end = await self.host.end_of(entry.session, entry.state.run, home)
            except Exception:
                logger.exception("how %s ended is left for the next amuxd to tell", entry.session.name)
                return
            at = entry.ended_at
            await self.supervisor.apply(entry, states.CommandEnded(end), KERNEL, end=end, at=at)


def _is_found_over(entry: Entry) -> bool:
    """And that is not written yet: the next amuxd finds it so again."""
    is_being_told = entry.telling is not None and not entry.telling.done()
    return (bool(entry.unwritten) or is_being_told) and entry.home is None and not entry.parked


def _was_stopped_since(entry: Entry, asked_in: State, shell_was_open: bool) -> bool:
    """By whoever asked first: who asked for the same has it now, or hears why it was not to be."""
    state = entry.state
    if shell_was_open and not entry.shell_open:
        return state.state in ENDED
    if asked_in not in ENDED and state.state is State.FAILED and state.previous is State.STOPPING:
        raise Internal(f"{entry.session.name} {state.reason}")
    return asked_in is not State.STOPPED and state.state is State.STOPPED


def _refuse(entry: Entry, verb: str) -> None:
    if error := refusal(entry, verb):
        raise error


async def _happens(event: asyncio.Event, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
