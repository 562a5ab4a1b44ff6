"""What a log says to whoever listens to it, and to whoever comes after them."""

import os
import time
from pathlib import Path

import pytest

from amuxd.attending import LONGEST_PIECE, Output
from amuxd.attention import AFTERGLOW


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "output.log"
    path.write_bytes(b"")
    return path


def add(log: Path, output: bytes, later: int = 0) -> None:
    """So many microseconds after the last that was heard."""
    with log.open("ab") as file:
        file.write(output)
    moment = log.with_name("heard").stat().st_mtime_ns + later * 1000
    os.utime(log, ns=(moment, moment))


def listener(log: Path) -> Output:
    output = Output(log)
    output.mark()
    return output


def test_what_was_printed_before_anybody_listened_calls_nobody(log: Path) -> None:
    log.write_bytes(b"\a")
    output = Output(log)
    assert (output.left_at, output.listen()) == (None, [])


def test_what_was_printed_while_nobody_listened_is_heard_once(log: Path) -> None:
    first = listener(log)
    add(log, b"\a")
    assert first.listen() == [""]
    first.mark()
    add(log, b"on\x1b]9;come\a")
    second = Output(log)
    assert second.catch_up() == (True, ["come"])
    second.mark()
    assert Output(log).catch_up() == (False, [])


def test_what_was_heard_and_not_dealt_with_is_heard_again(log: Path) -> None:
    """amuxd was killed between the two."""
    first = listener(log)
    add(log, b"\a")
    assert first.listen_and_mark(waits=False) == [""]
    assert Output(log).catch_up() == (False, [""])
    add(log, b"on")
    assert first.listen_and_mark(waits=True) == []
    assert Output(log).catch_up() == (True, [""])


@pytest.mark.parametrize(
    ("output", "later", "calls"),
    [
        # The question was being drawn.
        (b"\aWhich? ", AFTERGLOW, [""]),
        # Nobody knows when it rang; but what it printed after it came after it.
        (b"\aWhich? ", AFTERGLOW + 1, []),
        (b"done\a\r\n\x1b[?25h\x1b]0;title\a", AFTERGLOW + 1, [""]),
        (b"\aon\x1b]9;come\x1b\\\x1b[0m\r\n", AFTERGLOW + 1, ["", "come"]),
        (b"nothing", AFTERGLOW + 1, []),
    ],
)
def test_what_was_printed_after_a_call_ends_it(
    log: Path, output: bytes, later: int, calls: list[str]
) -> None:
    listener(log)
    add(log, output, later)
    assert Output(log).catch_up() == (True, calls)


def test_a_call_that_is_cut_in_two_is_heard_whole(log: Path) -> None:
    first = listener(log)
    add(log, b"\x1b]0;a tit")
    assert first.listen_and_mark(waits=False) == []
    add(log, b"le\a\x1b]9;co")
    second = Output(log)
    assert second.catch_up() == (False, [])
    second.mark()
    add(log, b"me\a")
    assert Output(log).catch_up() == (False, ["come"])


def test_what_nobody_sees_is_no_sign_of_life(log: Path) -> None:
    output = listener(log)
    for invisible in (b"\x1b]0;[ ! ] a title\a", b"\x1b[?25l", b"\r\n"):
        add(log, invisible)
        output.listen()
        assert not output.shown
    add(log, b"x")
    output.listen()
    assert output.shown
    # In a flood there is more than is read.
    add(log, b"x" * LONGEST_PIECE + b"\x1b]0;" + b"t" * LONGEST_PIECE)
    output.listen()
    assert output.shown


def test_a_log_that_was_put_aside_is_heard_to_its_end(log: Path) -> None:
    first = listener(log)
    add(log, b"x" * 100)
    assert first.listen_and_mark(waits=False) == []
    add(log, b"\aon")
    log.rename(log.with_name("output.log.1"))
    log.write_bytes(b"")
    add(log, b"")
    assert Output(log).catch_up() == (True, [""])
    # Much later, what came after it ends it.
    add(log, b"", AFTERGLOW + 1)
    assert Output(log).catch_up() == (True, [])


@pytest.mark.parametrize("junk", ["", "nonsense", "99999999999999999999"])
def test_a_mark_that_says_nothing(log: Path, junk: str) -> None:
    log.with_name("heard").write_text(junk)
    log.write_bytes(b"x")
    printed, calls = Output(log).catch_up()
    assert (printed, calls) == (True, [])


def test_of_a_flood_the_end_is_heard_and_no_half_title(log: Path) -> None:
    output = listener(log)
    add(log, b"\a" + b"x" * LONGEST_PIECE + b"\x1b]0;" + b"t" * 100 + b"\a" + b"x" * (LONGEST_PIECE - 50))
    assert output.listen() == []


def test_output_that_is_not_there_calls_nobody(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    output = Output(log)
    assert output.listen() == []
    log.write_bytes(b"\x1b]9;half")
    assert output.listen() == []
    log.rename(tmp_path / "output.log.1")
    assert output.listen() == []
    log.write_bytes(b" and half\x07")
    assert output.listen() == ["half and half"]


def test_no_directory_no_mark(log: Path) -> None:
    output = listener(log)
    log.unlink()
    log.with_name("heard").unlink()
    log.parent.rmdir()
    output.mark()
    output.look_away(time.time_ns())
    assert not log.parent.exists()


@pytest.mark.parametrize("rest", [b"7x", b"[2J", b"(Bx"])
def test_a_bell_in_a_half_sequence_rings_once(log: Path, rest: bytes) -> None:
    first = listener(log)
    add(log, b"hi\x1b\a")
    assert first.listen() == [""]
    first.mark()
    add(log, rest)
    assert Output(log).listen() == []


def begin_anew(log: Path, output: bytes) -> None:
    """Deleted while its writer holds it, so that the new one is another file."""
    with log.open("rb"):
        log.unlink()
        log.write_bytes(output)


@pytest.mark.parametrize("before", [b"ready", b"much more than comes after it"])
def test_a_log_that_was_deleted_and_begun_anew_is_heard_from_its_beginning(log: Path, before: bytes) -> None:
    first = listener(log)
    add(log, before)
    assert first.listen_and_mark(waits=False) == []
    begin_anew(log, b"\x1b]9;come\a and more")
    # The same for the next amuxd.
    for output in (Output(log), first):
        assert output.listen() == ["come"]
        assert output.listen() == []


def test_what_was_put_aside_long_ago_is_not_heard_again(log: Path) -> None:
    first = listener(log)
    add(log, b"x" * 100 + b"\a")
    assert first.listen() == [""]
    log.rename(log.with_name("output.log.1"))
    log.write_bytes(b"on and on")
    assert first.listen() == []
    begin_anew(log, b"anew")
    assert first.listen() == []


@pytest.mark.parametrize("rotated", [False, True])
def test_a_mark_that_names_no_file_is_an_older_amuxds(log: Path, rotated: bool) -> None:
    log.write_bytes(b"heard\abefore\a")
    log.with_name("heard").write_text(f"{6:020d}\n")
    if rotated:
        log.rename(log.with_name("output.log.1"))
        log.write_bytes(b"on")
    assert Output(log).listen() == [""]
