"""The mark that says that a log is whole, and that nobody is to see."""

from pathlib import Path
from typing import IO, Any

import pytest

from amuxd.logs import END_OF_LOG, take_out_end


@pytest.mark.parametrize(
    ("before", "after", "over"),
    [
        (b"", b"", False),
        (b"printed\r\n", b"printed\r\n", False),
        (b"printed\r\n" + END_OF_LOG[:-1], b"printed\r\n" + END_OF_LOG[:-1], False),
        (END_OF_LOG, b"", True),
        (b"printed\r\n" + END_OF_LOG, b"printed\r\n", True),
        (b"x" * 5000 + END_OF_LOG, b"x" * 5000, True),
        (END_OF_LOG + b"by a child that stayed", END_OF_LOG + b"by a child that stayed", True),
    ],
)
def test_only_the_mark_is_taken_out(tmp_path: Path, before: bytes, after: bytes, over: bool) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(before)
    assert take_out_end(log) is over
    assert log.read_bytes() == after


def test_no_log_has_no_end(tmp_path: Path) -> None:
    assert not take_out_end(tmp_path / "output.log")


def test_a_log_that_grows_while_it_is_looked_at_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"first\r\nlast words\r\n")
    really_open = Path.open

    def opened(path: Path, *arguments: Any) -> IO[bytes]:
        file: IO[bytes] = really_open(path, *arguments)
        seek, marks = file.seek, [END_OF_LOG]

        def seek_and_grow(*where: int) -> int:
            position = seek(*where)
            if marks:
                with really_open(log, "ab") as more:
                    more.write(marks.pop())
            return position

        monkeypatch.setattr(file, "seek", seek_and_grow)
        return file

    monkeypatch.setattr(Path, "open", opened)
    assert take_out_end(log)
    monkeypatch.undo()
    assert log.read_bytes() == b"first\r\nlast words\r\n"
