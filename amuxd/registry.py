"""The sessions that amuxd holds in memory, and how a person's word for one finds it."""

import asyncio
import difflib
import secrets
import string
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from amuxd.agents import Agent, OnExit, why_unknown
from amuxd.errors import Ambiguous, InvalidName, NameTaken, NoSuchSession
from amuxd.hosts import Home
from amuxd.records import Certificate, RunState, Session
from amuxd.states import BADGE, RERUNNABLE, Liveness, Situation, State, possible

LONGEST_NAME = 255
_LETTERS = string.ascii_lowercase
_ID_LENGTH = 6
# Less of an id may be a slip of the finger, or a name that is no more.
LEAST_OF_AN_ID = 3
# How long what was asked to end may take for it, in microseconds.
LEAVING = 5 * 60_000_000
_NOT_YET = {State.CREATED, State.STARTING}
_STATE = attrgetter("state.state")


@dataclass(frozen=True)
class Waking:
    """An agent that has just begun: what is typed before it is ready is lost."""

    since: float
    log_size: int


@dataclass(eq=False)
class Entry:
    """A session, where it stands on disk, and what is known of it only while it is watched."""

    session: Session
    state: RunState
    certificate: Certificate | None = None
    agent: Agent | None = None
    home: Home | None = None
    attached: int = 0
    keeps_terminal: bool = False
    # Its run is over, and the shell that its command ran in lives on.
    shell_open: bool = False
    looked_in_vain: bool = False
    why_in_vain: str = ""
    # The conversation that the last look found lost, and why.
    found_lost: tuple[str, str] = ("", "")
    # What is not known of its agent may be in a configuration that cannot be read.
    configuration_error: str = ""
    # None: nobody has looked.
    workspace_exists: bool | None = None
    # Its run that has a place in the queue of its workspace, for all that is known; 0: none.
    queued_run: int = 0
    # What kept it from beginning when that was its turn.
    obstacle: str = ""
    activity_at: int = 0
    activity_hash: int = 0
    checked_at: int = 0
    used_at: int = 0
    # When it was last tried to be parked in vain.
    tried_at: int = 0
    # How many do something with it just now, and until when somebody may come who has asked for its terminal.
    in_hand: int = 0
    expected_until: int = 0
    waking: Waking | None = None
    # It was to come back by itself, and that has been decided against.
    stays_down: bool = False
    settling: asyncio.Task[None] | None = None
    # Tells what has happened to it, while whoever began that waits no more.
    telling: asyncio.Task[None] | None = None
    # When it was asked to end for being idle, and did not in time.
    asked_to_end_at: int = 0
    # Its run is over before its process is: that this has ended is told once it has, and how is written down.
    ends_later: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: int = 0
    # What has happened already and is tried to be written, for each who tries.
    unwritten: dict[object, str] = field(default_factory=dict)
    # Set as long as there is any of that.
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    operation: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def why_unwritten(self) -> str:
        return "; ".join(self.unwritten.values())

    def miss(self, why: Exception | str) -> None:
        """A look at it told nothing: it may live."""
        told = why.strerror if isinstance(why, OSError) else str(why)
        self.looked_in_vain, self.why_in_vain = True, told or type(why).__name__

    @property
    def situation(self) -> Situation:
        return Situation(
            self.state.state,
            self.state.run,
            stays_after_success=self.agent is not None
            and self.agent.on_exit is OnExit.STAY
            and not self.why_not_resumable,
            is_leaving=self._is_leaving,
            workspace_exists=self._has_place,
            resumable=not (self.why_not_resumable or self.lost),
        )

    @property
    def _is_leaving(self) -> bool:
        """Unless somebody has come for it since."""
        asked = self.asked_to_end_at
        return bool(asked) and self.used_at <= asked and 0 <= self.ended_at - asked < LEAVING

    @property
    def is_certified(self) -> bool:
        """With the conversation that its run was in, as far as that is known by now."""
        known = self.certificate
        return known is not None and known.complete and known.conversation_id == self.state.conversation_id

    @property
    def how_ended(self) -> str:
        """In a word or two; empty of what has not ended, or was ended and nobody knows how."""
        if self.certificate is None:
            return ""
        if (known := self.certificate.end.in_short) or self.state.state is not State.FAILED:
            return known
        return "end not known" if self.state.started_at else "could not start"

    @property
    def lacks_place(self) -> bool:
        """Whether it could begin again, were the directory there that it works in."""
        return self.state.state in RERUNNABLE and not self._has_place

    @property
    def _has_place(self) -> bool:
        if self.workspace_exists is None:
            return self.state.state is not State.ORPHANED
        return self.workspace_exists

    @property
    def why_not_resumable(self) -> str:
        """Why its conversation could not be continued, whatever state it is in; empty where it could."""
        if self.agent is not None:
            return self.agent.why_not_resumable(self.state.conversation_id)
        if self.session.agent:
            return self.why_no_agent
        return "it is no agent, and so has no conversation"

    @property
    def why_not_by_itself(self) -> str:
        """Why amux neither parks it nor brings it back, but for who asks to resume it; or empty."""
        questions = self.agent.questions if self.agent else None
        return questions.why_not_by_itself(self.session.command) if questions else ""

    @property
    def lost(self) -> str:
        """Why its conversation is lost, as the last look at what is kept of it told."""
        conversation, why = self.found_lost
        return why if conversation == self.state.conversation_id else ""

    @property
    def why_no_agent(self) -> str:
        return why_unknown(self.session.agent, self.configuration_error)

    @property
    def resumable(self) -> bool:
        """Whether resume would be granted now."""
        if self.parked:
            return not (self.why_not_resumable or self.lost)
        return "resume" in possible(self.situation) and not self.may_live

    @property
    def may_live(self) -> bool:
        """Suspended says that nobody looks, not that nothing lives."""
        suspended = self.state.state is State.SUSPENDED
        return suspended and self.session_alive in {Liveness.ALIVE, Liveness.UNKNOWN}

    @property
    def waits_for_slot(self) -> bool:
        return self.state.state is State.CREATED and self.queued_run == self.state.run

    @property
    def parked(self) -> bool:
        return self.state.parked and self.state.state is State.RUNNING

    @property
    def session_alive(self) -> Liveness:
        if self.looked_in_vain:
            return Liveness.UNKNOWN
        if self.home is not None and not self.ended.is_set():
            return Liveness.ALIVE
        if self.ends_later:
            # Nobody has looked yet, or it is about to be told.
            return Liveness.UNKNOWN
        return self._absent

    @property
    def host_alive(self) -> Liveness:
        if self.looked_in_vain:
            return Liveness.UNKNOWN
        if self.home is not None or self.keeps_terminal or self.shell_open:
            return Liveness.ALIVE
        return self._absent

    @property
    def _absent(self) -> Liveness:
        return Liveness.NONE if self.state.state in _NOT_YET or self.parked else Liveness.DEAD


@dataclass(eq=False)
class UnreadableSession:
    """A session whose files this amuxd cannot read, and so never writes: what is seen of it from outside."""

    id: str
    name: str
    why: str
    # What could be read of it.
    session: Session | None
    run: int
    home: Home | None = None
    member_fd: int = -1
    session_alive: Liveness = Liveness.UNKNOWN
    host_alive: Liveness = Liveness.UNKNOWN
    operation: asyncio.Lock = field(default_factory=asyncio.Lock)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def reason(self) -> str:
        match self.host_alive, self.session_alive:
            case Liveness.DEAD, _:
                seen = "nothing of it is alive"
            case Liveness.ALIVE, Liveness.DEAD:
                seen = "its command has ended, and can be cleared away by stop"
            case Liveness.ALIVE, _:
                seen = "it is alive, and can be stopped"
            case _:
                seen = "whether it is alive is not known"
        return f"{self.why}; {seen}"


class Registry:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self.not_readable: dict[str, UnreadableSession] = {}
        self._names_promised: set[str] = set()

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries[entry.id] = entry

    def discard(self, entry: Entry) -> None:
        self._entries.pop(entry.id, None)

    def get(self, session_id: str) -> Entry | None:
        return self._entries.get(session_id)

    def new_id(self) -> str:
        return fresh_id({*self._every, *map(_name, self._every.values())})

    @property
    def _every(self) -> dict[str, Entry | UnreadableSession]:
        return {**self._entries, **self.not_readable}

    def promise_name(self, wanted: str, command: str) -> str:
        """The name is kept for the caller until forget_promise(); without a wish it is the command's."""
        taken = self._taken()
        if wanted:
            check_name(wanted)
            if wanted in self._every:
                raise NameTaken(f"{wanted!r} is the id of a session")
            if wanted in taken:
                raise NameTaken(f"there is a session named {wanted!r} already")
            name = wanted
        else:
            base = _speakable(command.rpartition("/")[2]) or "session"
            names = (base if n == 1 else f"{base}-{n}" for n in range(1, len(taken) + 2))
            name = next(name for name in names if name not in taken)
        self._names_promised.add(name)
        return name

    def forget_promise(self, name: str) -> None:
        self._names_promised.discard(name)

    def _taken(self) -> set[str]:
        held = {e.session.name for e in self if e.state.state is not State.ARCHIVED}
        return {*held, *self._names_promised, *self._every}

    def find(self, word: str) -> Entry | UnreadableSession:
        every = self._every
        if word in every:
            return every[word]
        named = [e for e in every.values() if _name(e) == word]
        in_use = [e for e in named if not _archived(e)]
        for candidates in (in_use, named, [e for i, e in every.items() if is_beginning(word, i)]):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                which = ", ".join(sorted(f"{e.id} ({_name(e)})" for e in candidates)[:5])
                raise Ambiguous(f"{word!r} could be any of {which}")
        raise NoSuchSession(_not_found(word, every.values()))

    def counts(self) -> dict[str, int]:
        """Asked for after every transition, so it must not take long with thousands of sessions."""
        return dict(Counter(map(_STATE, self._entries.values())))

    def badge(self) -> int:
        counts = self.counts()
        return sum(counts.get(state, 0) for state in BADGE)

    def attention(self) -> list[str]:
        return [entry.id for entry in self if entry.state.attention]


def _name(entry: Entry | UnreadableSession) -> str:
    return entry.session.name if isinstance(entry, Entry) else entry.name


def _archived(entry: Entry | UnreadableSession) -> bool:
    return isinstance(entry, Entry) and entry.state.state is State.ARCHIVED


def _not_found(word: str, entries: Iterable[Entry | UnreadableSession]) -> str:
    if not word:
        return "a session has no empty name"
    words = {w.casefold(): w for e in entries for w in (e.id, _name(e))}
    near = difflib.get_close_matches(word.casefold(), words, n=1)
    return f"there is no session {word!r}" + (f"; did you mean {words[near[0]]!r}?" if near else "")


def _speakable(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()[:LONGEST_NAME]


def fresh_id(taken: Collection[str]) -> str:
    while True:
        rest = (secrets.choice(_LETTERS + string.digits) for _ in range(_ID_LENGTH - 1))
        fresh = secrets.choice(_LETTERS) + "".join(rest)
        if fresh not in taken:
            return fresh


def is_beginning(word: str, of_id: str) -> bool:
    return len(word) >= LEAST_OF_AN_ID and of_id.startswith(word)


def is_id(word: str) -> bool:
    """Also of a later amuxd's making: what an object path can bear."""
    return word.isascii() and word.isalnum()


def check_name(name: str) -> None:
    if not name.strip():
        raise InvalidName("a name must not be empty")
    if name != name.strip():
        raise InvalidName("a name must not begin or end with white space")
    if len(name) > LONGEST_NAME:
        raise InvalidName(f"a name has at most {LONGEST_NAME} characters, and this one {len(name)}")
    # Emoji are joined by characters that Python does not call printable.
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u2028\u2029" for c in name):
        raise InvalidName("a name must not have control characters or line breaks")
