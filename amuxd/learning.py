"""Finds out which conversation an agent is in that chooses it itself, and whether anything was said in it."""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from amuxd import conversations
from amuxd.hosts import Home, Host, LaunchRefused
from amuxd.registry import Entry
from amuxd.store import StoreError
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE, Supervisor
from amuxd.threads import one_at_a_time

logger = logging.getLogger(__name__)

# An agent in a known conversation may go over to another, which is soon enough noticed as it prints on.
LOOK_AGAIN = 3.0
DEADLINE = 10.0
# Somebody waits for its end.
LAST_DEADLINE = 2.0
# Of those that are looked at again: a home that does not answer holds up a thread for each.
AT_ONCE = 8


class Learning:
    def __init__(self, supervisor: Supervisor, host: Host) -> None:
        self._supervisor = supervisor
        self._host = host
        self._to_be_looked_at: set[str] = set()
        self._few = asyncio.Semaphore(AT_ONCE)

    def printed(self, entry: Entry) -> None:
        """An agent that prints may have begun a conversation, and one that does not has nothing new."""
        concerns = conversations.is_to_be_found(entry) or _may_be_said(entry)
        if concerns and entry.id not in self._to_be_looked_at:
            self._to_be_looked_at.add(entry.id)
            self._supervisor.spawn(self._look_soon(entry))

    async def _look_soon(self, entry: Entry) -> None:
        if entry.state.conversation_id:
            await asyncio.sleep(LOOK_AGAIN)
        # What it prints from now on may be of another one again.
        self._to_be_looked_at.discard(entry.id)
        await self._look(entry)
        await self.look_what_was_said(entry)

    async def look_a_last_time(self, entry: Entry, patience: float) -> None:
        """Before it is ended, or left alone, which nothing that goes wrong here must keep from it."""
        try:
            await self._look(entry, min(patience, LAST_DEADLINE))
            await self.look_what_was_said(entry, patience)
        except Exception:
            logger.exception("the conversation of %s could not be looked for", entry.session.name)

    async def look_what_was_said(self, entry: Entry, patience: float = math.inf) -> None:
        """Written down, for its file may be gone by the time that it is to go on."""
        if not _may_be_said(entry):
            return
        conversation, said = entry.state.conversation_id, None
        try:
            said = await self._was_said(entry, conversation, patience)
        except Exception:
            # Whoever ends it, or settles its end, goes on with that.
            logger.exception("%s: what was said was not found out", entry.session.name)
        if said is False and not _is_to_be_looked_into(entry, conversation):
            # It is known already, or was not seen from the beginning: what was said may be gone.
            return
        try:
            await self._write_said(entry, conversation, said)
        except StoreError as error:
            logger.error("%s: what was said is not written: %s", entry.session.name, error)

    def look_again(self, entry: Entry) -> None:
        """Soon, for by the time that it is to go on its agent may have removed what was said."""
        if _waits_for_a_look(entry):
            self._supervisor.spawn(self._look_until_known(entry))

    async def _look_until_known(self, entry: Entry) -> None:
        pause = RETRY_PAUSE
        while _waits_for_a_look(entry):
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            if self._supervisor.registry.get(entry.id) is not entry:
                return
            async with self._few:
                await self.look_what_was_said(entry)

    async def _write_said(self, entry: Entry, conversation: str, said: bool | None) -> None:
        def is_true_still() -> bool:
            is_news = entry.state.said is not said and _may_be_said(entry)
            return is_news and entry.state.conversation_id == conversation

        not_looked_into = conversation if said is None else ""
        changes = {"said": said, "not_looked_into": not_looked_into}
        if await self._supervisor.amend_if(entry, is_true_still, **changes) and not_looked_into:
            self.look_again(entry)

    async def learn_said(self, entry: Entry, is_true_still: Callable[[], bool]) -> None:
        if _may_be_said(entry):
            await self._supervisor.amend_if(entry, is_true_still, said=True)

    async def _was_said(self, entry: Entry, conversation: str, patience: float = math.inf) -> bool | None:
        """None: it cannot be found out now."""
        within = min(patience, LAST_DEADLINE)
        try:
            async with asyncio.timeout(within):
                surroundings = await self._host.environment(conversations.with_environment(entry))
                look = partial(conversations.was_said, entry, conversation, surroundings)
                said = await one_at_a_time(_files_of(entry), look, within)
        except (TimeoutError, LaunchRefused, OSError) as error:
            why = str(error) or "in time"
            logger.warning("%s: what was said was not found out: %s", entry.session.name, why)
            return None
        if said is None and not _is_to_be_looked_into(entry, conversation):
            # It is made with the first word. Of a look that comes late it may not be mounted yet.
            return False
        return said

    async def why_unanswered(self, entry: Entry) -> str:
        await self.look_what_was_said(entry)
        return conversations.why_unanswered(entry)

    async def why_lost(self, entry: Entry) -> str:
        """Why its conversation cannot go on, as a look at what is kept of it tells; empty where it can."""
        if not conversations.is_kept(entry):
            return ""
        conversation = entry.state.conversation_id
        try:
            async with asyncio.timeout(DEADLINE):
                surroundings = await self._host.environment(conversations.with_environment(entry))
                look = partial(conversations.why_lost, entry, surroundings)
                lost = await one_at_a_time(_files_of(entry), look, DEADLINE)
        except TimeoutError:
            return f"what is kept of its conversation could not be looked for within {DEADLINE:.0f} s"
        except (LaunchRefused, OSError) as error:
            return str(error)
        before, entry.found_lost = entry.lost, (conversation, lost)
        if entry.lost != before:
            self._supervisor.changed(entry, "Resumable")
        return lost

    async def _look(self, entry: Entry, deadline: float | None = None) -> str:
        found = ""
        if not conversations.is_to_be_found(entry):
            return found
        try:
            home, run = entry.home, entry.state.run
            if home and entry.agent and entry.agent.kept:
                # Its files may be on a disk that does not answer, which is nobody else's trouble.
                question = partial(conversations.find, home.command.pid, entry.agent.kept)
                patience = DEADLINE if deadline is None else deadline
                found = await one_at_a_time(_files_of(entry), question, patience)
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
        changes: dict[str, Any] = {"conversation_id": conversation}
        if conversations.is_kept(entry) and conversation != entry.state.conversation_id:
            changes["said"] = await self._was_said(entry, conversation)
        learnt = await self._supervisor.amend_if(entry, is_true_still, *properties, **changes)
        if learnt:
            logger.info(
                "%s: in conversation %s", entry.session.name, conversation, extra={"AMUX_SESSION": entry.id}
            )
        return learnt


def _files_of(entry: Entry) -> str:
    """Of one session: what another's home does not answer is not its trouble."""
    return f"conversation of {entry.id}"


def _is_to_be_looked_into(entry: Entry, conversation: str) -> bool:
    return bool(conversation) and entry.state.not_looked_into == conversation


def _waits_for_a_look(entry: Entry) -> bool:
    """Its agent may have told meanwhile that something was said."""
    return _may_be_said(entry) and _is_to_be_looked_into(entry, entry.state.conversation_id)


def _may_be_said(entry: Entry) -> bool:
    """As far as is known nothing was, yet."""
    return conversations.is_kept(entry) and bool(entry.state.conversation_id) and not entry.state.said


def _is_same_run(entry: Entry, run: int, home: Home) -> bool:
    """One that has ended since was in its conversation all the same; one that was brought back may not be."""
    return entry.state.run == run and entry.home in (None, home)
