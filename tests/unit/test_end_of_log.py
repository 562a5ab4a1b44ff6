"""The mark that says that a log is whole, and that nobody is to see."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.cli.follow import Printed, blocks, opened
from amuxd.logs import (
    END_OF_LOG,
    Ending,
    Place,
    aside_of,
    end_of,
    last_lines,
    shell_mark,
    take_out,
    take_out_ends,
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"printed\r\n", b"printed\r\n"),
        (b"printed\r\n" + END_OF_LOG[:-1], b"printed\r\n" + END_OF_LOG[:-1]),
        (END_OF_LOG, b""),
        (b"printed\r\n" + END_OF_LOG, b"printed\r\n"),
        (b"x" * 5000 + END_OF_LOG + END_OF_LOG, b"x" * 5000),
        (END_OF_LOG + b"by a child that stayed", b"by a child that stayed"),
        (b"printed\r\n" + END_OF_LOG + b"echoed" + END_OF_LOG + b"\r\n", b"printed\r\nechoed\r\n"),
    ],
)
def test_only_the_mark_is_taken_out(tmp_path: Path, before: bytes, after: bytes) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(before)
    take_out_ends(log)
    assert log.read_bytes() == after


@pytest.mark.parametrize("split", range(len(END_OF_LOG) + 1))
def test_it_lies_over_the_place_where_a_log_was_put_aside(tmp_path: Path, split: int) -> None:
    log, aside = tmp_path / "output.log", tmp_path / "output.log.1"
    log.write_bytes(b"printed\r\n")
    ending = Ending(log)
    assert not ending.has_come()
    whole = b"more\r\n" + END_OF_LOG
    cut = len(whole) - split
    with log.open("ab") as file:
        file.write(whole[:cut])
    assert ending.has_come() == (split == 0)
    log.rename(aside)
    assert not ending.has_come()
    log.write_bytes(whole[cut:])
    assert ending.has_come() == (split > 0)
    ending.close()
    take_out_ends(log)
    assert (aside.read_bytes(), log.read_bytes()) == (b"printed\r\nmore\r\n", b"")


@pytest.mark.parametrize("put_aside", [0, 5, 1_000_000, 2_000_010, 2_000_030, 2_900_000, 4_000_000])
def test_it_is_taken_out_however_much_came_after_it(tmp_path: Path, put_aside: int) -> None:
    log = tmp_path / "output.log"
    much = b"".join(b"%d\r\n" % number for number in range(1_000_000))[:2_000_000]
    log.write_bytes(much)
    since = end_of(log)
    whole = much + b"last words" + END_OF_LOG + much
    log.write_bytes(whole)
    if put_aside:
        # The same file, as far as it was full; what came after it is in another.
        log.rename(aside_of(log))
        os.truncate(aside_of(log), put_aside)
        log.write_bytes(whole[put_aside:])
    take_out_ends(log, since)
    left = (aside_of(log).read_bytes() if put_aside else b"") + log.read_bytes()
    assert left == much + b"last words" + much


def test_marks_that_a_program_prints_itself_hold_nobody_up(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(END_OF_LOG * 100_000)
    take_out_ends(log, Place())
    assert END_OF_LOG in log.read_bytes()


def test_it_is_found_however_much_came_after_it(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"of an earlier run " + END_OF_LOG)
    ending = Ending(log)
    assert not ending.has_come()
    with log.open("ab") as file:
        file.write(b"x" * 200_000 + END_OF_LOG[:7])
        file.flush()
        assert not ending.has_come()
        file.write(END_OF_LOG[7:] + b"x" * 200_000)
    assert ending.has_come()
    ending.close()


def test_no_log_has_no_end(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    ending = Ending(log)
    assert not ending.has_come()
    take_out_ends(log)
    assert list(tmp_path.iterdir()) == []
    log.write_bytes(END_OF_LOG)
    assert ending.has_come()
    ending.close()


@given(
    st.lists(st.sampled_from([b"text", b"\x1b", END_OF_LOG[:9], END_OF_LOG, b"\x1b[1m"])), st.integers(1, 30)
)
def test_whoever_reads_does_not_see_it(parts: list[bytes], size: int) -> None:
    output = b"".join(parts)
    printed = Printed()
    pieces = [output[at : at + size] for at in range(0, len(output), size)]
    shown = b"".join(printed.of(pieces)) + printed.rest()
    assert shown == output.replace(END_OF_LOG, b"")


def test_it_is_not_counted_as_a_line(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"one\r\ntwo\r\nthree\r\n" + END_OF_LOG)
    assert last_lines(log, 2) == ["two", "three"]
    printed = Printed()
    assert b"".join(printed.of(blocks(opened(log, 2)[0]))) + printed.rest() == b"two\r\nthree\r\n"


SHELL = shell_mark("abc", 3)


def split_over(log: Path, output: bytes, at: int) -> None:
    aside_of(log).write_bytes(output[:at])
    log.write_bytes(output[at:])


@pytest.mark.parametrize("at", [0, 7, 9, 20, 70, 80])
def test_the_last_lines_before_a_shell_opened(tmp_path: Path, at: int) -> None:
    log = tmp_path / "output.log"
    # What the command printed may be the log of another run, and the shell may print this one's.
    split_over(log, b"one\r\ntwo" + shell_mark("abc", 2) + b"\r\nthree" + SHELL + b"$ on" + SHELL, at)
    assert last_lines(log, before=SHELL) == ["one", "two", "three"]
    assert last_lines(log, 1, SHELL) == ["three"]
    assert last_lines(log, 1, shell_mark("abc", 4)) == ["three$ on"]


def test_much_came_after_it_and_before(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    much = b"".join(b"%d\r\n" % number for number in range(400_000))
    log.write_bytes(much + SHELL + much)
    assert last_lines(log, 2, SHELL) == ["399998", "399999"]
    log.write_bytes(SHELL + much)
    assert last_lines(log, 2, SHELL) == []


@pytest.mark.parametrize("at", range(0, len(SHELL) + 20, 3))
def test_it_is_taken_out_of_the_midst(tmp_path: Path, at: int) -> None:
    log = tmp_path / "output.log"
    split_over(log, b"printed by it" + SHELL + b"and by the shell", at)
    os.utime(log, ns=(1, 2))
    take_out(log, shell_mark("abc", 4))
    assert SHELL in aside_of(log).read_bytes() + log.read_bytes()
    take_out(log, SHELL)
    assert aside_of(log).read_bytes() + log.read_bytes() == b"printed by itand by the shell"
    assert log.stat().st_mtime_ns == 2


def test_it_is_taken_out_of_much(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    much = b"".join(b"%d\r\n" % number for number in range(400_000))
    log.write_bytes(b"before" + SHELL + much)
    take_out(log, SHELL)
    assert log.read_bytes() == b"before" + much


def test_it_is_found_though_it_came_before_anybody_looked(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    split_over(log, b"printed" + SHELL + b"on", 12)
    ending = Ending(log, SHELL, from_start=True)
    assert ending.has_come()
    ending.close()


@pytest.mark.parametrize(
    ("after", "last"),
    [
        (b"", b"one\r\ntwo\r\n"),
        (END_OF_LOG, b"one\r\ntwo\r\n"),
        (b"$ ", b"two\r\n$ "),
        (b"\r\n$ " + END_OF_LOG, b"\r\n$ "),
    ],
)
def test_it_is_not_shown_either(tmp_path: Path, after: bytes, last: bytes) -> None:
    log, marks = tmp_path / "output.log", (END_OF_LOG, SHELL)
    log.write_bytes(b"one\r\ntwo\r\n" + SHELL + after)
    printed = Printed(marks)
    assert b"".join(printed.of(blocks(opened(log, 2, marks)[0]))) + printed.rest() == last
