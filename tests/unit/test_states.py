"""The state machine against its table, for every sequence of facts."""

import itertools
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from amuxd import states
from amuxd.states import (
    ARCHIVABLE,
    ENDED,
    RERUNNABLE,
    WITHIN_A_RUN,
    End,
    Liveness,
    Situation,
    State,
    Transition,
    decide,
)

ALLOWED_BY_THE_DESIGN = {
    "created": "starting failed orphaned",
    "starting": "running failed orphaned",
    "running": "stopping completed failed orphaned stale suspended",
    "stale": "running stopping stopped failed orphaned",
    "suspended": "running completed failed stopped orphaned",
    "stopping": "stopped failed",
    "stopped": "",
    "completed": "",
    "failed": "",
    "orphaned": "",
    "archived": "",
}

ends = st.builds(
    End,
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.sampled_from(["SIGSEGV", "SIGKILL", "SIGHUP"]),
    core_dumped=st.none() | st.booleans(),
    out_of_memory=st.booleans(),
    memory_limit=st.sampled_from(["", "4G"]),
    terminal_died=st.sampled_from(["", "SIGKILL"]),
    unit_stopped=st.booleans(),
    not_started=st.sampled_from(["", "no such program: x"]),
)
liveness = st.sampled_from(Liveness)
facts = st.one_of(
    st.just(states.StartRequested()),
    st.just(states.StopRequested()),
    st.builds(states.RestartRequested, resume=st.booleans(), by_itself=st.booleans()),
    st.just(states.ArchiveRequested()),
    st.builds(states.CouldNotStart, why=st.just("no such program: x")),
    st.just(states.CommandStarted()),
    st.builds(states.CommandEnded, end=ends),
    st.just(states.FoundParked()),
    st.just(states.HomeGone()),
    st.builds(states.CouldNotStop, why=st.just("it would not die")),
    st.builds(states.Probed, session=liveness, home=liveness),
    st.just(states.DaemonStopping()),
    st.just(states.MachineWentDown()),
    st.builds(states.WorkspaceDeleted, directory=st.just("/gone")),
    st.builds(states.WorkspaceRemoved),
)


def is_of(kind: type) -> Callable[[object], bool]:
    return lambda fact: isinstance(fact, kind)


def test_every_fact_is_generated() -> None:
    for kind in get_args(states.Fact):
        find(facts, is_of(kind))
    find(facts, lambda fact: isinstance(fact, states.RestartRequested) and fact.by_itself)
    find(facts, lambda fact: isinstance(fact, states.CommandEnded) and bool(fact.end.not_started))


def legal(transition: Transition, before: Situation) -> bool:
    if transition.target in WITHIN_A_RUN[transition.source]:
        return transition.run == before.run
    if transition.target is State.CREATED:
        return transition.source in RERUNNABLE and transition.run == before.run + 1
    if transition.target is State.ARCHIVED:
        return transition.source in ARCHIVABLE and transition.run == before.run
    return False


def test_the_table_is_the_design() -> None:
    assert {
        source.value: {target.value for target in targets} for source, targets in WITHIN_A_RUN.items()
    } == {source: set(targets.split()) for source, targets in ALLOWED_BY_THE_DESIGN.items()}


@given(st.lists(facts, max_size=40), st.booleans(), st.booleans())
@settings(max_examples=500)
def test_no_sequence_of_facts_reaches_an_illegal_transition(
    sequence: list[states.Fact], stays: bool, workspace_exists: bool
) -> None:
    situation = Situation(State.CREATED, 1, stays, workspace_exists)
    for fact in sequence:
        transition = decide(situation, fact)
        if transition is None:
            continue
        assert transition.source is situation.state
        assert legal(transition, situation)
        assert transition.reason.strip()
        situation = Situation(transition.target, transition.run, stays, workspace_exists)


@given(st.sampled_from(State), st.integers(1, 9), facts, st.booleans(), st.booleans())
@settings(max_examples=2000)
def test_every_state_and_fact_gives_a_legal_transition_or_none(
    state: State, run: int, fact: states.Fact, stays: bool, exists: bool
) -> None:
    situation = Situation(state, run, stays, exists)
    transition = decide(situation, fact)
    assert transition is None or legal(transition, situation)


@given(st.sampled_from(State), liveness, st.booleans())
def test_unknown_never_moves_a_state(state: State, other: Liveness, stays: bool) -> None:
    for probe in (
        states.Probed(Liveness.UNKNOWN, other),
        states.Probed(other, Liveness.UNKNOWN),
    ):
        assert decide(Situation(state, 1, stays), probe) is None


def test_every_legal_transition_is_reached_by_some_fact() -> None:
    every_fact: list[states.Fact] = [
        states.StartRequested(),
        states.StopRequested(),
        states.ArchiveRequested(),
        states.CouldNotStart("x"),
        states.CommandStarted(),
        states.CommandEnded(End(code=0)),
        states.CommandEnded(End(code=1)),
        states.HomeGone(),
        states.CouldNotStop("x"),
        *(states.Probed(a, b) for a, b in itertools.product(Liveness, Liveness)),
        states.DaemonStopping(),
        states.MachineWentDown(),
        states.WorkspaceDeleted("/x"),
    ]
    reached = {
        (source, transition.target)
        for source in State
        for fact in every_fact
        if (transition := decide(Situation(source, 1), fact))
    }
    within = {(source, target) for source, targets in WITHIN_A_RUN.items() for target in targets}
    # A container that goes away while amuxd is not there is the container host's fact to add.
    assert within - reached == {(State.SUSPENDED, State.STOPPED)}


@pytest.mark.parametrize(
    ("end", "target", "reason", "in_short"),
    [
        (End(code=0), State.COMPLETED, "exited with code 0", "exit 0"),
        (End(code=3), State.FAILED, "exited with code 3", "exit 3"),
        (End(signal="SIGSEGV", core_dumped=True), State.FAILED, "killed by SIGSEGV (core dumped)", "SIGSEGV"),
        (End(signal="SIGTERM", core_dumped=False), State.FAILED, "killed by SIGTERM", "SIGTERM"),
        (End(not_started="no such"), State.FAILED, "could not start: no such", "could not start"),
        (
            End(signal="SIGKILL", out_of_memory=True, memory_limit="4G"),
            State.FAILED,
            "out of memory (limit 4G)",
            "out of memory",
        ),
        (
            End(signal="SIGHUP", terminal_died="SIGKILL"),
            State.FAILED,
            "terminal server died (SIGKILL)",
            "terminal died",
        ),
        (
            End(signal="SIGTERM", unit_stopped=True),
            State.FAILED,
            "its unit was stopped through systemd",
            "unit stopped",
        ),
        (
            End(code=0, unit_stopped=True),
            State.FAILED,
            "its unit was stopped through systemd",
            "unit stopped",
        ),
        (End(), State.FAILED, "ended, and how is not known", ""),
    ],
)
def test_how_an_end_is_told(end: End, target: State, reason: str, in_short: str) -> None:
    assert end.in_short == in_short
    transition = decide(Situation(State.RUNNING, 1), states.CommandEnded(end))
    assert transition == Transition(State.RUNNING, target, reason, 1)


@given(ends)
def test_after_a_stop_was_asked_for_any_end_is_stopped(end: End) -> None:
    transition = decide(Situation(State.STOPPING, 1), states.CommandEnded(end))
    assert transition is not None
    assert transition.target is State.STOPPED


def test_a_profile_that_stays_keeps_running_after_success_only() -> None:
    staying = Situation(State.RUNNING, 1, stays_after_success=True)
    assert decide(staying, states.CommandEnded(End(code=0))) is None
    assert decide(staying, states.CommandEnded(End(code=1))) is not None


def test_what_is_possible_is_what_the_machine_grants() -> None:
    requests: dict[str, states.Fact] = {
        "start": states.StartRequested(),
        "stop": states.StopRequested(),
        "restart": states.RestartRequested(),
        "archive": states.ArchiveRequested(),
    }
    for state, exists in itertools.product(State, (True, False)):
        situation = Situation(state, 1, workspace_exists=exists)
        granted = {verb for verb, fact in requests.items() if decide(situation, fact)}
        assert set(states.possible(situation)) - {"rm"} == granted
    assert all("rm" in states.possible(Situation(state, 1)) for state in ENDED | {State.ARCHIVED})
