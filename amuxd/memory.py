"""How many processes of each live run were killed for memory, and were not its command."""

import asyncio
import logging
from functools import partial

from amuxd import processes
from amuxd.hosts import Home, Host
from amuxd.registry import Entry
from amuxd.store import StoreError
from amuxd.supervisor import Supervisor
from amuxd.watch import Watch

# The kernel counts a kill before it does it: what lives for as long after that was not what it killed.
LIVED_ON = 1.0

logger = logging.getLogger(__name__)


class MemoryKills:
    def __init__(self, supervisor: Supervisor, host: Host, watch: Watch) -> None:
        self._supervisor = supervisor
        self._host = host
        self._watch = watch
        # Of those alone where something counts them.
        self._counted: set[str] = set()
        self._watched: dict[str, int] = {}
        self._looking: dict[str, asyncio.TimerHandle] = {}

    def begin(self, entry: Entry, home: Home) -> None:
        if home.memory_kills != entry.state.memory_kills:
            self._supervisor.spawn(self._write(entry, home))
        self._await_next(entry, home)

    def seen(self, entry: Entry, home: Home) -> int:
        if entry.id not in self._counted:
            return home.memory_kills
        return max(home.memory_kills, self._host.memory_kills(home.server))

    def leave(self, entry: Entry) -> None:
        self._counted.discard(entry.id)
        self._look_away(entry)

    def _look_away(self, entry: Entry) -> None:
        if (watch := self._watched.pop(entry.id, None)) is not None:
            self._watch.forget_once(watch)
        if (look := self._looking.pop(entry.id, None)) is not None:
            look.cancel()

    def _await_next(self, entry: Entry, home: Home) -> None:
        events = self._host.memory_events(home.server)
        if events is None:
            return
        self._counted.add(entry.id)
        try:
            changed = partial(self._changed, entry, home)
            self._watched[entry.id] = self._watch.file(events, changed)
        except OSError as error:
            logger.warning(
                "%s: what is killed there for memory goes unnoticed: %s", entry.session.name, error
            )
            return
        if self._host.memory_kills(home.server) > home.memory_kills:
            # It was killed before anybody watched.
            self._look_away(entry)
            self._changed(entry, home)

    def _changed(self, entry: Entry, home: Home) -> None:
        """Also where one only came near its limit, over and over."""
        self._watched.pop(entry.id, None)
        look = partial(self._look, entry, home, self._host.memory_kills(home.server))
        self._looking[entry.id] = asyncio.get_running_loop().call_later(LIVED_ON, look)

    def _look(self, entry: Entry, home: Home, killed: int) -> None:
        self._looking.pop(entry.id, None)
        if entry.ended.is_set() or not processes.may_live(home.command):
            return
        if killed > home.memory_kills:
            home.memory_kills = killed
            self._supervisor.spawn(self._write(entry, home))
        self._await_next(entry, home)

    async def _write(self, entry: Entry, home: Home) -> None:
        """For an amuxd that finds it ended."""
        try:
            is_true_still = partial(_is_live, entry, home)
            await self._supervisor.amend_if(entry, is_true_still, memory_kills=home.memory_kills)
        except StoreError as error:
            logger.warning(
                "%s: what was killed there for memory is not written: %s", entry.session.name, error
            )


def _is_live(entry: Entry, home: Home) -> bool:
    return entry.home is home and not entry.ended.is_set()
