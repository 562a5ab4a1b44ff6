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


@given(retentions, st.sampled_from(sorted(KEPT)), st.booleans(), moments, moments, moments)
def test_never_one_that_is_live_new_or_put_away(
    retention: Retention, state: State, resumable: bool, since: int, now: int, seen_from: int
) -> None:
    assert not is_over(retention, state, resumable, since, now, seen_from)


@given(
    *(retentions, st.sampled_from(State), st.booleans()),
    *(moments, moments, moments, st.integers(0, 10**15)),
)
def test_what_is_over_stays_over(
    retention: Retention, state: State, resumable: bool, since: int, now: int, seen_from: int, later: int
) -> None:
    if is_over(retention, state, resumable, since, now, seen_from):
        assert is_over(retention, state, resumable, since, now + later, seen_from)


@given(st.sampled_from(sorted(set(State) - KEPT)), st.booleans(), st.integers(0, 30 * DAY), moments)
def test_what_nobody_could_see_is_there_for_a_day_from_when_somebody_can(
    state: State, resumable: bool, seconds: int, now: int
) -> None:
    """Or for as long as it is kept, where that is less."""
    retention = Retention(*[float(seconds)] * 6)
    long_ago = now - 31 * DAY * 1_000_000
    at_least = min(seconds, DAY) * 1_000_000
    assert is_over(retention, state, resumable, long_ago, now, now - at_least)
    assert not is_over(retention, state, resumable, long_ago, now, now - at_least + 1)


@pytest.mark.parametrize("state", sorted(set(State) - KEPT))
def test_each_is_kept_for_as_long_as_is_said_of_its_state(state: State) -> None:
    for resumable in (True, False):
        name = "suspended_resumable" if state is State.SUSPENDED and resumable else state.value
        others = dict.fromkeys(Retention.__dataclass_fields__, None)
        assert is_over(Retention(**{**others, name: 5.0}), state, resumable, 0, 5_000_000)
        for_ever = Retention(**{**dict.fromkeys(others, 5.0), name: None})
        assert not is_over(for_ever, state, resumable, 0, 4_000_000_000_000_000)


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
