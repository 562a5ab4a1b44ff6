"""Finds out which conversation an agent is in that chooses it itself."""

import logging

from amuxd import conversations
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
            if entry.home and entry.agent and entry.agent.kept:
                question = conversations.find, entry.home.command.pid, entry.agent.kept
                if found := await self._supervisor.on_disk(*question):
                    await self.learn(entry, found)
        except StoreError as error:
            # It prints again, and is then looked at again.
            logger.error("the conversation of %s could not be written down: %s", entry.session.name, error)
        finally:
            self._looked_at.discard(entry.id)

    async def learn(self, entry: Entry, conversation: str) -> None:
        await self._supervisor.amend(entry, "Command", "Resumable", conversation_id=conversation)
        logger.info(
            "%s: in conversation %s", entry.session.name, conversation, extra={"AMUX_SESSION": entry.id}
        )
