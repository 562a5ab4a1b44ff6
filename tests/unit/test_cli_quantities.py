import click
import pytest

from amuxd.cli.quantities import parse_count, parse_duration, parse_percent, parse_size
from amuxd.quantities import UNLIMITED, format_duration, format_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("15", 15), ("15s", 15), ("2m", 120), ("7d", 604800), ("1.5h", 5400), ("0", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4G", 4 << 30),
        ("512M", 512 << 20),
        ("1.5g", 3 << 29),
        ("4096", 4096),
        ("1KiB", 1024),
        ("infinity", UNLIMITED),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_shares_and_counts() -> None:
    assert [parse_percent("50%"), parse_percent("200"), parse_count("7")] == [50, 200, 7]
    assert parse_count("infinity") == UNLIMITED


@pytest.mark.parametrize("text", ["", "4X", "-1", "0", "G", "1e3", "99999999999P", "nan"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "x", "-5", "5y", "1m30s"])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "0", "0%", "x", "-1", "50%%", "99999999999"])
def test_bad_shares_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_percent(text)


@pytest.mark.parametrize("text", ["", "0", "x", "-1", "9" * 19])
def test_bad_counts_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_count(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (135, "2m 15s"),
        (3600, "1h"),
        (7260, "2h 1m"),
        (90000, "1d 1h"),
    ],
)
def test_durations_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(4 << 30, "4G"), (3 << 29, "1.5G"), (512 << 20, "512M"), (1000, "1000")]
)
def test_a_size_is_told_as_it_was_given(size: int, text: str) -> None:
    assert format_size(size) == text
    assert parse_size(text) == size
