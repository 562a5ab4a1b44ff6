"""Who does something with a session, one at a time, and not before all that has happened to it is told."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from amuxd.aftermath import Aftermath, Work
from amuxd.errors import Busy, Internal, NoSuchSession
from amuxd.registry import Entry
from amuxd.states import Liveness
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE, UNWRITTEN, Supervisor

logger = logging.getLogger(__name__)


class Operations:
    def __init__(
        self, supervisor: Supervisor, aftermath: Aftermath, way_without_disk: Callable[[Entry], str]
    ) -> None:
        self._supervisor = supervisor
        self._aftermath = aftermath
        self._way_without_disk = way_without_disk

    @contextlib.asynccontextmanager
    async def operation(self, entry: Entry) -> AsyncIterator[None]:
        """One at a time; what waited while the session was removed finds none."""
        async with entry.operation:
            if self._supervisor.registry.get(entry.id) is not entry:
                raise NoSuchSession(f"{entry.session.name} was removed")
            while not entry.unwritten and (telling := entry.telling) is not None and not telling.done():
                await _until_done_or_refused(entry, telling)
            if entry.unwritten:
                # Its shell may be open still.
                is_over = entry.session_alive is Liveness.DEAD and not entry.session.shell
                way = "" if is_over else self._way_without_disk(entry)
                raise Busy(f"{entry.session.name}: {entry.why_unwritten}{way}")
            yield

    async def tell(self, entry: Entry, telling: Work) -> None:
        """What has happened, by whoever holds the operation, and not for as long as a disk is full.

        Raises Internal then, and it is told later: until then nobody else is let do anything.
        """
        task = entry.telling = self._aftermath.follow(entry, partial(self._tell_surely, entry, telling))
        await _until_done_or_refused(entry, task)
        if not task.done():
            raise Internal(f"{entry.session.name}: {entry.why_unwritten}")
        await task

    async def _tell_surely(self, entry: Entry, telling: Work) -> None:
        pause = RETRY_PAUSE
        while True:
            try:
                await telling()
            except Exception as error:
                logger.exception("what became of %s is told later", entry.session.name)
                with self._untold(entry, f"what became of it is not known yet: {error}"):
                    await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                return

    @contextlib.contextmanager
    def _untold(self, entry: Entry, why: str) -> Iterator[None]:
        key = object()
        entry.unwritten[key] = why
        entry.refused.set()
        self._supervisor.changed(entry, *UNWRITTEN)
        try:
            yield
        finally:
            entry.unwritten.pop(key, None)
            if not entry.unwritten:
                entry.refused.clear()
            self._supervisor.changed(entry, *UNWRITTEN)


async def _until_done_or_refused(entry: Entry, task: asyncio.Task[None]) -> None:
    refused = asyncio.ensure_future(entry.refused.wait())
    try:
        await asyncio.wait({task, refused}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        refused.cancel()
