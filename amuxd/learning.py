"""Finds out which conversation an agent is in that chooses it itself."""

import logging
from collections.abc import Callable

from amuxd import conversations
from amuxd.hosts import Home
from amuxd.registry import Entry
from amuxd.store import StoreError
from amuxd.supervisor import Supervisor

logger = logging.getLogger(__name__)


class Learning:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._looked_at: set[str] = set()

    def printed(self, entry: Entry) -> None:
        """An agent that prints may have begun a conversation, and one that does not has nothing new."""
        if conversations.is_to_be_found(entry) and entry.id not in self._looked_at:
            self._looked_at.add(entry.id)
            self._supervisor.spawn(self._look(entry))

    async def _look(self, entry: Entry) -> None:
        try:
            home, run = entry.home, entry.state.run
            if home and entry.agent and entry.agent.kept:
                question = conversations.find, home.command.pid, entry.agent.kept
                if found := await self._supervisor.on_disk(*question):
                    await self._learn(entry, found, lambda: _is_same_run(entry, run, home))
        except StoreError as error:
            # It prints again, and is then looked at again.
            logger.error("the conversation of %s could not be written down: %s", entry.session.name, error)
        finally:
            self._looked_at.discard(entry.id)

    async def is_in(self, entry: Entry, conversation: str) -> bool:
        """Agents hold conversations of their own as well, to find a title say, which they do not keep."""
        known = entry.state.conversation_id
        if conversation == known or not (entry.home and entry.agent and entry.agent.kept):
            return True
        question = conversations.written, entry.home.command.pid, entry.agent.kept
        written = await self._supervisor.on_disk(*question)
        return not written or (conversation in written and known not in written)

    async def learn(self, entry: Entry, conversation: str, run: int) -> bool:
        """False: that run is over, and what it was in is not what the next one is in."""
        return await self._learn(entry, conversation, lambda: entry.state.run == run)

    async def _learn(self, entry: Entry, conversation: str, is_true_still: Callable[[], bool]) -> bool:
        properties = "Command", "Resumable"
        learnt = await self._supervisor.amend_if(
            entry, is_true_still, *properties, conversation_id=conversation
        )
        if learnt:
            logger.info(
                "%s: in conversation %s", entry.session.name, conversation, extra={"AMUX_SESSION": entry.id}
            )
        return learnt


def _is_same_run(entry: Entry, run: int, home: Home) -> bool:
    """One that has ended since was in its conversation all the same; one that was brought back may not be."""
    return entry.state.run == run and entry.home in (None, home)
