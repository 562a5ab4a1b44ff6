"""Of what a program drew, the lines that a person would have read."""

from pathlib import Path

import pytest

from amuxd.logs import LONGEST_LINE, last_lines, shows


@pytest.mark.parametrize(
    ("drawn", "lines"),
    [
        (b"\033[2J\033[Hhello\033[5Cworld\033[3;1Hthird\n", ["hello     world", "third"]),
        (
            b"Unable\033[Cto\033[1Cconnect\033[0Cto\033[aAnthropic\033[2Gservices",
            ["Unable to connect to Anthropic services"],
        ),
        (b"\033[1mbold\033[0m and \033[31mred\033[39m\033[K\033[?25h", ["bold and red"]),
        (
            b"one\033[Btwo\033[2Ethree\033[4dfour\033[2;3ffive\033[Asix\033[Fseven",
            ["one", "two", "three", "four", "five", "six", "seven"],
        ),
        (b"old\033[Gnew\033[1Gnewer", ["newer"]),
        (b"\033[5;1H\033[K\033[6;1H\033[K\033[7;1Hshown\033[8;1H\r\n", ["shown"]),
        (b"over\r\n\r\nunder\r\n", ["over", "", "under"]),
        (b"a\033[99999999999999999999Cb", ["a"]),
    ],
)
def test_moves_of_the_cursor_keep_words_and_lines_apart(
    tmp_path: Path, drawn: bytes, lines: list[str]
) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(drawn)
    assert [line[:LONGEST_LINE].rstrip() for line in last_lines(log)] == lines
    assert shows(drawn)


@pytest.mark.parametrize("drawn", [b"\033[5C\033[3;1H\033[2G", b"\033[H\033[2J\033[31m\r\n", b"\v\f"])
def test_moves_alone_show_nothing(tmp_path: Path, drawn: bytes) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(drawn)
    assert last_lines(log) == []
    assert not shows(drawn)
