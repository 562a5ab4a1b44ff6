"""What happened just before the machine was off for long is there for whoever comes back."""

import errno
import logging
from pathlib import Path

import pytest

from amuxd.boots import Boots, counted
from amuxd.retention import Retention, is_over
from amuxd.states import State

MINUTE = 60 * 1_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def is_failed_one_over(boots: Boots, since: int, now: int, kept: float = 86400) -> bool:
    retention = Retention(failed=kept)
    return is_over(retention, State.FAILED, False, since, now, boots.seen_from(since))


def test_the_last_day_before_a_week_off(tmp_path: Path) -> None:
    counted(tmp_path, "first", 10 * DAY)
    boots = counted(tmp_path, "second", 20 * DAY)
    assert not is_failed_one_over(boots, 12 * DAY, 20 * DAY + 23 * HOUR)
    assert is_failed_one_over(boots, 12 * DAY, 21 * DAY)
    # Where it is to be kept for less, it is for less.
    assert not is_failed_one_over(boots, 12 * DAY, 20 * DAY + HOUR - 1, kept=3600)
    assert is_failed_one_over(boots, 12 * DAY, 20 * DAY + HOUR, kept=3600)
    assert is_failed_one_over(boots, 12 * DAY, 20 * DAY, kept=0)
    # What was there on the boot before this one has been seen.
    assert is_failed_one_over(boots, 9 * DAY, 20 * DAY)


def test_a_machine_that_is_off_each_night_keeps_nothing_for_ever(tmp_path: Path) -> None:
    ended = 10 * HOUR
    over = [
        is_failed_one_over(
            counted(tmp_path, f"boot-{day}", day * DAY + 8 * HOUR), ended, day * DAY + 18 * HOUR
        )
        for day in range(4)
    ]
    assert over == [False, False, True, True]


def test_a_week_off_and_then_boots_of_minutes(tmp_path: Path) -> None:
    counted(tmp_path, "first", 10 * DAY)
    counted(tmp_path, "second", 20 * DAY)
    for minutes in (5, 10, 15):
        boots = counted(tmp_path, f"after-{minutes}", 20 * DAY + minutes * MINUTE)
    assert not is_failed_one_over(boots, 12 * DAY, 21 * DAY + 15 * MINUTE - 1)
    assert is_failed_one_over(boots, 12 * DAY, 21 * DAY + 15 * MINUTE)
    # What was over by then had been seen for a day before.
    assert is_failed_one_over(boots, 9 * DAY, 20 * DAY + 16 * MINUTE)
    # It could be seen for a day when this one began.
    boots = counted(tmp_path, "a day later", 21 * DAY + MINUTE)
    assert is_failed_one_over(boots, 12 * DAY, 21 * DAY + MINUTE)


@pytest.mark.parametrize("pause", [HOUR, 8 * HOUR, 23 * HOUR, 24 * HOUR, 25 * HOUR])
def test_a_machine_that_boots_often_keeps_nothing_for_ever(tmp_path: Path, pause: int) -> None:
    ended = 100 * DAY + MINUTE
    over = []
    for at in range(100 * DAY, 106 * DAY, pause):
        boots = counted(tmp_path, f"boot-{at}", at)
        over.append(is_failed_one_over(boots, ended, at + pause - 1))
    assert over.index(True) * pause <= 4 * DAY
    assert over == sorted(over)


def test_a_clock_that_was_far_ahead_holds_up_nothing(tmp_path: Path) -> None:
    counted(tmp_path, "ahead", 9000 * DAY)
    counted(tmp_path, "set right", 10 * DAY)
    counted(tmp_path, "next", 12 * DAY)
    assert counted(tmp_path, "after that", 14 * DAY) == Boots(14 * DAY, 12 * DAY)


def test_what_an_earlier_amuxd_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "boots").write_text(f"second {20 * DAY} {10 * DAY}\n")
    assert counted(tmp_path, "second", 20 * DAY + HOUR) == Boots(20 * DAY, 10 * DAY)
    assert counted(tmp_path, "third", 20 * DAY + HOUR) == Boots(20 * DAY + HOUR, 10 * DAY)


def test_what_cannot_be_read_now_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> str:
        raise OSError(errno.EIO, "Input/output error")

    counted(tmp_path, "first", 10 * DAY)
    counted(tmp_path, "second", 20 * DAY)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        boots = counted(tmp_path, "third", 30 * DAY)
    # Nothing goes sooner for that.
    assert not is_failed_one_over(boots, 5 * DAY, 31 * DAY - 1)
    assert "is not known: [Errno 5] Input/output error" in caplog.text
    assert counted(tmp_path, "second", 30 * DAY) == Boots(20 * DAY, 10 * DAY)


def test_another_amuxd_on_the_same_boot_counts_none(tmp_path: Path) -> None:
    first = counted(tmp_path, "first", 10)
    assert first == counted(tmp_path, "first", 20) == Boots(10, 10)
    assert counted(tmp_path, "second", 30) == counted(tmp_path, "second", 40) == Boots(30, 10)


@pytest.mark.parametrize(
    "text", [b"", b"first 10", b"first ten 10\n", b"\xff 1 2", b"1 2 3 4 5", b'{"version":2}']
)
def test_what_cannot_be_read_is_set_aside_and_written_anew(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "boots").write_bytes(text)
    assert counted(tmp_path, "second", 30) == Boots(30, 30)
    assert counted(tmp_path, "second", 40) == Boots(30, 30)
    assert [kept.read_bytes() for kept in tmp_path.glob("set-aside/boots-*")] == ([text] if text else [])


def test_what_says_nothing_and_cannot_be_set_aside_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "boots").write_text("later")
    (tmp_path / "set-aside").touch()
    assert counted(tmp_path, "second", 30) == Boots(began=30)
    assert (tmp_path / "boots").read_text() == "later"
    assert "is not known: " in caplog.text


def test_what_cannot_be_written_is_true_for_this_amuxd(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counted(tmp_path, "first", 10)
    with caplog.at_level(logging.ERROR):
        missing = tmp_path / "missing"
        assert counted(missing, "first", 20) == Boots(20, 20)
    assert "that this boot began is not written down: " in caplog.text
