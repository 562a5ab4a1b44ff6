"""What amuxd writes down for the next one before it goes."""

import asyncio
import re
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from standin_host import World, in_world
from test_told_later import full

from amuxd import attention, conversations, learning, runs
from amuxd.agents import CONVERSATION, Agent, Kept
from amuxd.files import Locked
from amuxd.reconcile import reconcile
from amuxd.records import HistoryEntry, RunState
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import Known, Store
from amuxd.supervisor import now

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "1000"))
TALKER = Agent(
    "talker",
    ("sh", "-c", "exec sleep 1000", CONVERSATION),
    resume=("sh", "-c", "exec sleep 1000", CONVERSATION),
    kept=Kept("TALKS", ".talks", f"{CONVERSATION}.jsonl", re.compile(b"said")),
)
MANY = 40


class SlowDisk:
    """Holds back the word that a command runs."""

    def __init__(self, store: Store) -> None:
        self.asked, self.go_on = asyncio.Event(), threading.Event()
        self._loop, self._change = asyncio.get_running_loop(), store.change
        store.change = self._slowly  # type: ignore[method-assign]

    def _slowly(self, expected: RunState, new: RunState, entry: HistoryEntry | None) -> None:
        if new.state is State.RUNNING:
            self._loop.call_soon_threadsafe(self.asked.set)
            self.go_on.wait(60)
        self._change(expected, new, entry)


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


def test_what_has_ended_and_cannot_be_written_is_not_suspended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        await world.runs.parting.keep_room()
        entry = await world.start(SLEEPER)
        world.supervisor._together._do = lambda changes: [False] * len(changes)
        with full(world):
            world.host.end()
            await world.until(lambda: entry.unwritten)
            refused = await world.runs.suspend("amuxd was stopped")
        await world.runs.part("amuxd was stopped", refused)
        assert on_disk(world, entry).state is State.RUNNING
        assert [word.ended_at for word in world.store.last_words.read()] == [entry.ended_at]
        assert not any(record.exc_info for record in caplog.records)

    asyncio.run(in_world(tmp_path, story))


def test_what_another_process_keeps_locked_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry, other = [await world.start(SLEEPER) for _ in range(2)]
        tried = []

        def keeps_locked(old: RunState, *_: object) -> None:
            tried.append(old.session_id)
            raise Locked(f"{old.session_id} has been locked by another process")

        await world.runs.parting.keep_room()
        with FileLock(world.store.directory(entry.id) / ".lock"):
            monkeypatch.setattr(world.store, "change", keeps_locked)
            refused = await world.runs.suspend("amuxd was stopped")
            await world.runs.part("amuxd was stopped", refused)
        assert tried == [entry.id]
        assert (on_disk(world, entry).state, on_disk(world, other).state) == (State.RUNNING, State.SUSPENDED)
        assert [word.session_id for word in world.store.last_words.read()] == [entry.id]

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


def test_of_what_was_just_parked_it_is_the_persons_turn_also_for_the_next_amuxd(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.supervisor.attend(entry, attention.Reported(attention.Kind.TURN, "", now()))
        await world.runs.parking.park(entry)
        await world.runs.suspend("amuxd was stopped")
        # Told late: its process has ended before.
        await world.supervisor.attend(entry, attention.Died())
        assert (entry.state.state, entry.state.attention) == (State.SUSPENDED, "turn")
        await reconcile(world.runs)
        assert (entry.parked, on_disk(world, entry).attention) == (True, "turn")

    asyncio.run(in_world(tmp_path, story))


def test_what_the_kernel_had_killed_for_memory_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        counted = tmp_path / "memory.events"
        counted.touch()
        monkeypatch.setattr(world.host, "memory_events", lambda server: counted)
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
