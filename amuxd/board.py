"""Which notifications there should be: pure, and always few."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# So many within this time, in seconds, and they become one.
MANY = 3
TOGETHER = 2.0
SUMMARY = "summary"
_NAMED = 6

LOW, NORMAL, CRITICAL = 0, 1, 2
ATTENTION = "attention"
# What a person can be told of, and how much it matters.
URGENCY: Mapping[str, int] = {
    "failed": CRITICAL,
    ATTENTION: NORMAL,
    "orphaned": NORMAL,
    "stale": NORMAL,
    "completed": LOW,
}


@dataclass(frozen=True)
class Note:
    kind: str
    name: str
    title: str
    body: str
    urgency: int
    actions: tuple[tuple[str, str], ...] = ()


Changes = dict[str, Note | None]


class Board:
    def __init__(self) -> None:
        self._alone: dict[str, Note] = {}
        self._together: dict[str, Note] = {}
        self._recent: dict[str, float] = {}

    def kind(self, key: str) -> str:
        note = self._alone.get(key) or self._together.get(key)
        return note.kind if note else ""

    def body(self, key: str) -> str:
        note = self._alone.get(key) or self._together.get(key)
        return note.body if note else ""

    def members(self) -> dict[str, str]:
        """Of the summary: each key and its kind."""
        return {key: note.kind for key, note in self._together.items()}

    def remember(self, alone: dict[str, str], together: dict[str, str]) -> None:
        """What an earlier amuxd left standing, of which only the kinds are known still."""
        self._alone = {key: _bare(kind) for key, kind in alone.items()}
        self._together = {key: _bare(kind) for key, kind in together.items()}

    def put(self, key: str, note: Note, at: float) -> Changes:
        if key in self._together:
            self._together[key] = note
            return self._summary()
        if key in self._alone:
            self._alone[key] = note
            return {key: note}
        self._recent = {k: then for k, then in self._recent.items() if at - then < TOGETHER}
        self._recent[key] = at
        if len(self._recent) <= MANY:
            self._alone[key] = note
            return {key: note}
        self._together[key] = note
        gone = [k for k in self._recent if k in self._alone]
        for k in gone:
            self._together[k] = self._alone.pop(k)
        return {**dict.fromkeys(gone), **self._summary()}

    def take(self, key: str) -> Changes:
        self._recent.pop(key, None)
        if self._alone.pop(key, None):
            return {key: None}
        if self._together.pop(key, None):
            return self._summary()
        return {}

    def closed(self, key: str) -> None:
        """By the person, who has seen it."""
        self._alone.pop(key, None)
        if key == SUMMARY:
            self._together.clear()

    def _summary(self) -> Changes:
        return {SUMMARY: _summed(self._together.values()) if self._together else None}


def _bare(kind: str) -> Note:
    return Note(kind, "", "", "", NORMAL)


def _summed(notes: Iterable[Note]) -> Note:
    notes = list(notes)
    counts: dict[str, int] = {}
    for note in notes:
        counts[note.kind] = counts.get(note.kind, 0) + 1
    title = ", ".join(f"{count} {_WORDS.get(kind, kind)}" for kind, count in sorted(counts.items()))
    names = [note.name for note in notes if note.name]
    body = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        body += f" and {len(names) - _NAMED} more"
    urgency = max(note.urgency for note in notes)
    return Note("summary", "", f"amux: {title}", body, urgency, (("default", "Show"), ("list", "Show them")))


_WORDS = {"attention": "waiting for you"}
