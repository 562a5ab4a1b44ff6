"""What is offered is not refused, and what is refused is told why, and what is possible instead."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.agents import CONVERSATION, Agent
from amuxd.errors import AmuxError, Busy, InvalidTransition, NotResumable, NotResumableYet
from amuxd.hosts import Home
from amuxd.possible import not_resumable, possible, refusal
from amuxd.records import Process, RunState, Session
from amuxd.registry import Entry
from amuxd.states import State

TALKS = Agent("agent", ("agent",), resume=("agent", "--resume", CONVERSATION))
BEGINS_ANEW = Agent("agent", ("agent",))
VERBS = ["start", "stop", "restart", "resume", "archive", "rm"]
HOME = Home(Process(1, 1), Process(2, 1), -1, -1)
LOST = "nothing is kept of it"


def entry(state: State, agent: Agent | None = TALKS, *, of_agent: bool = True, **known: Any) -> Entry:
    """known: by the names of the fields of what is on disk, or else of what is in memory."""
    on_disk = {name: known.pop(name) for name in list(known) if name in RunState.__dataclass_fields__}
    session = Session("k3x9qa", "x", ["x"], "/work", 1, agent="agent" if of_agent else "")
    standing = RunState("k3x9qa", state, 1, 1, 5, "boot", "", conversation_id="talk")
    return Entry(session, replace(standing, **on_disk), agent=agent if of_agent else None, **known)


entries: st.SearchStrategy[Entry] = st.builds(
    entry,
    st.sampled_from(State),
    st.sampled_from([TALKS, BEGINS_ANEW, None]),
    of_agent=st.booleans(),
    parked=st.booleans(),
    conversation_id=st.sampled_from(["", "talk"]),
    queued_run=st.sampled_from([0, 5]),
    home=st.sampled_from([None, HOME]),
    shell_open=st.booleans(),
    looked_in_vain=st.booleans(),
    ends_later=st.booleans(),
    found_lost=st.sampled_from([("", ""), ("talk", LOST), ("another", LOST)]),
    configuration_error=st.sampled_from(["", "a typo"]),
    workspace_exists=st.sampled_from([None, True, False]),
    unwritten=st.sampled_from([{}, {1: "the disk is full"}]),
)


@given(entries, st.sampled_from(VERBS))
def test_what_is_offered_is_not_refused_and_what_is_neither_is_in_vain(found: Entry, verb: str) -> None:
    error = refusal(found, verb)
    if verb in possible(found):
        assert error is None
    elif error is None:
        begins_by_itself = verb == "start" and found.waits_for_slot
        assert found.unwritten or begins_by_itself or (verb == "resume" and found.lost)


@given(entries)
def test_nothing_is_offered_before_what_has_happened_is_written(found: Entry) -> None:
    if found.unwritten:
        assert possible(found) == []


@given(entries)
def test_resume_is_offered_where_a_session_says_that_it_is_resumable(found: Entry) -> None:
    if not found.unwritten:
        assert ("resume" in possible(found)) == found.resumable


@given(entries)
def test_nothing_that_may_live_is_ended_or_begun_again_without_a_word(found: Entry) -> None:
    if found.may_live:
        assert possible(found) == []
        assert all(refusal(found, verb) for verb in VERBS)


def gone(state: State, **known: Any) -> Entry:
    return entry(state, None, **known)


@pytest.mark.parametrize(
    ("found", "offered"),
    [
        (entry(State.CREATED), "start archive rm"),
        (entry(State.CREATED, queued_run=5), "archive rm"),
        # It fails, and that is told then; with the profile it may be back before that.
        (gone(State.CREATED), "start archive rm"),
        (gone(State.CREATED, configuration_error="a typo"), "archive rm"),
        (entry(State.STARTING), ""),
        (entry(State.RUNNING), "stop"),
        (entry(State.RUNNING, parked=True), "stop resume"),
        (entry(State.RUNNING, parked=True, found_lost=("talk", LOST)), "stop"),
        (entry(State.STOPPING), ""),
        (entry(State.STOPPED), "restart resume archive rm"),
        (entry(State.STOPPED, found_lost=("talk", LOST)), "restart archive rm"),
        (entry(State.STOPPED, found_lost=("another", LOST)), "restart resume archive rm"),
        (entry(State.STOPPED, conversation_id=""), "restart archive rm"),
        (entry(State.STOPPED, BEGINS_ANEW), "restart archive rm"),
        (entry(State.STOPPED, workspace_exists=False), "archive rm"),
        (entry(State.STOPPED, shell_open=True), "stop restart resume"),
        (entry(State.STOPPED, of_agent=False), "restart archive rm"),
        (gone(State.STOPPED), "archive rm"),
        (entry(State.ORPHANED), "archive rm"),
        (entry(State.SUSPENDED, home=HOME), ""),
        (entry(State.SUSPENDED, looked_in_vain=True), ""),
        (entry(State.ARCHIVED), "rm"),
    ],
)
def test_what_is_offered(found: Entry, offered: str) -> None:
    """In the order in which a person is told of it."""
    assert possible(found) == offered.split()


AGAIN = "and is looked at again and again"


@pytest.mark.parametrize(
    ("found", "verb", "kind", "why"),
    [
        (
            entry(State.RUNNING),
            "start",
            InvalidTransition,
            "x is running, start is not possible (from running to starting); possible: stop",
        ),
        (
            entry(State.RUNNING),
            "archive",
            InvalidTransition,
            "x is running, archive is not possible (from running to archived); possible: stop",
        ),
        (entry(State.RUNNING), "rm", InvalidTransition, "x is running, rm is not possible; possible: stop"),
        (
            entry(State.RUNNING, parked=True),
            "restart",
            InvalidTransition,
            "x is parked, restart is not possible (from running to created); possible: stop, resume",
        ),
        (
            entry(State.STOPPING),
            "stop",
            InvalidTransition,
            "x is stopping, stop is not possible (from stopping to stopping)",
        ),
        (
            entry(State.ARCHIVED),
            "resume",
            InvalidTransition,
            "x is archived, resume is not possible (from archived to created); possible: rm",
        ),
        *(
            (
                entry(State.STOPPED, workspace_exists=False),
                verb,
                InvalidTransition,
                f"x is stopped, {verb} is not possible: its directory /work is not there; "
                "possible: archive, rm",
            )
            for verb in ("restart", "resume")
        ),
        (
            entry(State.STOPPED, workspace_exists=False),
            "start",
            InvalidTransition,
            "x is stopped, start is not possible (from stopped to starting); possible: archive, rm",
        ),
        (
            entry(State.STOPPED, conversation_id=""),
            "resume",
            NotResumable,
            "x cannot be resumed: agent has not told yet which conversation is this session's; "
            "possible: restart, archive, rm",
        ),
        (
            gone(State.STOPPED),
            "restart",
            InvalidTransition,
            "x: restart is not possible: there is no agent 'agent' any more",
        ),
        (
            gone(State.STOPPED),
            "resume",
            NotResumable,
            "x cannot be resumed: there is no agent 'agent' any more; possible: archive, rm",
        ),
        *(
            (
                gone(state, configuration_error="a typo"),
                verb,
                InvalidTransition,
                f"x: {verb} is not possible: "
                "agent 'agent' is not known while the configuration is wrong: a typo",
            )
            for state, verb in ((State.CREATED, "start"), (State.STOPPED, "resume"))
        ),
        (
            entry(State.STOPPED, shell_open=True),
            "archive",
            InvalidTransition,
            "a shell is open in x, archive is not possible; amux stop k3x9qa closes it",
        ),
        (
            entry(State.STOPPED, shell_open=True),
            "rm",
            InvalidTransition,
            "a shell is open in x, rm is not possible; amux stop k3x9qa closes it, "
            "and a forced removal as well",
        ),
        (
            entry(State.SUSPENDED, home=HOME),
            "stop",
            Busy,
            f"x is alive, {AGAIN}: stop is not possible until then",
        ),
        (
            entry(State.SUSPENDED, looked_in_vain=True, why_in_vain="no answer"),
            "rm",
            Busy,
            f"x could not be looked at (no answer), {AGAIN}: rm is not possible until then",
        ),
        (
            entry(State.SUSPENDED, ends_later=True),
            "restart",
            Busy,
            f"x could not be looked at, {AGAIN}: restart is not possible until then",
        ),
    ],
)
def test_why_it_is_refused(found: Entry, verb: str, kind: type[AmuxError], why: str) -> None:
    error = refusal(found, verb)
    assert (type(error), str(error)) == (kind, why)


@pytest.mark.parametrize(
    ("found", "why", "kind"),
    [
        (entry(State.STOPPED, BEGINS_ANEW), lambda found: found.why_not_resumable, NotResumable),
        (entry(State.STOPPED, found_lost=("talk", LOST)), lambda found: LOST, NotResumable),
        (entry(State.STOPPED), lambda found: "systemd does not tell", NotResumableYet),
    ],
)
def test_what_could_not_be_looked_at_may_be_resumable_yet(
    found: Entry, why: Callable[[Entry], str], kind: type[NotResumable]
) -> None:
    assert type(not_resumable(found, why(found))) is kind
