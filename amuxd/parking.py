"""Ends the idle process of a session whose conversation can go on, and brings it back when it is wanted."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from amuxd import states
from amuxd.aftermath import tried
from amuxd.attention import Kind, as_changes
from amuxd.errors import AmuxError, Internal, InvalidTransition, LaunchFailed, NotResumable, StillAlive
from amuxd.hosts import Alive, LaunchRefused, Unknown
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.logs import size_of
from amuxd.possible import impossible
from amuxd.registry import Entry, Waking
from amuxd.states import End, Liveness, State, Transition
from amuxd.store import StoreError
from amuxd.supervisor import AMUXD, not_written, now

if TYPE_CHECKING:
    from amuxd.runs import Runs

logger = logging.getLogger(__name__)

# An agent that has ended its turn is what an idle one is.
_IDLE = ("", Kind.TURN)

# Who uses more than this part of a processor for as many seconds works, whatever it prints.
RESTING, LOOKED_AT_FOR = 0.05, 3.0

# What is known of a session whose process is there.
NOT_PARKED: dict[str, Any] = {"parked": False, "parked_at": 0, "parked_end": None, "parked_end_at": 0}

_PROPERTIES = ("Parked", "ParkedUSec", "Resumable", "Pid", "Attached", "SessionAlive", "HostAlive")


class Parking:
    """A listener of the supervisor: whatever changes of a session may make it one to be parked later."""

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        # Those that are about to be parked, unless they work.
        self._looked_at: set[str] = set()

    async def park(self, entry: Entry) -> None:
        await self._runs.supervisor.to_the_end(self._park_by_hand(entry))

    async def _park_by_hand(self, entry: Entry) -> None:
        async with self._runs.operation(entry):
            if not _runs(entry):
                raise _not_to_be_parked(entry)
            try:
                await self._refuse_if_it_would_lose(entry)
            except (TmuxUnreachable, TmuxRefused) as error:
                raise Internal(
                    f"{entry.session.name} is not parked: whether windows are open is not known: {error}"
                ) from error
            if not await self._park(entry, lambda: _runs(entry), by_force=True):
                raise _not_to_be_parked(entry)

    async def _refuse_if_it_would_lose(self, entry: Entry) -> None:
        """The command comes back with its conversation, and what a person opened beside it does not."""
        homes = self._runs.homes
        why = entry.why_not_resumable or await homes.why_lost(entry)
        if why := why or await homes.why_unanswered(entry):
            raise NotResumable(
                f"{entry.session.name} cannot be parked, for it could not be brought back: {why}"
            )
        if await self._runs.host.panes(entry.id) > 1:
            raise InvalidTransition(
                f"{entry.session.name} cannot be parked: other windows or panes are open in its terminal, "
                "and what runs there would be lost; close them first"
            )

    async def _park(self, entry: Entry, may_be: Callable[[], bool], by_force: bool) -> bool:
        """False: while its terminal was asked, it came to be what may not be parked."""
        # Written down first: whatever becomes of amuxd now, its end is no death.
        changes = {**NOT_PARKED, "parked": True, "parked_at": now()}
        try:
            if not await self._runs.supervisor.amend_if(entry, may_be, *_PROPERTIES, **changes):
                return False
        except StoreError as error:
            raise not_written(f"{entry.session.name} is not parked: {error}", error) from error
        await self._end(entry, by_force)
        return True

    async def _end(self, entry: Entry, by_force: bool) -> None:
        """What only was left alone for a while is not killed for it."""
        try:
            end = await self._runs.end_processes(entry, self._runs.grace_of(entry), by_force)
            await self._keep_end(entry, end)
        except Exception as error:
            trace = None if isinstance(error, StillAlive) else error
            logger.error("%s could not be parked: %s", entry.session.name, error, exc_info=trace)
            with contextlib.suppress(Internal):
                await self._runs.tell(entry, partial(self._take_back, entry, isinstance(error, StillAlive)))
            if not entry.parked or entry.home is not None:
                raise Internal(f"{entry.session.name} could not be parked: {error}") from error
        else:
            self._leave(entry)
        logger.info("%s: parked", entry.session.name, extra={"AMUX_SESSION": entry.id})

    async def _take_back(self, entry: Entry, was_asked: bool) -> None:
        """Unless it has ended after all. In turn with who tells of that: one of the two does."""
        # By itself it is tried again after as long a time, and may end of what it was asked until then.
        entry.tried_at = now()
        entry.asked_to_end_at = entry.tried_at if was_asked else 0
        home, surely = entry.home, self._runs.supervisor.amend_surely
        if home is None or await surely(entry, lambda: not entry.ended.is_set(), *_PROPERTIES, **NOT_PARKED):
            return
        await self._keep_end(entry, await self._runs.host.end_of(entry.session, entry.state.run, home))
        await self._runs.homes.tear_down(entry)
        self._leave(entry)

    async def _keep_end(self, entry: Entry, end: End) -> None:
        """It is that of the run where nothing comes back."""
        try:
            await self._runs.supervisor.amend(entry, parked_end=end, parked_end_at=entry.ended_at)
        except StoreError as error:
            logger.error("%s: how its process ended is not written: %s", entry.session.name, error)

    def _leave(self, entry: Entry) -> None:
        self._runs.homes.leave(entry)
        entry.keeps_terminal = False
        entry.attached = 0
        self._runs.supervisor.changed(entry, *_PROPERTIES)

    async def stay(self, entry: Entry) -> None:
        """It ended with success, and its profile has the session stay, or late of what parking asked it."""
        async with entry.operation:
            # What cannot be written now is told later.
            with contextlib.suppress(Internal):
                await self._runs.tell(entry, partial(self._stay, entry))

    async def _stay(self, entry: Entry) -> None:
        def ended_in_its_run() -> bool:
            return entry.state.state is State.RUNNING and entry.session_alive is Liveness.DEAD

        def is_left_of_it() -> bool:
            return entry.parked and (entry.home is None or entry.ended.is_set())

        end, home = End(code=0), entry.home
        if home is not None:
            end = await self._runs.host.end_of(entry.session, entry.state.run, home)
        known = {"parked": True, "parked_at": now(), "parked_end": end, "parked_end_at": entry.ended_at}
        surely = self._runs.supervisor.amend_surely
        if await surely(entry, ended_in_its_run, *_PROPERTIES, **known) or is_left_of_it():
            await tried(entry, self._runs.homes.drain(entry))
            await self._runs.homes.tear_down(entry)
            self._leave(entry)

    async def found(self, entry: Entry) -> None:
        """At the start of amuxd: what was parked is so still, on this boot or another."""
        await self._runs.supervisor.apply(entry, states.FoundParked(), AMUXD)
        if not self._runs.host.has_terminal(entry.id):
            return
        # amuxd was gone before its process was, or before the one that was to come back had begun.
        match await self._runs.host.find(entry.session, entry.state):
            case Alive(home=home):
                self._runs.homes.take(entry, home)
            case Unknown(why=why):
                entry.miss(why)
                return
        self._runs.supervisor.spawn(self._finish(entry))

    async def _finish(self, entry: Entry) -> None:
        async with entry.operation:
            if not entry.parked:
                return
            if entry.home is None:
                await self._runs.homes.tear_down(entry)
                return
            # It may be saving what was said, and has its own time for that. What goes wrong is logged.
            with contextlib.suppress(Internal):
                await self._end(entry, by_force=False)

    async def bring_back(self, entry: Entry) -> None:
        """For whoever has not asked to resume it. Returns once the process runs again, in its run."""
        await self._runs.supervisor.to_the_end(self._bring_back(entry))

    async def _bring_back(self, entry: Entry) -> None:
        async with self._runs.operation(entry):
            if entry.parked and (why := entry.why_not_by_itself):
                name = entry.session.name
                raise NotResumable(
                    f"{name} stays parked: {why}; amux resume {entry.id} brings it back all the same"
                )
            if entry.parked:
                await self.begin_again(entry)

    async def begin_again(self, entry: Entry) -> None:
        """In its run. Whoever calls holds the operation of a session that is parked."""
        name = entry.session.name
        if why := entry.why_not_resumable or await self._runs.homes.why_lost(entry):
            ways = "; possible: stop, and then restart" if entry.lost else ""
            raise NotResumable(f"{name} stays parked: {why}{ways}")
        await self._runs.places.check(entry)
        try:
            home, begun = await self._runs.launch(entry, resuming=True)
        except (LaunchRefused, OSError, StoreError) as error:
            await self._runs.homes.tear_down(entry)
            raise LaunchFailed(f"{name} stays parked, it could not be brought back: {error}") from error
        # At its gate it has printed nothing, and what an amuxd before left in the log is taken out.
        log = self._runs.supervisor.store.log(entry.id, entry.state.run)
        before = await asyncio.to_thread(size_of, log)
        # Whoever wants it back has come for what it waited for.
        begun |= as_changes(None)
        try:
            await self._runs.supervisor.amend(
                entry, *_PROPERTIES, "Command", resuming=True, **NOT_PARKED, **begun
            )
        except StoreError as error:
            # The gate is closed still: nothing has run that the disk does not know of.
            home.close()
            await self._runs.homes.tear_down(entry)
            raise not_written(f"{name} stays parked: {error}", error) from error
        entry.used_at = now()
        entry.waking = Waking(asyncio.get_running_loop().time(), before)
        self._runs.homes.take(entry, home)
        logger.info("%s: brought back", name, extra={"AMUX_SESSION": entry.id})

    @contextlib.contextmanager
    def put_off(self, entry: Entry) -> Iterator[None]:
        """However long it was left alone: now somebody comes for it, and it may be slow to be ready."""
        entry.in_hand += 1
        try:
            yield
        finally:
            entry.in_hand -= 1
            entry.used_at = now()
            self._consider(entry)

    # One timer, for whichever session is due first. What is busy meanwhile only makes that later.

    def appeared(self, entry: Entry) -> None:
        self._consider(entry)

    def disappeared(self, entry: Entry) -> None:
        """The timer finds it gone."""

    def moved(self, entry: Entry, transition: Transition) -> None:
        self._consider(entry)

    def exited(self, entry: Entry) -> None:
        """Its state said so."""

    def changed(self, entry: Entry, *properties: str) -> None:
        self._consider(entry)

    def attention_changed(self, entry: Entry) -> None:
        self._consider(entry)

    def _consider(self, entry: Entry) -> None:
        due = None if entry.id in self._looked_at else self._due(entry)
        if due is not None and (self._timer is None or due < self._armed_for):
            if self._timer is not None:
                self._timer.cancel()
            self._armed_for = due
            wait = max(0.0, (due - now()) / 1e6)
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def _due(self, entry: Entry) -> int | None:
        """When it may be parked; None while it may not."""
        if self._runs.settings.error:
            # The configuration may say never.
            return None
        agent = entry.agent
        if agent is None or agent.park_after is None or entry.why_not_resumable or entry.why_not_by_itself:
            return None
        if not _runs(entry):
            return None
        if entry.unwritten or entry.attached or entry.in_hand or entry.state.attention not in _IDLE:
            return None
        state = entry.state
        last = max(entry.activity_at, entry.used_at, entry.tried_at, state.started_at, state.attention_at)
        return max(last + int(agent.park_after * 1e6), entry.expected_until)

    def _look(self) -> None:
        self._timer = None
        for entry in self._runs.supervisor.registry:
            if entry.id not in self._looked_at and self._is_due(entry):
                self._runs.supervisor.spawn(self._park_idle(entry))
            else:
                self._consider(entry)

    def _is_due(self, entry: Entry) -> bool:
        due = self._due(entry)
        return due is not None and due <= now()

    async def _park_idle(self, entry: Entry) -> None:
        self._looked_at.add(entry.id)
        try:
            if await self._works(entry):
                entry.tried_at = now()
                return
            async with entry.operation:
                if self._is_due(entry):
                    await self._park_unless_it_would_lose(entry)
        finally:
            self._looked_at.discard(entry.id)
            self._consider(entry)

    async def _works(self, entry: Entry) -> bool:
        """Without a word. Where nobody knows, it is taken to."""
        if entry.home is None:
            return False
        try:
            before = await self._runs.host.processor_time(entry.id, entry.home.server)
            await asyncio.sleep(LOOKED_AT_FOR)
            if entry.home is None:
                return False
            used = await self._runs.host.processor_time(entry.id, entry.home.server) - before
        except Exception as error:
            logger.warning("%s is not parked: whether it works is not known: %s", entry.session.name, error)
            return True
        return used > RESTING * LOOKED_AT_FOR

    async def _park_unless_it_would_lose(self, entry: Entry) -> None:
        try:
            entry.attached = await self._runs.host.attached(entry.id)
            if not entry.attached:
                await self._refuse_if_it_would_lose(entry)
                await self._park(entry, lambda: self._is_due(entry), by_force=False)
        except (AmuxError, TmuxUnreachable, TmuxRefused) as error:
            # What is not known is no reason; it is looked at again after as long a time.
            logger.warning("%s is not parked: %s", entry.session.name, error)
            entry.tried_at = now()


def _not_to_be_parked(entry: Entry) -> AmuxError:
    if entry.state.state is State.RUNNING and entry.session_alive is Liveness.DEAD:
        return InvalidTransition(f"{entry.session.name} is not parked: its command has just ended")
    return impossible(entry, "park")


def _runs(entry: Entry) -> bool:
    running = entry.state.state is State.RUNNING and not entry.parked
    return running and entry.session_alive is Liveness.ALIVE
