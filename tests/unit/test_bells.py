from hypothesis import given
from hypothesis import strategies as st

from amuxd.bells import LONGEST_OSC, Bells

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


def test_a_string_that_never_ends_does_not_swallow_what_follows() -> None:
    assert heard(b"\x1b]0;", b"x" * (LONGEST_OSC + 1), b"\x07") == [""]
