import select
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.cli import follow
from amuxd.cli.follow import Growth, blocks, opened
from amuxd.logs import END_OF_LOG, take_out_ends


def read(log: Path, lines: int | None) -> bytes:
    return b"".join(block for file in opened(log, lines) for block in blocks(file))


@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 10), st.integers(0, 60), st.integers(1, 7))
def test_last_lines_over_a_rotation(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], count: int, split: int, block: int
) -> None:
    log = tmp_path_factory.mktemp("log") / "output.log"
    output = b"\n".join(lines)
    log.with_name("output.log.1").write_bytes(output[:split])
    log.write_bytes(output[split:])
    before, follow._BLOCK = follow._BLOCK, block
    try:
        expected = output.split(b"\n")
        ends = expected and expected[-1] == b""
        kept = expected[-count - bool(ends) :] if count else []
        assert read(log, count) == b"\n".join(kept)
        assert read(log, None) == output
    finally:
        follow._BLOCK = before


def test_growth_goes_on_across_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    growth = Growth(log)
    assert list(growth.blocks()) == []
    log.write_bytes(b"one\n")
    assert select.select([growth], [], [], 20)[0]
    assert b"".join(growth.blocks()) == b"one\n"
    with log.open("ab") as file:
        file.write(b"two\n")
        log.rename(tmp_path / "output.log.1")
        file.write(b"three\n")
    log.write_bytes(b"four\n")
    assert b"".join(growth.blocks()) == b"two\nthree\nfour\n"
    assert not select.select([growth], [], [], 0)[0]
    assert not growth.may_have_missed


def test_what_is_printed_in_the_place_of_a_mark_is_not_missed(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    growth = Growth(log)
    log.write_bytes(b"one\n" + END_OF_LOG)
    assert b"".join(growth.blocks()) == b"one\n" + END_OF_LOG
    take_out_ends(log)
    assert select.select([growth], [], [], 20)[0]
    assert b"".join(growth.blocks()) == b""
    with log.open("ab") as file:
        file.write(b"two\n")
    assert b"".join(growth.blocks()) == b"two\n"


def test_whoever_reads_slowly_is_told_that_there_was_more(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    growth = Growth(log)
    log.write_bytes(b"one\n")
    assert b"".join(growth.blocks()) == b"one\n"
    for printed in (b"two\n", b"three\n", b"four\n"):
        log.rename(tmp_path / "output.log.1")
        log.write_bytes(printed)
    assert b"".join(growth.blocks()) == b"three\nfour\n"
    assert growth.may_have_missed
