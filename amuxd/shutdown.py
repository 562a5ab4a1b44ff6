"""Has logind wait at a shutdown until the sessions are marked suspended."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from amuxd import states
from amuxd.bus.connection import Bus, BusError, BusLost, Match, Signal
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import LIVE, Liveness, State, Transition
from amuxd.supervisor import AMUXD, RETRY_PAUSE

logger = logging.getLogger(__name__)

LOGIN = "org.freedesktop.login1"
PATH = "/org/freedesktop/login1"
MANAGER = LOGIN + ".Manager"
WHAT = ("shutdown", "amux", "sessions are marked suspended first", "delay")

# Not a word of logind's on whether we may: it is busy, begins anew, or delays for too many others just now.
_ASK_AGAIN = {
    f"org.freedesktop.DBus.Error.{name}" for name in ("NoReply", "Timeout", "TimedOut", "LimitsExceeded")
}


class ShutdownDelay:
    """A listener of the supervisor: the lock is held while anything is live."""

    def __init__(self, runs: Runs, bus: Bus) -> None:
        self._runs = runs
        self._bus = bus
        self._lock = -1
        self._going_down = False
        self._changed = asyncio.Event()
        # Called off at once, it is suspended to the end before anything goes on.
        self._turn = asyncio.Lock()

    async def keep(self) -> None:
        """Until it is cancelled, or logind turns out not to be for us."""
        shutdown = Match(sender=LOGIN, path=PATH, interface=MANAGER, member="PrepareForShutdown")
        try:
            await self._patiently(lambda: self._bus.add_match(shutdown, self._told))
            while True:
                self._changed.clear()
                if self._is_wanted:
                    await self._patiently(self._hold)
                else:
                    self._release()
                await self._changed.wait()
        except BusError as error:
            logger.info("a shutdown will not wait for amuxd: %s", error.message)
        finally:
            self._release()

    async def _hold(self) -> None:
        if self._is_wanted and self._lock < 0:
            [self._lock] = await self._bus.call(LOGIN, PATH, MANAGER, "Inhibit", "ssss", WHAT)

    async def _patiently(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
            except BusError as error:
                if isinstance(error, BusLost) or error.name not in _ASK_AGAIN:
                    raise
                logger.info("a shutdown will not wait for amuxd yet: %s", error.message)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                return

    @property
    def _is_wanted(self) -> bool:
        return not self._going_down and any(e.state.state in LIVE for e in self._runs.supervisor.registry)

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _told(self, signal: Signal) -> None:
        [self._going_down] = signal.body
        self._runs.supervisor.spawn(self._suspend() if self._going_down else self._go_on())

    async def _suspend(self) -> None:
        async with self._turn:
            await self._runs.suspend("the machine was shut down")
        self._changed.set()

    async def _go_on(self) -> None:
        """The shutdown was called off, and whatever was suspended for it runs."""
        self._changed.set()
        supervisor = self._runs.supervisor
        async with self._turn:
            suspended = [entry for entry in supervisor.registry if entry.state.state is State.SUSPENDED]
            found = [(entry, fact) for entry in suspended if (fact := _found(entry))]
            await asyncio.gather(*(supervisor.apply_surely(entry, fact, AMUXD) for entry, fact in found))

    def appeared(self, entry: Entry) -> None:
        """Nothing of it is live yet."""

    def disappeared(self, entry: Entry) -> None:
        """It was not live any more."""

    def moved(self, entry: Entry, transition: Transition) -> None:
        if (transition.source in LIVE) != (transition.target in LIVE):
            self._changed.set()

    def exited(self, entry: Entry) -> None:
        """Its state said so."""

    def changed(self, entry: Entry, *properties: str) -> None:
        """No state did."""

    def attention_changed(self, entry: Entry) -> None:
        """Nor does a wait."""


def _found(entry: Entry) -> states.Fact | None:
    """None where amuxd still does not know whether it lives, or where it suspended nothing alive."""
    if entry.state.parked:
        return states.FoundParked()
    return states.Probed(Liveness.ALIVE) if entry.session_alive is Liveness.ALIVE else None
