"""Removes the sessions that have been kept long enough."""

import logging

from amuxd.errors import AmuxError, ConfigurationError
from amuxd.registry import Entry
from amuxd.retention import is_over
from amuxd.runs import Runs
from amuxd.states import Liveness
from amuxd.supervisor import now

logger = logging.getLogger(__name__)


async def clean(runs: Runs, dry_run: bool) -> list[str]:
    """The ids of those that are gone, or would be."""
    if runs.settings.error:
        # It may say that just these are to be kept.
        raise ConfigurationError(
            f"nothing is removed while the configuration is wrong: {runs.settings.error}"
        )
    registry = runs.supervisor.registry
    over = [entry for entry in registry if _is_over(runs, entry)]
    if dry_run:
        return [entry.id for entry in over]
    removed = []
    for entry in over:
        async with entry.operation:
            # Somebody may have begun it again, or removed it, while the ones before it went.
            if registry.get(entry.id) is not entry or not _is_over(runs, entry):
                continue
            try:
                await runs.discard(entry)
            except AmuxError as error:
                logger.error("%s stays: %s", entry.session.name, error)
            else:
                removed.append(entry.id)
    return removed


def _is_over(runs: Runs, entry: Entry) -> bool:
    """What somebody looks at is not taken away under him, and what may be alive is not ended."""
    if entry.attached or entry.session_alive is Liveness.UNKNOWN:
        return False
    state, resumable = entry.state, not entry.why_not_resumable
    retention = runs.settings.retention
    return is_over(retention, state.state, resumable, state.state_changed_at, now())
