from hypothesis import given
from hypothesis import strategies as st

from amuxd.cli.text import cut, harmless, padded, width


def test_control_characters_never_reach_the_terminal() -> None:
    assert harmless("a\x1b[31mb\tc\nd\x07\x9b") == "a\\e[31mb\\tc\\nd\\x07\\x9b"


def test_text_that_turns_around_is_shown_for_what_it_is() -> None:
    assert harmless("a\u202eb") == "a\\u202eb"


def test_emoji_joined_of_several_stay_whole() -> None:
    assert harmless("👩\u200d💻 ok\u00a0") == "👩\u200d💻 ok\u00a0"


@given(st.text())
def test_harmless_text_is_one_line_without_escapes(text: str) -> None:
    shown = harmless(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert len(shown.splitlines()) <= 1


def test_width_is_what_a_terminal_shows() -> None:
    assert [width(text) for text in ("abc", "日本", "🦀", "e\u0301", "❤\ufe0f")] == [3, 4, 2, 1, 2]


@given(st.text(st.characters(exclude_categories=["C", "M"]), max_size=40), st.integers(1, 30))
def test_cut_text_fits(text: str, limit: int) -> None:
    shown = cut(text, limit)
    assert width(shown) <= limit
    assert shown == text or shown.endswith("…")
    assert width(padded(shown, limit)) == limit
