"""Sees to it that what a live run prints is taken down, also after somebody has killed the one who does."""

import asyncio
import logging
import os
from functools import partial

from amuxd import processes
from amuxd.hosts import Home, Host, LoggerMissing, LoggerUnknown
from amuxd.registry import Entry
from amuxd.supervisor import RETRY_PAUSE, Supervisor
from amuxd.watch import Watch

logger = logging.getLogger(__name__)


class Recording:
    def __init__(self, supervisor: Supervisor, host: Host, watch: Watch) -> None:
        self._supervisor = supervisor
        self._host = host
        self._watch = watch
        self._watched: dict[str, int] = {}

    def begin(self, entry: Entry, home: Home) -> None:
        self._supervisor.spawn(self._keep(entry, home, -RETRY_PAUSE))

    def log_replaced(self, entry: Entry, home: Home) -> None:
        if entry.id in self._watched:
            self.leave(entry)
            self.begin(entry, home)

    def leave(self, entry: Entry) -> None:
        if (fd := self._watched.pop(entry.id, None)) is not None:
            self._watch.forget_process(fd)
            os.close(fd)

    async def _keep(self, entry: Entry, home: Home, begun_at: float) -> None:
        told = ""
        while _is_needed(entry, home):
            try:
                taker = await self._host.logger(entry.id, entry.state.run, home.server)
            except LoggerMissing as error:
                is_known = not isinstance(error, LoggerUnknown)
                what = (
                    "nobody takes down its output"
                    if is_known
                    else "it is not known who takes down its output"
                )
                told = _tell(entry, f"{what}: {error}", told)
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if taker is None or not _is_needed(entry, home):
                return
            try:
                fd = processes.open_process(taker)
            except OSError as error:
                told = _tell(entry, f"who takes down its output cannot be watched now: {error}", told)
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if fd is not None:
                self._watched[entry.id] = fd
                self._watch.process(fd, partial(self._ended, entry, home, begun_at))
                return

    def _ended(self, entry: Entry, home: Home, begun_at: float) -> None:
        self.leave(entry)
        self._supervisor.spawn(self._keep_on(entry, home, begun_at))

    async def _keep_on(self, entry: Entry, home: Home, begun_at: float) -> None:
        loop = asyncio.get_running_loop()
        # Not over and over where something ends each of them at once.
        await asyncio.sleep(begun_at + RETRY_PAUSE - loop.time())
        if _is_needed(entry, home):
            logger.warning(
                "%s: what took down its output has ended, and is begun again",
                entry.session.name,
                extra={"AMUX_SESSION": entry.id},
            )
            await self._keep(entry, home, loop.time())


def _tell(entry: Entry, what: str, told: str) -> str:
    """Once, as long as it stays so: the journal may lie on the disk that is full."""
    if what != told:
        logger.warning("%s: %s", entry.session.name, what, extra={"AMUX_SESSION": entry.id})
    return what


def _is_needed(entry: Entry, home: Home) -> bool:
    """Once the command has ended, whoever tells of the end does the rest."""
    return entry.home is home and not entry.ended.is_set() and processes.may_live(home.server)
