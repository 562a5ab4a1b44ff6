"""What amuxd writes down for the next one before it goes."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import conversations, learning, runs
from amuxd.agents import CONVERSATION, Agent, Kept
from amuxd.records import HistoryEntry, RunState
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import Known, Store

TALKER = Agent(
    "talker",
    ("sh", "-c", "exec sleep 1000", CONVERSATION),
    resume=("sh", "-c", "exec sleep 1000", CONVERSATION),
    kept=Kept("TALKS", ".talks", f"{CONVERSATION}.jsonl", b"said"),
)
MANY = 40


class SlowDisk:
    """Holds back the word that a command runs."""

    def __init__(self, store: Store) -> None:
        self.asked, self.go_on = asyncio.Event(), threading.Event()
        self._loop, self._change = asyncio.get_running_loop(), store.change
        store.change = self._slowly  # type: ignore[method-assign]

    def _slowly(self, old: RunState, new: RunState, line: HistoryEntry | None) -> None:
        if new.state is State.RUNNING:
            self._loop.call_soon_threadsafe(self.asked.set)
            self.go_on.wait(60)
        self._change(old, new, line)


def on_disk(world: World, entry: Entry) -> RunState:
    known = world.store.load(entry.id)
    assert isinstance(known, Known)
    return known.state


@pytest.mark.parametrize("begun_by", ["start", "restart"])
def test_what_is_being_begun_as_amuxd_goes_is_left_suspended(tmp_path: Path, begun_by: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        if begun_by == "restart":
            await world.runs.start(entry)
            await world.runs.stop(entry, 1)
        disk = SlowDisk(world.store)
        asking = asyncio.ensure_future(getattr(world.runs, begun_by)(entry))
        await disk.asked.wait()
        parting = asyncio.ensure_future(world.runs.part("amuxd was stopped"))
        try:
            assert not (await asyncio.wait({parting}, timeout=0.3))[0]
        finally:
            disk.go_on.set()
        await parting
        assert on_disk(world, entry).state is State.SUSPENDED
        assert asking.cancelled()

    asyncio.run(in_world(tmp_path, story))


def test_amuxd_goes_though_the_disk_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LAST_WRITTEN", 0.05)

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        disk = SlowDisk(world.store)
        asking = asyncio.ensure_future(world.runs.start(entry))
        await disk.asked.wait()
        try:
            async with asyncio.timeout(30):
                await world.runs.part("amuxd was stopped")
            assert on_disk(world, entry).state is State.STARTING
            assert asking.cancelled()
        finally:
            disk.go_on.set()

    asyncio.run(in_world(tmp_path, story))


def test_what_the_kernel_had_killed_for_memory_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        monkeypatch.setattr(world.host, "memory_kills", lambda server: 3)
        await world.runs.suspend("amuxd was stopped")
        assert (entry.state.state, entry.state.memory_kills) == (State.SUSPENDED, 3)

    asyncio.run(in_world(tmp_path, story))


def test_of_many_agents_a_few_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They must not take the time from each other: what is not found out in it is not known any more."""
    monkeypatch.setattr(learning, "LAST_DEADLINE", 60)
    turn, now, most = threading.Lock(), 0, 0

    def was_said(*_: object) -> bool:
        nonlocal now, most
        with turn:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with turn:
            now -= 1
        return False

    async def story(world: World) -> None:
        entries = [await world.start(TALKER) for _ in range(MANY)]
        monkeypatch.setattr(conversations, "was_said", was_said)
        await world.runs.suspend("amuxd was stopped")
        assert {(entry.state.state, entry.state.said) for entry in entries} == {(State.SUSPENDED, False)}
        assert most <= runs.LOOKED_AT_ONCE

    asyncio.run(in_world(tmp_path, story))


def test_agents_whose_files_hang_are_suspended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nobody it is said then that it is known what was said."""
    monkeypatch.setattr(learning, "LAST_DEADLINE", 0.5)
    monkeypatch.setattr(runs, "ALL_LOOKED_AT", 0.1)
    monkeypatch.setattr(runs, "LOOKED_AT_ONCE", 1)
    go_on, asked = threading.Event(), []

    def was_said(*question: object) -> bool:
        asked.append(question)
        go_on.wait(60)
        return False

    async def story(world: World) -> None:
        entries = [await world.start(TALKER) for _ in range(MANY)]
        monkeypatch.setattr(conversations, "was_said", was_said)
        try:
            await world.runs.suspend("amuxd was stopped")
            assert {(entry.state.state, entry.state.said) for entry in entries} == {(State.SUSPENDED, None)}
            assert len(asked) <= 1
        finally:
            go_on.set()

    asyncio.run(in_world(tmp_path, story))
