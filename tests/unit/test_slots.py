"""Who holds a workspace and who is next, decided over all that sessions can do."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.records import Place, Process, RunState, Workspace
from amuxd.states import LIVE, State
from amuxd.workspaces import slots
from amuxd.workspaces.slots import Busy, Facts, NotKnown, Queued, Taken

TAKER = Process(10, 100)
COMMAND = Process(11, 110)


def a_state(state: State, run: int = 1, boot: str = "now") -> RunState:
    return RunState("s", state, 1, 1, run, boot, "", command=COMMAND)


def a_place(session_id: str = "s", run: int = 1) -> Place:
    return Place(session_id, run, TAKER, 1)


def facts(
    states: Mapping[str, RunState | None] | RunState | None,
    command_exists: bool = False,
    is_taking: bool = False,
) -> Facts:
    known = states if isinstance(states, Mapping) else {"s": states}
    return Facts(known.get, lambda _: command_exists, "now", lambda _: is_taking)


def a_workspace(
    number: int = 2, holders: list[Place] | None = None, queue: list[Place] | None = None
) -> Workspace:
    return Workspace("w", "w", "/w", 1, number, holders=holders or [], queue=queue or [])


@pytest.mark.parametrize("state", list(State))
def test_only_live_sessions_hold(state: State) -> None:
    assert slots.holds(a_place(), facts(a_state(state))) == (state in LIVE)


def test_a_session_that_was_live_before_the_machine_went_down_holds_nothing() -> None:
    assert not slots.holds(a_place(), facts(a_state(State.RUNNING, boot="before")))


def test_a_suspended_session_holds_while_it_works_on() -> None:
    assert slots.holds(a_place(), facts(a_state(State.SUSPENDED), command_exists=True))
    assert not slots.holds(a_place(), facts(a_state(State.SUSPENDED), command_exists=False))
    assert not slots.holds(a_place(), facts(a_state(State.SUSPENDED, boot="before"), command_exists=True))


@pytest.mark.parametrize("state", [a_state(State.CREATED), a_state(State.STOPPED, run=0)])
def test_one_that_is_about_to_start_holds_while_somebody_starts_it(state: RunState) -> None:
    assert slots.holds(a_place(), facts(state, is_taking=True))
    assert not slots.holds(a_place(), facts(state, is_taking=False))


def test_one_that_waited_and_was_given_a_slot_in_vain_is_the_next_still() -> None:
    created = {name: a_state(State.CREATED) for name in "ab"}
    waiting = a_workspace(1, queue=[a_place("a"), a_place("b")])
    given = slots.take(waiting, a_place("a"), False, facts(created))
    assert isinstance(given, Taken)
    assert [place.session_id for place in given.workspace.queue] == ["b"]
    assert slots.tidied(given.workspace, facts(created, is_taking=True)) == given.workspace
    # Whoever gave it was killed before it was begun.
    after = slots.tidied(given.workspace, facts(created))
    assert (after.holders, [place.session_id for place in after.queue]) == ([], ["a", "b"])
    begun = facts(created | {"a": a_state(State.STARTING)})
    assert slots.tidied(given.workspace, begun) == given.workspace


def test_one_that_began_though_its_slot_was_taken_back_holds_one() -> None:
    """amuxd ended while that it starts was being written, and gave its slot back before it was."""
    before = a_workspace(1, queue=[a_place("s"), a_place("t")])
    waits = a_state(State.CREATED)
    after = slots.tidied(before, facts({"s": a_state(State.STARTING), "t": waits}))
    assert (after.holders, after.queue) == ([a_place("s")], [a_place("t")])
    assert slots.free(after) == 0
    over = slots.tidied(before, facts({"s": a_state(State.STOPPED), "t": waits}))
    assert (over.holders, over.queue) == ([], [a_place("t")])


def test_one_that_did_not_wait_does_not_get_in_line_by_failing() -> None:
    given = slots.take(a_workspace(1), a_place(), False, facts(a_state(State.CREATED)))
    assert isinstance(given, Taken)
    assert slots.tidied(given.workspace, facts(a_state(State.CREATED))) == a_workspace(1)


def test_an_earlier_run_and_a_removed_session_hold_nothing() -> None:
    assert not slots.holds(a_place(run=1), facts(a_state(State.RUNNING, run=2)))
    assert not slots.holds(a_place(), facts(None))
    assert not slots.waits(a_place(), facts(None))


def without(known: Facts, *unreadable: str, may_live: bool = True) -> Facts:
    def state_of(session_id: str) -> RunState | None:
        if session_id in unreadable:
            raise NotKnown("it is not JSON", may_live)
        return known.state_of(session_id)

    return replace(known, state_of=state_of)


def test_one_that_cannot_be_read_keeps_its_place_and_its_slot_while_it_may_live() -> None:
    for may_live in (True, False):
        unknown = without(facts(None), "s", may_live=may_live)
        assert slots.holds(a_place(), unknown) == may_live
        assert slots.waits(a_place(), unknown)


def test_one_that_cannot_be_read_holds_up_nobody_and_is_next_once_it_can_be() -> None:
    created = facts({name: a_state(State.CREATED) for name in "abcd"})
    queue = [a_place(name) for name in "abc"]
    workspace = a_workspace(1, [a_place("h")], queue)
    held = without(created, "a", "h")
    assert slots.tidied(workspace, held) == workspace
    assert slots.take(workspace, a_place("b"), False, held) == Queued(workspace, 1)
    assert slots.take(workspace, a_place("c"), False, held) == Queued(workspace, 2)
    last = slots.take(workspace, a_place("d"), True, held)
    assert last == Queued(replace(workspace, queue=[*queue, a_place("d")]), 3)
    assert slots.take(workspace, a_place("d"), False, held) == Busy([a_place("h")], queue[1:])
    free = replace(workspace, holders=[])
    begun = slots.take(free, a_place("b"), False, without(created, "a"))
    assert isinstance(begun, Taken)
    assert begun.workspace.queue == [queue[0], queue[2]]
    assert slots.take(free, a_place("b"), False, created) == Queued(free, 2)
    assert isinstance(slots.take(free, a_place("a"), False, created), Taken)


def test_one_that_is_to_wait_in_its_next_run_waits_while_that_is_created() -> None:
    assert slots.waits(a_place(run=2), facts(a_state(State.STOPPED), is_taking=True))
    assert not slots.waits(a_place(run=2), facts(a_state(State.STOPPED), is_taking=False))
    assert slots.waits(a_place(), facts(a_state(State.CREATED)))


def test_the_last_slot_is_taken_and_then_it_is_busy_or_a_place_in_the_queue() -> None:
    states = {"a": a_state(State.RUNNING), "s": a_state(State.CREATED), "b": a_state(State.CREATED)}
    known = facts(dict(states), is_taking=True)
    taken = slots.take(a_workspace(2, [a_place("a")]), a_place(), False, known)
    assert isinstance(taken, Taken)
    assert taken.workspace.holders == [a_place("a"), a_place()]
    assert slots.take(taken.workspace, a_place("b"), False, known) == Busy([a_place("a"), a_place()], [])
    queued = slots.take(taken.workspace, a_place("b"), True, known)
    assert isinstance(queued, Queued)
    assert queued.position == 1
    again = slots.take(queued.workspace, a_place("b"), True, known)
    assert again == queued


def test_nobody_overtakes_the_queue_but_a_slot_that_nobody_waits_for_is_free() -> None:
    states = {"q": a_state(State.CREATED), "s": a_state(State.CREATED)}
    one = a_workspace(1, queue=[a_place("q")])
    two = a_workspace(2, queue=[a_place("q")])
    assert slots.take(one, a_place(), False, facts(dict(states))) == Busy([], [a_place("q")])
    assert isinstance(slots.take(two, a_place(), False, facts(dict(states))), Taken)
    first = slots.take(one, a_place("q"), False, facts(dict(states)))
    assert first == Taken(replace(one, holders=[replace(a_place("q"), waited=True)], queue=[]))


def test_as_many_as_anybody_wants() -> None:
    crowd = a_workspace(0, [a_place(str(n)) for n in range(50)])
    states: dict[str, RunState | None] = {str(n): a_state(State.RUNNING) for n in range(50)}
    outcome = slots.take(crowd, a_place(), False, facts(states))
    assert isinstance(outcome, Taken)
    assert len(outcome.workspace.holders) == 51
    assert slots.free(crowd) is None


@given(
    number=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(["take", "queue", "end", "remove"]), st.integers(0, 7)), max_size=60
    ),
)
def test_never_more_than_the_slots_and_always_in_order(number: int, steps: list[tuple[str, int]]) -> None:
    states: dict[str, RunState | None] = {str(n): a_state(State.CREATED) for n in range(8)}
    known = facts(states)
    workspace = a_workspace(number)
    arrived: list[str] = []

    def try_to_start(who: str, may_wait: bool) -> None:
        nonlocal workspace
        outcome = slots.take(workspace, a_place(who), may_wait, known)
        if isinstance(outcome, Taken):
            workspace = outcome.workspace
            states[who] = a_state(State.RUNNING)
            assert who not in arrived or arrived.index(who) < max(1, number)
            if who in arrived:
                arrived.remove(who)
        elif isinstance(outcome, Queued):
            workspace = outcome.workspace
            if who not in arrived:
                arrived.append(who)
            assert outcome.position == arrived.index(who) + 1

    for step, index in steps:
        who = str(index)
        state = states[who]
        if step in ("take", "queue") and state is not None and state.state is State.CREATED:
            try_to_start(who, step == "queue")
        elif step == "end" and state is not None and state.state is State.RUNNING:
            states[who] = a_state(State.COMPLETED)
            workspace = slots.tidied(workspace, known)
            for place in workspace.queue[: slots.free(workspace)]:
                assert place.session_id == arrived[0]
                try_to_start(place.session_id, False)
        elif step == "remove":
            states[who] = None
            arrived = [name for name in arrived if name != who]
            workspace = slots.tidied(workspace, known)
            for place in workspace.queue[: slots.free(workspace)]:
                try_to_start(place.session_id, False)
        live = [n for n, s in states.items() if s is not None and s.state is State.RUNNING]
        assert len(live) <= number
        assert [p.session_id for p in slots.tidied(workspace, known).queue] == arrived


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_ordinals(number: int, word: str) -> None:
    assert slots.ordinal(number) == word


@pytest.mark.parametrize("state", [State.RUNNING, State.SUSPENDED])
def test_a_parked_session_keeps_its_slot_also_over_a_reboot(state: State) -> None:
    parked = replace(a_state(state, boot="before"), parked=True)
    assert slots.holds(a_place(), facts(parked, command_exists=False))
    assert not slots.holds(a_place(), facts(replace(parked, state=State.STOPPED)))
