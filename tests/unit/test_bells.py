import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.bells import LONGEST_CUT, LONGEST_OSC, Bells

# Output, and what it calls for.
PIECES: list[tuple[bytes, list[str]]] = [
    (b"", []),
    (b"hello\r\n", []),
    (b"\x07", [""]),
    (b"\x1b[31mred\x1b[0m", []),
    # Inside of a control sequence a bell rings; inside of a string it ends it or is part of it.
    (b"\x1b[3\x071m", [""]),
    (b"\x1b\x07M", [""]),
    (b"\x1b]0;a title\x07", []),
    (b"\x1b]0;a title\x1b\\", []),
    (b"\x1b]2;half a title\x1b[0m\x07", [""]),
    (b"\x1b]0;cancelled\x18\x07", [""]),
    (b"\x1bP1$r\x07q\x1b\\", []),
    (b"\x1bPcancelled\x1a\x07", [""]),
    (b"\x1bPtmux;\x1b\x1b]9;inside\x07", ["inside"]),
    (b"\x1b_application\x07\x1b\\", []),
    (b"\x1bkscreen's title\x07\x1b\\", []),
    (b"\x1b]9;come here\x07", ["come here"]),
    (b"\x1b]9;come \xc3\xbc\x1b\\", ["come ü"]),
    (b"\x1b]9;come \xff\x07", ["come \ufffd"]),
    (b"\x1b]9;2024 was a year\x07", ["2024 was a year"]),
    (b"\x1b]9;4;1;50\x07", []),
    (b"\x1b]9;4\x07", []),
    (b"\x1b]9;9;/home\x1b\\", []),
    (b"\x1b]9\x07", []),
    (b"\x1b]9;\x07", []),
    (b"\x1b]99;;kitty\x1b\\", []),
    (b"\x1b]777;notify;Build;it failed\x07", ["Build: it failed"]),
    (b"\x1b]777;notify;Build\x1b\\", ["Build"]),
    (b"\x1b]777;other;Build\x07", []),
    (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", []),
    (b"\x1b\x1b]9;twice\x07", ["twice"]),
    (b"\x1b(B\x07", [""]),
    (b"\x1b(\x07B", [""]),
    (b"\x1b[3\x1b]9;in between\x07", ["in between"]),
    (b"\x1b[3\x18\x07", [""]),
]


def heard(*pieces: bytes) -> list[str]:
    bells = Bells()
    return [call for piece in pieces for call in bells.feed(piece)]


def test_each_piece_calls_for_what_it_should() -> None:
    for data, calls in PIECES:
        assert heard(data) == calls, data


@given(st.lists(st.sampled_from(PIECES)), st.data())
def test_wherever_the_output_is_cut(pieces: list[tuple[bytes, list[str]]], data: st.DataObject) -> None:
    output = b"".join(piece for piece, _ in pieces)
    expected = [call for _, calls in pieces for call in calls]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=8)))
    parts = [output[a:b] for a, b in zip([0, *cuts], [*cuts, len(output)], strict=True)]
    assert heard(*parts) == expected
    assert heard(*(bytes([byte]) for byte in output)) == expected


@given(st.binary(), st.data())
def test_any_bytes_cut_anywhere_say_the_same(output: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(output)))
    assert heard(output[:cut], output[cut:]) == heard(output)


def test_a_string_is_ended_by_its_end_alone_as_in_a_terminal() -> None:
    """A clipboard or an image may be of any size, and the bell that ends it is no call."""
    assert heard(b"\x1b]52;c;", b"x" * (LONGEST_OSC + 1), b"x\x07\x07") == [""]
    assert heard(b"\x1b]0;", b"x" * (LONGEST_OSC + 1), b"\x1b[0m\x07") == [""]
    assert heard(b"\x1b]9;" + b"x" * LONGEST_OSC, b"yyyy\x07") == ["x" * (LONGEST_OSC - 2)]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # The first bell may be the end of a title.
        ([b"le\x07\x07"], [""]),
        ([b"l", b"e", b"\x07", b"\x07"], [""]),
        ([b"le\x1b\\\x07"], [""]),
        ([b"a line\nand another\x07"], [""]),
        ([b"\x1b]9;whole\x07"], ["whole"]),
        # No title is as long as this.
        ([b"x" * (LONGEST_CUT + 1) + b"\x07"], [""]),
        ([b"x" * LONGEST_CUT, b"x", b"\x07"], [""]),
    ],
)
def test_output_without_its_beginning(pieces: list[bytes], calls: list[str]) -> None:
    bells = Bells(cut_off=True)
    assert [call for piece in pieces for call in bells.feed(piece)] == calls


# Where a bell rings inside of a sequence, it has rung before that is whole.
WHOLE = [piece for piece, _ in PIECES if not piece.startswith((b"\x1b\x07", b"\x1b(\x07"))]


@given(st.lists(st.sampled_from(WHOLE)), st.data())
def test_what_is_unfinished_can_be_heard_again(pieces: list[bytes], data: st.DataObject) -> None:
    output = b"".join(pieces)
    cut = data.draw(st.integers(0, len(output)))
    bells = Bells()
    before = bells.feed(output[:cut])
    assert before + heard(output[cut - bells.unfinished :]) == heard(output)


INVISIBLE = [
    *(b"", b"\r\n \t\b", b"\x07", b"\x1b]0;a title\x07", b"\x1b]9;come here\x1b\\", b"\x1bPq#0\x1b\\"),
    *(b"\x1b[31;1m", b"\x1b[?25l", b"\x1b[2\x07J", b"\x1b(B", b"\x1b)0", b"\x1b7", b"\x1b>", b"\x7f"),
]


@given(st.lists(st.sampled_from(INVISIBLE)), st.sampled_from([b"", b"x", "ü".encode()]), st.data())
def test_what_can_be_seen_of_it(invisible: list[bytes], visible: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(invisible)))
    output = b"".join([*invisible[:place], visible, *invisible[place:]])
    cut = data.draw(st.integers(0, len(output)))
    bells = Bells()
    bells.feed(output[:cut])
    bells.feed(output[cut:])
    assert bells.shown == (visible != b"")


@given(st.sampled_from(PIECES), st.binary(max_size=9).filter(lambda b: not set(b) & set(b"\x07\x1b\x9c")))
def test_what_comes_after_the_last_call(piece: tuple[bytes, list[str]], more: bytes) -> None:
    bells = Bells()
    bells.feed(b"first\x07" + piece[0] + b"\x07" + more)
    assert bells.since_call == len(more)
