"""Retention: only what rests, only after its time, and never what is live."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.retention import Retention, is_over
from amuxd.states import LIVE, State

DAY = 86400
moments = st.integers(0, 4_000_000_000_000_000)
durations = st.none() | st.floats(0, 1e9)
retentions = st.builds(Retention, *[durations] * 6)
KEPT = LIVE | {State.CREATED, State.ARCHIVED}


@given(retentions, st.sampled_from(State), st.booleans(), moments, moments)
def test_never_one_that_is_live_new_or_put_away(
    retention: Retention, state: State, resumable: bool, since: int, now: int
) -> None:
    if state in KEPT:
        assert not is_over(retention, state, resumable, since, now)


@given(retentions, st.sampled_from(State), st.booleans(), moments, moments, st.integers(0, 10**15))
def test_what_is_over_stays_over(
    retention: Retention, state: State, resumable: bool, since: int, now: int, later: int
) -> None:
    if is_over(retention, state, resumable, since, now):
        assert is_over(retention, state, resumable, since, now + later)


@given(retentions, st.sampled_from(State), st.booleans(), moments, st.integers(1, 10**15))
def test_a_clock_that_was_set_back_makes_nothing_old(
    retention: Retention, state: State, resumable: bool, since: int, before: int
) -> None:
    assert not is_over(retention, state, resumable, since, since - before)


@pytest.mark.parametrize(
    ("state", "resumable", "days"),
    [
        (State.SUSPENDED, False, 7),
        (State.SUSPENDED, True, 30),
        (State.FAILED, True, 1),
        (State.ORPHANED, False, 1),
        (State.COMPLETED, True, 7),
        (State.STOPPED, False, 7),
    ],
)
def test_the_defaults(state: State, resumable: bool, days: int) -> None:
    now = 100 * DAY * 1_000_000
    exactly = now - days * DAY * 1_000_000
    assert is_over(Retention(), state, resumable, exactly, now)
    assert not is_over(Retention(), state, resumable, exactly + 1, now)
    assert not is_over(
        Retention(**{state.value: None, "suspended_resumable": None}), state, resumable, 0, now
    )
