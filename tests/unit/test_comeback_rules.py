"""Who comes back by itself, and when that counts as failed."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd import comeback
from amuxd.agents import Agent
from amuxd.comeback import failures_in_a_row, is_candidate
from amuxd.records import ResumePolicy, RunState, Session
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import Known, StoreError

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "2000"))

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


def test_one_that_lasted_before_it_failed_has_come_back() -> None:
    assert not is_candidate(entry(State.FAILED, auto_run=5, auto_lasted=True), THIS)
    assert is_candidate(entry(State.SUSPENDED, auto_run=5, auto_lasted=True), THIS)


def test_only_once_a_boot_and_only_who_wants_it() -> None:
    assert not is_candidate(entry(State.SUSPENDED, auto_boot=THIS), THIS)
    assert is_candidate(entry(State.SUSPENDED, auto_boot=EARLIER), THIS)
    manual = entry(State.SUSPENDED)
    manual.session = replace(manual.session, resume=ResumePolicy.MANUAL)
    assert not is_candidate(manual, THIS)


@pytest.mark.parametrize(
    ("state", "known", "failures"),
    [
        # Somebody else's word began it.
        (State.SUSPENDED, {"cut_short": True}, 0),
        (State.FAILED, {}, 0),
        (State.FAILED, {"auto_run": 5, "auto_failures": 1}, 2),
        (State.SUSPENDED, {"auto_run": 5, "auto_failures": 2, "cut_short": True}, 3),
        # It ran until the machine went down in order, or for long enough.
        (State.SUSPENDED, {"auto_run": 5, "auto_failures": 2}, 0),
        (State.SUSPENDED, {"auto_run": 5, "auto_failures": 2, "cut_short": True, "auto_lasted": True}, 0),
    ],
)
@pytest.mark.parametrize("boot", [THIS, EARLIER])
def test_what_counts_as_a_failure(state: State, known: dict[str, object], failures: int, boot: str) -> None:
    """Whatever else was written since, and on whichever boot."""
    assert failures_in_a_row(entry(state, boot_id=boot, **known)) == failures


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_run_that_lasts_is_written_down_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(comeback, "RETRY_PAUSE", 0.01)

    async def story(world: World) -> None:
        subject = await world.create(SLEEPER, resume=ResumePolicy.AUTO)
        await world.runs.start(subject)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(subject)
        await comeback.bring_back(world.runs)
        monkeypatch.setattr(comeback, "LASTING", 300_000)
        # As the next amuxd, which finds it running.
        refuse(world, refusals)
        await comeback.bring_back(world.runs)
        assert not subject.state.auto_lasted
        await world.until(lambda: subject.state.auto_lasted)
        assert subject.state.run == 2
        known = world.store.load(subject.id)
        assert isinstance(known, Known)
        assert known.state.auto_lasted
        await world.runs.stop(subject, 1)
        await world.runs.restart(subject)
        assert not subject.state.auto_lasted

    asyncio.run(in_world(tmp_path, story))


def test_one_that_ends_before_has_not_lasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        its_time = asyncio.Event()
        waiting = SimpleNamespace(**{**vars(asyncio), "sleep": lambda _: its_time.wait()})
        monkeypatch.setattr(comeback, "asyncio", waiting)
        subject = await world.create(SLEEPER, resume=ResumePolicy.AUTO)
        await world.runs.start(subject)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(subject)
        await comeback.bring_back(world.runs)
        [watching] = [t for t in world.supervisor._tasks if "_see_it_last" in repr(t)]
        await world.runs.stop(subject, 1)
        monkeypatch.setattr(comeback, "LASTING", 0)
        its_time.set()
        await watching
        assert not subject.state.auto_lasted

    asyncio.run(in_world(tmp_path, story))


def refuse(world: World, times: int) -> None:
    change = world.store.change

    def refused(*arguments: Any, **options: Any) -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            raise StoreError("it could not be changed: No space left on device")
        change(*arguments, **options)

    world.store.change = refused  # type: ignore[method-assign]
