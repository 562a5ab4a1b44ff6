"""What amuxd finds over on a disk that refuses: it is said, and becomes what it would have been at once."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world
from test_told_later import full

from amuxd import aftermath, attention, cleaning, comeback, homes, operations
from amuxd import supervisor as supervising
from amuxd.agents import Agent
from amuxd.config import Settings
from amuxd.errors import Busy
from amuxd.hosts import Alive, Ended, Finding, Gone, Home
from amuxd.reconcile import reconcile
from amuxd.records import LastWord, ResumePolicy, RunState, Session
from amuxd.registry import Entry
from amuxd.retention import Retention
from amuxd.states import End, Liveness, State
from amuxd.store import Known
from amuxd.supervisor import now

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "1000"))
COMPLETED = Ended(End(code=0))


@pytest.fixture(autouse=True)
def _try_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (supervising, operations, comeback, aftermath):
        monkeypatch.setattr(module, "RETRY_PAUSE", 0.01)


async def left(world: World, resume: ResumePolicy = ResumePolicy.MANUAL) -> Entry:
    """One that ran when the amuxd before this one was killed, and is over."""
    entry = await world.create(None, "sleep", "1000", resume=resume)
    await world.runs.start(entry)
    world.runs.homes.leave(entry)
    return entry


def finds(world: World, finding: Finding) -> None:
    async def find(session: Session, state: RunState) -> Finding:
        return finding

    world.host.find = find  # type: ignore[method-assign]


def on_disk(world: World, entry: Entry) -> State:
    known = world.store.load(entry.id)
    assert isinstance(known, Known)
    return known.state.state


def told(tmp_path: Path, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(in_world(tmp_path, story))


def test_it_is_said_to_be_over_until_that_is_written(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world)
        finds(world, Ended(End(code=3)))
        with full(world):
            await reconcile(world.runs)
            assert (entry.state.state, entry.session_alive) == (State.RUNNING, Liveness.DEAD)
            assert entry.why_unwritten.startswith(
                "it is failed (exited with code 3), and that is not written"
            )
            async with asyncio.timeout(10):
                with pytest.raises(Busy, match="exited with code 3"):
                    await world.runs.stop(entry, 1)
        await world.until(lambda: entry.state.state is State.FAILED)
        assert entry.why_unwritten == ""

    told(tmp_path, story)


def test_what_is_found_gone_is_so_since_it_was_found(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world)
        finds(world, Gone())
        with full(world):
            await reconcile(world.runs)
            found = now()
            await asyncio.sleep(0.05)
        await world.until(lambda: entry.state.state is State.FAILED)
        assert entry.state.state_changed_at <= found < entry.state.known_at

    told(tmp_path, story)


def test_the_dead_wait_for_nobody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world)
        await world.supervisor.attend(entry, attention.Reported(attention.Kind.PERMISSION, "", now()))
        world.supervisor.boot_id = "another boot"
        with full(world):
            await reconcile(world.runs)
        await world.until(lambda: entry.state.state is State.SUSPENDED)
        assert world.supervisor.registry.attention() == []

    told(tmp_path, story)


def test_what_cannot_be_cleared_away_is_told_all_the_same(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world)
        finds(world, Gone())
        world.host.failing["tear_down"] = OSError("something lives on")
        await reconcile(world.runs)
        await world.runs.aftermath.settled(entry)
        assert (entry.state.state, entry.why_unwritten) == (State.FAILED, "")
        world.host.failing.clear()
        await world.runs.remove(entry, force=False)

    told(tmp_path, story)


def test_what_cannot_be_cleared_away_of_one_that_is_suspended_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "RETRY_PAUSE", 0.01)

    async def story(world: World) -> None:
        entry = await left(world)
        word_of(world, entry)
        finds(world, Gone())
        monkeypatch.setattr(world.host, "has_terminal", lambda _: True)
        world.host.failing["tear_down"] = OSError("something lives on")
        await reconcile(world.runs)
        assert (entry.state.state, entry.why_unwritten) == (State.SUSPENDED, "")
        world.host.failing.clear()
        torn_down = asyncio.Event()

        async def tear_down(session_id: str, at_once: bool = False) -> None:
            torn_down.set()

        monkeypatch.setattr(world.host, "tear_down", tear_down)
        async with asyncio.timeout(10):
            await torn_down.wait()

    told(tmp_path, story)


def test_what_is_found_over_is_not_suspended_in_the_pause_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "RETRY_PAUSE", 60)

    async def story(world: World) -> None:
        entry, other = await left(world), await left(world)
        finds(world, Gone())
        with full(world):
            await reconcile(world.runs)
        async with other.writing:
            # That is waited for, and whoever was cancelled ends meanwhile.
            changing = asyncio.ensure_future(world.supervisor.amend(other, "Reason"))
            await asyncio.sleep(0)
            parting = asyncio.ensure_future(world.runs.part("amuxd was stopped"))
            await asyncio.wait([parting], timeout=0.1)
        await asyncio.gather(changing, parting)
        assert on_disk(world, entry) is State.RUNNING

    told(tmp_path, story)


def test_one_that_is_to_come_back_and_has_completed_stays_so(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", resume=ResumePolicy.AUTO)
        await world.runs.start(entry)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        finds(world, COMPLETED)
        with full(world):
            await reconcile(world.runs)
            await comeback.bring_back(world.runs)
            async with asyncio.timeout(10):
                with pytest.raises(Busy, match="it is completed"):
                    await world.runs.stop(entry, 1)
        await world.until(lambda: entry.state.state is State.COMPLETED)
        await world.runs.aftermath.settled(entry)
        async with asyncio.timeout(10), entry.operation:
            assert (entry.state.state, entry.state.run) == (State.COMPLETED, 1)

    told(tmp_path, story)


def test_one_that_went_down_with_the_machine_comes_back_once_that_is_written(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world, ResumePolicy.AUTO)
        world.supervisor.boot_id = "another boot"
        with full(world):
            await reconcile(world.runs)
            await comeback.bring_back(world.runs)
            assert entry.state.state is State.RUNNING
        await world.until(lambda: entry.state.run == 2 and entry.state.state is State.RUNNING)

    told(tmp_path, story)


def test_it_is_not_cleaned_away_before_anybody_could_see_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        finds(world, COMPLETED)
        world.runs.configure(
            Settings(retention=Retention(suspended=0, suspended_resumable=0, completed=3600))
        )
        with full(world):
            await reconcile(world.runs)
            async with asyncio.timeout(5):
                assert await cleaning.clean(world.runs, dry_run=False) == []
        await world.until(lambda: entry.state.state is State.COMPLETED)

    told(tmp_path, story)


def word_of(world: World, entry: Entry, ended_at: int = 0) -> LastWord:
    """As the amuxd before left it."""
    word = LastWord(entry.id, entry.state.state_changed_at, now(), "amuxd was stopped", ended_at)
    world.store.last_words.write([word])
    return word


def test_a_word_that_two_amuxds_could_not_write_down_is_kept(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry, other = await left(world), await world.start(SLEEPER)
        home = other.home
        assert home is not None
        again = Home(home.command, home.server, os.dup(home.command_fd), os.dup(home.server_fd))
        word = word_of(world, entry)

        async def find(session: Session, state: RunState) -> Finding:
            return Alive(again) if session.id == other.id else Gone()

        world.host.find = find  # type: ignore[method-assign]
        world.supervisor._together._do = lambda changes: [False] * len(changes)
        with full(world):
            await reconcile(world.runs)
            await world.runs.part("amuxd was stopped again")
        words = {known.session_id: known for known in world.store.last_words.read()}
        assert words[entry.id] == word
        assert words[other.id].why == "amuxd was stopped again"

    told(tmp_path, story)


def test_what_was_seen_to_end_did_not_go_down_with_the_machine(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await left(world, ResumePolicy.AUTO)
        word = word_of(world, entry, ended_at=now())
        world.supervisor.boot_id = "another boot"
        await reconcile(world.runs)
        assert entry.state.state is State.FAILED
        assert entry.state.reason == "gone without a trace, its end is not known"
        assert (entry.state.state_changed_at, entry.state.cut_short) == (word.ended_at, False)

    told(tmp_path, story)
