"""The state machine against its table, for every sequence of facts."""

import itertools
from collections.abc import Callable
from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from amuxd import states
from amuxd.states import (
    ARCHIVABLE,
    BADGE,
    ENDED,
    LIVE,
    RERUNNABLE,
    WITHIN_A_RUN,
    End,
    Liveness,
    Situation,
    State,
    Transition,
    after,
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

GROUPS = {
    "live": "starting running stale stopping",
    "ended": "stopped completed failed orphaned",
    "badge": "starting running stale suspended",
    "rerunnable": "stale suspended stopped completed failed orphaned",
    "archivable": "created suspended stopped completed failed orphaned",
}

flags = {field.name: st.booleans() for field in fields(Situation) if field.type is bool}
situations = st.builds(Situation, state=st.sampled_from(State), run=st.integers(1, 9), **flags)
signals = st.sampled_from(["SIGSEGV", "SIGKILL", "SIGHUP"])
ends = st.builds(
    lambda code_and_signal, **besides: End(*code_and_signal, **besides),
    # Never both of them.
    st.tuples(st.none() | st.integers(0, 255), st.none()) | st.tuples(st.none(), signals),
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


RESTART, RESUME = states.RestartRequested(), states.RestartRequested(resume=True)
BY_ITSELF = states.RestartRequested(by_itself=True)
RESUMED_BY_ITSELF = states.RestartRequested(resume=True, by_itself=True)


def from_each(sources: str, target: State, reason: str) -> dict[State, tuple[State, str]]:
    return {State(source): (target, reason) for source in sources.split()}


RERUN = "stale suspended stopped completed failed orphaned"

# Where no state is named the fact moves nothing.
OUTCOMES: list[tuple[states.Fact, dict[State, tuple[State, str]]]] = [
    (states.StartRequested(), from_each("created", State.STARTING, "started")),
    (states.StopRequested(), from_each("running stale", State.STOPPING, "stop was asked for")),
    (RESTART, from_each(RERUN, State.CREATED, "restart was asked for")),
    (RESUME, from_each(RERUN, State.CREATED, "resume was asked for")),
    (BY_ITSELF, from_each(RERUN, State.CREATED, "restart, as resume=auto wants it")),
    (RESUMED_BY_ITSELF, from_each(RERUN, State.CREATED, "resume, as resume=auto wants it")),
    (
        states.ArchiveRequested(),
        from_each("created suspended stopped completed failed orphaned", State.ARCHIVED, "put away"),
    ),
    (
        states.CouldNotStart("no such program: x"),
        from_each("created starting", State.FAILED, "could not start: no such program: x"),
    ),
    (states.CommandStarted(), from_each("starting", State.RUNNING, "the command runs")),
    (
        states.CommandEnded(End(code=0)),
        {
            State.STARTING: (State.RUNNING, "the command ran before amuxd looked again"),
            State.STOPPING: (State.STOPPED, "stopped; exited with code 0"),
            **from_each("running suspended", State.COMPLETED, "exited with code 0"),
            State.STALE: (State.FAILED, "exited with code 0"),
        },
    ),
    (
        states.CommandEnded(End()),
        {
            State.STARTING: (State.RUNNING, "the command ran before amuxd looked again"),
            State.STOPPING: (State.STOPPED, "stopped"),
            **from_each("running suspended stale", State.FAILED, "ended, and how is not known"),
        },
    ),
    (
        states.CommandEnded(End(code=3)),
        {
            State.STARTING: (State.RUNNING, "the command ran before amuxd looked again"),
            State.STOPPING: (State.STOPPED, "stopped; exited with code 3"),
            **from_each("running suspended stale", State.FAILED, "exited with code 3"),
        },
    ),
    (states.FoundParked(), from_each("suspended", State.RUNNING, "found parked")),
    (
        states.HomeGone(),
        {
            State.STOPPING: (State.STOPPED, "stopped"),
            State.STARTING: (State.FAILED, "could not start: it was gone when amuxd looked again"),
            State.RUNNING: (State.FAILED, "gone without a trace, its end is not known"),
            State.STALE: (State.STOPPED, "the container went away"),
        },
    ),
    (
        states.CouldNotStop("it would not die"),
        from_each("stopping", State.FAILED, "could not be stopped: it would not die"),
    ),
    *(
        (
            states.Probed(Liveness.ALIVE, home),
            {
                State.SUSPENDED: (State.RUNNING, "found alive"),
                State.STARTING: (State.RUNNING, "the command runs"),
                State.STALE: (State.RUNNING, "the session in it is back"),
            },
        )
        for home in (Liveness.ALIVE, Liveness.DEAD, Liveness.NONE)
    ),
    (
        states.Probed(Liveness.DEAD, Liveness.ALIVE),
        from_each("running", State.STALE, "the container is up, the session in it is gone"),
    ),
    (states.Probed(Liveness.DEAD, Liveness.DEAD), {}),
    (states.Probed(Liveness.DEAD, Liveness.NONE), {}),
    *((states.Probed(Liveness.NONE, home), {}) for home in Liveness),
    (states.DaemonStopping("amuxd went"), from_each("running", State.SUSPENDED, "amuxd went")),
    (
        states.MachineWentDown(),
        {
            State.RUNNING: (State.SUSPENDED, "the machine went down"),
            State.STARTING: (State.FAILED, "could not start: the machine went down"),
            State.STOPPING: (State.STOPPED, "stopped; the machine went down"),
            State.STALE: (State.STOPPED, "the container went away with the machine"),
        },
    ),
    (
        states.WorkspaceDeleted("/gone"),
        from_each(
            "created starting running stale suspended",
            State.ORPHANED,
            "its directory /gone is gone",
        ),
    ),
    (
        states.WorkspaceRemoved(),
        from_each("created", State.ORPHANED, "its workspace was removed while it waited for a slot in it"),
    ),
]
EVERY_FACT = [fact for fact, _ in OUTCOMES]
EVERY_SITUATION = [
    Situation(state, 1, **dict(zip(flags, values, strict=True)))
    for state in State
    for values in itertools.product((True, False), repeat=len(flags))
]
EACH_WITH_EACH = list(itertools.product(EVERY_SITUATION, EVERY_FACT))


def test_every_field_of_a_situation_is_drawn() -> None:
    assert {field.name for field in fields(Situation)} == {"state", "run", *flags}


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


@given(st.lists(st.tuples(facts, situations), max_size=40))
@settings(max_examples=500)
def test_no_sequence_of_facts_reaches_an_illegal_transition(
    sequence: list[tuple[states.Fact, Situation]],
) -> None:
    """Whatever else may have changed of the session from one fact to the next."""
    state, run = State.CREATED, 1
    for fact, surroundings in sequence:
        situation = replace(surroundings, state=state, run=run)
        transition = decide(situation, fact)
        if transition is None:
            continue
        assert transition.source is situation.state
        assert legal(transition, situation)
        assert transition.reason.strip()
        state, run = transition.target, transition.run
        assert after(situation, transition) == replace(situation, state=state, run=run)


@given(situations, facts)
@settings(max_examples=2000)
def test_every_situation_and_fact_gives_a_legal_transition_or_none(
    situation: Situation, fact: states.Fact
) -> None:
    transition = decide(situation, fact)
    assert transition is None or legal(transition, situation)


@given(situations, liveness)
def test_unknown_never_moves_a_state(situation: Situation, other: Liveness) -> None:
    for probe in (
        states.Probed(Liveness.UNKNOWN, other),
        states.Probed(other, Liveness.UNKNOWN),
    ):
        assert decide(situation, probe) is None


def test_what_was_asked_to_end_for_being_idle_has_not_ended_as_it_does() -> None:
    """It is parked instead, as long as it is watched; of nothing else it depends whether it is leaving."""
    for situation, fact in EACH_WITH_EACH:
        transition = decide(replace(situation, is_leaving=True), fact)
        if isinstance(fact, states.CommandEnded) and situation.state is State.RUNNING:
            assert transition is None
        else:
            assert transition == decide(replace(situation, is_leaving=False), fact)


def test_a_profile_that_stays_changes_what_a_success_is_and_nothing_else() -> None:
    """While it is watched it stays what it is, and what succeeded unwatched is found parked."""
    for situation, fact in EACH_WITH_EACH:
        transition = decide(replace(situation, stays_after_success=True), fact)
        succeeded = isinstance(fact, states.CommandEnded) and fact.end.success
        if succeeded and situation.state is State.RUNNING:
            assert transition is None
        elif succeeded and situation.state is State.SUSPENDED:
            assert transition == Transition(State.SUSPENDED, State.RUNNING, "found parked", 1)
        else:
            assert transition == decide(replace(situation, stays_after_success=False), fact)


def test_without_its_workspace_a_session_is_not_begun_again_and_all_else_holds() -> None:
    for situation, fact in EACH_WITH_EACH:
        transition = decide(replace(situation, workspace_exists=False), fact)
        if isinstance(fact, states.RestartRequested):
            assert transition is None
        else:
            assert transition == decide(replace(situation, workspace_exists=True), fact)


def test_whether_a_conversation_can_go_on_moves_nothing() -> None:
    """Who asks for it is told before that why it cannot."""
    for situation, fact in EACH_WITH_EACH:
        can = replace(situation, resumable=True)
        assert decide(can, fact) == decide(replace(can, resumable=False), fact)


def test_every_legal_transition_is_reached_by_some_fact() -> None:
    reached = {
        (source, transition.target)
        for source in State
        for fact in EVERY_FACT
        if (transition := decide(Situation(source, 1), fact))
    }
    within = {(source, target) for source, targets in WITHIN_A_RUN.items() for target in targets}
    # A container that goes away while amuxd is not there is the container host's fact to add.
    assert within - reached == {(State.SUSPENDED, State.STOPPED)}


@pytest.mark.parametrize(("fact", "outcomes"), OUTCOMES, ids=map(repr, EVERY_FACT))
def test_what_a_fact_brings_about(fact: states.Fact, outcomes: dict[State, tuple[State, str]]) -> None:
    for state in State:
        transition = decide(Situation(state, 1), fact)
        assert (transition and (transition.target, transition.reason)) == outcomes.get(state)


def test_the_groups_are_the_design() -> None:
    named = {name: {State(word) for word in words.split()} for name, words in GROUPS.items()}
    assert named == {
        "live": LIVE,
        "ended": ENDED,
        "badge": BADGE,
        "rerunnable": RERUNNABLE,
        "archivable": ARCHIVABLE,
    }


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
        # No code is a success of a command that amux, systemd or the kernel cut short.
        (
            End(code=0, unit_stopped=True),
            State.FAILED,
            "its unit was stopped through systemd",
            "unit stopped",
        ),
        (End(code=0, out_of_memory=True), State.FAILED, "out of memory", "out of memory"),
        (
            End(code=0, terminal_died="SIGKILL"),
            State.FAILED,
            "terminal server died (SIGKILL)",
            "terminal died",
        ),
        (End(code=0, not_started="no such"), State.FAILED, "could not start: no such", "could not start"),
        (End(), State.FAILED, "ended, and how is not known", ""),
    ],
)
def test_how_an_end_is_told(end: End, target: State, reason: str, in_short: str) -> None:
    assert end.in_short == in_short
    transition = decide(Situation(State.RUNNING, 1), states.CommandEnded(end))
    assert transition == Transition(State.RUNNING, target, reason, 1)


@given(ends)
def test_an_end_is_known_where_it_can_be_told(end: End) -> None:
    assert end.known == (end.describe() != "ended, and how is not known")
    assert end.known == bool(end.in_short)
    assert end.success == (end.describe() == "exited with code 0")


@given(situations, ends)
def test_after_a_stop_was_asked_for_any_end_is_stopped(situation: Situation, end: End) -> None:
    transition = decide(replace(situation, state=State.STOPPING), states.CommandEnded(end))
    assert transition is not None
    assert transition.target is State.STOPPED
    assert transition.reason == (f"stopped; {end.describe()}" if end.known else "stopped")


REQUESTS: dict[str, states.Fact] = {
    "start": states.StartRequested(),
    "stop": states.StopRequested(),
    "restart": RESTART,
    "archive": states.ArchiveRequested(),
}


def test_what_is_possible_is_what_the_machine_grants() -> None:
    """What is begun again goes on where its conversation can; what lives is not removed."""
    for situation in EVERY_SITUATION:
        expected = {verb for verb, fact in REQUESTS.items() if decide(situation, fact)}
        if "restart" in expected and situation.resumable:
            expected.add("resume")
        if situation.state not in LIVE:
            expected.add("rm")
        assert set(states.possible(situation)) == expected
