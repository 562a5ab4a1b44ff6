"""How runs have ended, the present one and those before it, and what led there."""

import contextlib
from collections.abc import Iterator

from amuxd import records
from amuxd.aftermath import SETTLED
from amuxd.errors import NotReadable
from amuxd.records import Certificate, HistoryEntry
from amuxd.registry import Entry
from amuxd.runs import Runs


async def certificate(runs: Runs, entry: Entry, run: int) -> Certificate | None:
    """Waits until the last lines are all there, but not for a terminal that holds them back."""
    if run in (0, entry.state.run):
        if entry.certificate:
            await runs.aftermath.settled(entry, SETTLED)
        if entry.certificate or run:
            return entry.certificate
    for earlier in [run] if run else range(entry.state.run - 1, 0, -1):
        if found := await _of_earlier(runs, entry, earlier):
            return found
    return None


async def _of_earlier(runs: Runs, entry: Entry, run: int) -> Certificate | None:
    supervisor = runs.supervisor
    with _not_readable(f"how run {run} of {entry.session.name} ended"):
        found = await supervisor.on_disk(supervisor.store.certificate, entry.id, run)
    if found and not found.complete and run < entry.state.run:
        return await supervisor.certify_earlier(entry, found)
    return found


async def history(runs: Runs, entry: Entry) -> list[HistoryEntry]:
    with _not_readable(f"the history of {entry.session.name}"):
        return await runs.supervisor.on_disk(runs.supervisor.store.history, entry.id)


@contextlib.contextmanager
def _not_readable(what: str) -> Iterator[None]:
    try:
        yield
    except records.NotReadable as error:
        raise NotReadable(f"{what} cannot be told: {error}") from error
