"""Finds out which conversation an agent is in that chooses it itself."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from amuxd import conversations
from amuxd.hosts import Home
from amuxd.registry import Entry
from amuxd.store import StoreError
from amuxd.supervisor import Supervisor
from amuxd.threads import alone

logger = logging.getLogger(__name__)

# An agent in a known conversation may go over to another, which is soon enough noticed as it prints on.
LOOK_AGAIN = 3.0
DEADLINE = 10.0
# Somebody waits for its end.
LAST_DEADLINE = 2.0


class Learning:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._to_be_looked_at: set[str] = set()

    def printed(self, entry: Entry) -> None:
        """An agent that prints may have begun a conversation, and one that does not has nothing new."""
        if conversations.is_to_be_found(entry) and entry.id not in self._to_be_looked_at:
            self._to_be_looked_at.add(entry.id)
            self._supervisor.spawn(self._look_soon(entry))

    async def _look_soon(self, entry: Entry) -> None:
        if entry.state.conversation_id:
            await asyncio.sleep(LOOK_AGAIN)
        # What it prints from now on may be of another one again.
        self._to_be_looked_at.discard(entry.id)
        await self._look(entry)

    async def look_a_last_time(self, entry: Entry) -> None:
        """Before it is ended, or left alone."""
        if conversations.is_to_be_found(entry):
            await self._look(entry, LAST_DEADLINE)

    async def _look(self, entry: Entry, deadline: float = DEADLINE) -> str:
        found = ""
        try:
            home, run = entry.home, entry.state.run
            if home and entry.agent and entry.agent.kept:
                # Its files may be on a disk that does not answer, which is nobody else's trouble.
                question = partial(conversations.find, home.command.pid, entry.agent.kept)
                found = await alone(question, deadline)
                if found and found != entry.state.conversation_id:
                    await self._learn(entry, found, lambda: _is_same_run(entry, run, home))
        except TimeoutError:
            logger.warning("the conversation of %s was not found in time", entry.session.name)
        except StoreError as error:
            # It prints again, and is then looked at again.
            logger.error("the conversation of %s could not be written down: %s", entry.session.name, error)
        return found

    async def is_in(self, entry: Entry, conversation: str) -> bool:
        """Agents hold conversations of their own as well, to find a title say, which they do not keep."""
        if conversation == entry.state.conversation_id or not conversations.is_to_be_found(entry):
            return True
        return await self._look(entry) in ("", conversation)

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
