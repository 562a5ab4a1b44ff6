"""When it ended: what tells that is believed where it can be true, and nothing is guessed."""

import os
from pathlib import Path

import pytest

from amuxd import moments
from amuxd.moments import Moment
from amuxd.records import RunState
from amuxd.states import End, State

SECOND = 1_000_000
STARTED, ALIVE, LOOKED = 1000 * SECOND, 1500 * SECOND, 2000 * SECOND


def state(**known: int) -> RunState:
    return RunState("a1", State.SUSPENDED, ALIVE, 1, 1, "boot", "", **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1700 * SECOND, Moment(1700 * SECOND)),
        # A shell is alive when its command has ended.
        (1400 * SECOND, Moment(1400 * SECOND)),
        (STARTED, Moment(STARTED)),
        # Before the run began, and in the future.
        (STARTED - 1, Moment(LOOKED, ALIVE)),
        (LOOKED + 1, Moment(LOOKED, ALIVE)),
        (None, Moment(LOOKED, ALIVE)),
    ],
)
@pytest.mark.parametrize(
    ("name", "end"), [("exit_status", End(code=3)), ("not_started", End(not_started="no such program"))]
)
def test_what_was_written_down_at_the_end(
    tmp_path: Path, name: str, end: End, written: int | None, expected: Moment
) -> None:
    if written is not None:
        file = tmp_path / name
        file.touch()
        os.utime(file, ns=(0, written * 1000))
    assert moments.of_end(state(started_at=STARTED, alive_at=ALIVE), tmp_path, end, LOOKED) == expected


def test_the_last_moment_that_is_certain() -> None:
    assert moments.known_alive(state(started_at=STARTED, alive_at=ALIVE), LOOKED) == ALIVE
    # It has begun anew since.
    assert moments.known_alive(state(started_at=ALIVE, alive_at=STARTED), LOOKED) == ALIVE
    assert moments.known_alive(state(started_at=STARTED), LOOKED) == STARTED
    # Of one that was only about to begin.
    assert moments.known_alive(state(), LOOKED) == ALIVE


def test_where_the_clock_was_set_back_none_comes_after_the_look(tmp_path: Path) -> None:
    assert moments.known_alive(state(started_at=STARTED, alive_at=ALIVE), ALIVE - 1) == STARTED
    assert moments.known_alive(state(started_at=STARTED, alive_at=ALIVE), STARTED - 1) == STARTED - 1
    assert moments.known_alive(state(), ALIVE - 1) == ALIVE - 1
    looked = ALIVE - 1
    known = state(started_at=STARTED, alive_at=ALIVE)
    assert moments.of_end(known, tmp_path, End(code=3), looked) == Moment(looked, STARTED)
