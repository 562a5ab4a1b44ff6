"""What an agent is given after its own words: options, for every start, and questions, asked once."""

from collections.abc import Sequence
from dataclasses import dataclass

from amuxd.lengths import shortened

_LONGEST = 40


@dataclass(frozen=True)
class Questions:
    """How an agent is asked something on its command line.

    as_words: a word that is no option asks, and does not name a directory, say.
    options: the next word is what they ask.
    switches: the next word is not theirs, or what they ask is all that the agent is started for.
    commands: what else its program can be told to do, with options of its own.
    """

    as_words: bool = True
    options: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()

    def left_out_of(self, given: Sequence[str]) -> list[str]:
        """Without what certainly asks."""
        words = list(given)
        while self.as_words and words and not _is_option(words[0]):
            del words[0]
        kept: list[str] = []
        before = ""
        for word in words:
            if before not in self.options and word.partition("=")[0] not in self.options:
                kept.append(word)
            before = word
        return kept

    def why_not_by_itself(self, given: Sequence[str]) -> str:
        """Why nobody but a person can have it go on: a word that may ask. Empty where there is none."""
        if given and given[0] in self.commands:
            return _may_ask(given[0])
        before = ""
        for word in self.left_out_of(given):
            takes_it = _is_option(before) and "=" not in before and before not in self.switches
            if not _is_option(word) and not takes_it and (self.as_words or before in self.switches):
                return _may_ask(word)
            before = word
        return ""


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _may_ask(word: str) -> str:
    return f"{shortened(word, _LONGEST)!r}, which it was given, may be a question, and would be asked again"
