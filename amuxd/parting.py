"""Of what runs when amuxd goes and cannot be marked suspended: said to the next amuxd in another way."""

import contextlib
import logging

from amuxd.records import LastWord
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.supervisor import Supervisor, now

logger = logging.getLogger(__name__)


class Parting:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._file = supervisor.store.last_words
        self._words: dict[str, LastWord] = {}
        self._written: dict[str, LastWord] = {}

    async def leave(self, why: str) -> None:
        """How they end then is not amuxd's to tell."""
        at = now()
        self._drop_looked_at()
        words = [
            LastWord(
                *(entry.id, entry.state.state_changed_at, at, why),
                ended_at=entry.ended_at if entry.ended.is_set() else 0,
            )
            for entry in self._supervisor.registry
            if entry.state.state is State.RUNNING and _was_watched(entry)
        ]
        words += self._words.values()
        if words:
            try:
                await self._supervisor.on_disk(self._file.write, words)
            except OSError as error:
                logger.error("that %d sessions run is written nowhere: %s", len(words), error)

    async def keep_room(self) -> None:
        await self._supervisor.on_disk(self._file.keep_room)

    async def read(self) -> None:
        """What the amuxd before this one could say in no other way."""
        self._words = {word.session_id: word for word in await self._supervisor.on_disk(self._file.read)}
        self._written = dict(self._words)

    async def forget(self) -> None:
        """Of those that have been looked at."""
        self._drop_looked_at()
        if self._words != self._written:
            words = dict(self._words)
            # What the disk refuses now is tried with the next look.
            with contextlib.suppress(OSError):
                await self._supervisor.on_disk(self._file.write, list(words.values()))
                self._written = words

    def _drop_looked_at(self) -> None:
        for session_id, word in list(self._words.items()):
            entry = self._supervisor.registry.get(session_id)
            if entry is None or not (entry.looked_in_vain or _is_to_be_told(entry, word)):
                del self._words[session_id]

    def word_of(self, entry: Entry) -> LastWord | None:
        """None also where the session was seen alive since: how it ended after that, nobody has foreseen."""
        word, state = self._words.get(entry.id), entry.state
        if word is None or word.state_changed_at != state.state_changed_at or word.at < state.alive_at:
            return None
        return word


def _was_watched(entry: Entry) -> bool:
    """To its end, which is written late: one that is parked has none to tell."""
    return entry.home is not None and not entry.looked_in_vain and not entry.parked


def _is_to_be_told(entry: Entry, word: LastWord) -> bool:
    """What is found to be over is written late, and moves with that, unless it stays."""
    return entry.home is None and not entry.parked and word.state_changed_at == entry.state.state_changed_at
