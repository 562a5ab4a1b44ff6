"""Who comes back by itself, and when that counts as failed."""

from dataclasses import replace

import pytest

from amuxd.comeback import LASTING, failures_in_a_row, is_candidate
from amuxd.records import ResumePolicy, RunState, Session
from amuxd.registry import Entry
from amuxd.states import State

BEGUN = 1_700_000_000_000_000
THIS, EARLIER = "this boot", "an earlier one"


def entry(state: State, **known: object) -> Entry:
    session = Session("k3x9qa", "x", ["x"], "/", 1, resume=ResumePolicy.AUTO)
    standing = RunState("k3x9qa", state, BEGUN, 1, 5, EARLIER, "", started_at=BEGUN)
    return Entry(session, replace(standing, **known))  # type: ignore[arg-type]


def test_only_what_was_suspended_or_failed_by_itself() -> None:
    assert {state for state in State if is_candidate(entry(state), THIS)} == {State.SUSPENDED}
    by_itself = {state for state in State if is_candidate(entry(state, auto_run=5), THIS)}
    assert by_itself == {State.SUSPENDED, State.FAILED}


def test_only_once_a_boot_and_only_who_wants_it() -> None:
    assert not is_candidate(entry(State.SUSPENDED, auto_boot=THIS), THIS)
    assert is_candidate(entry(State.SUSPENDED, auto_boot=EARLIER), THIS)
    manual = entry(State.SUSPENDED)
    manual.session = replace(manual.session, resume=ResumePolicy.MANUAL)
    assert not is_candidate(manual, THIS)


@pytest.mark.parametrize(
    ("state", "known", "printed_at", "failures"),
    [
        (State.SUSPENDED, {}, BEGUN, 0),
        (State.FAILED, {"auto_run": 5, "auto_failures": 1}, BEGUN + LASTING, 2),
        # An orderly shutdown tells when it was suspended.
        (
            State.SUSPENDED,
            {"auto_run": 5, "auto_failures": 2, "state_changed_at": BEGUN + LASTING},
            BEGUN,
            0,
        ),
        (State.SUSPENDED, {"auto_run": 5, "state_changed_at": BEGUN + 1}, BEGUN, 1),
        # After a power cut the suspension is this boot's news: what it printed is the last that is known.
        (
            State.SUSPENDED,
            {"auto_run": 5, "boot_id": THIS, "state_changed_at": BEGUN + 10 * LASTING},
            BEGUN,
            1,
        ),
        (
            State.SUSPENDED,
            {"auto_run": 5, "boot_id": THIS, "state_changed_at": BEGUN + 10 * LASTING},
            BEGUN + LASTING,
            0,
        ),
    ],
)
def test_what_counts_as_a_failure(
    state: State, known: dict[str, object], printed_at: int, failures: int
) -> None:
    subject = entry(state, **known)
    subject.activity_at = printed_at
    assert failures_in_a_row(subject, THIS) == failures
