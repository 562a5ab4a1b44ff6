"""What an agent is given after its own words: options, for every start, and questions, asked once."""

from collections.abc import Sequence
from dataclasses import dataclass

from amuxd.lengths import shortened

_LONGEST = 40


@dataclass(frozen=True)
class Questions:
    """How an agent is asked something on its command line.

    as_words: a word that is no option asks, and does not name a directory, say.
    options: the next word is what they ask, and the agent goes on after it.
    values: the next word is theirs. Of an option that is not known it may be a question.
    lists: all words are theirs that are no options.
    commands: what else its program can be told to do, with options of its own.
    """

    as_words: bool = True
    options: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
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
        if not self.as_words:
            return ""
        before = ""
        is_list = False
        for word in self.left_out_of(given):
            if _is_option(word):
                if self._may_hold_one(word):
                    return _may_ask(word)
                is_list = word in self.lists
            elif not is_list and before not in self.values:
                return _may_ask(word)
            before = word
        return ""

    def _may_hold_one(self, option: str) -> bool:
        """Its value is in the same word."""
        known = self.values | self.lists
        name, has_value, _ = option.partition("=")
        if option.startswith("--"):
            return bool(has_value) and name not in known
        return len(option) > len("-x") and option[: len("-x")] not in known


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _may_ask(word: str) -> str:
    return f"{shortened(word, _LONGEST)!r}, which it was given, may be a question, and would be asked again"
