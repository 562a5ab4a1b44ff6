"""What keeps those from beginning whose turn it is in a queue is said, and said no longer than it does."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd.records import HistoryEntry, RunState, Workspace
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import StoreError
from amuxd.supervisor import LONGEST_REASON
from amuxd.workspaces import slots
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.queue import Queue

SHELF = "waiting for a slot in shelf"


def on(root: Path, story: Callable[[World, Queue], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        workspace = Workspace("shelf1", "shelf", "/", 1, slots=1)
        await world.workspaces.write(workspace)
        world.workspaces.know(workspace)
        world.workspaces.found(workspace, Presence.PRESENT)
        queue = Queue(world.runs, world.workspaces)
        world.supervisor.listen(queue)
        world.workspaces.listen(queue)
        async with asyncio.timeout(30):
            await story(world, queue)

    asyncio.run(in_world(root, run))


async def queued(world: World, number: int) -> list[Entry]:
    """And who holds the slot that they wait for, as the first."""
    entries = [
        await world.create(None, "sleep", "1000", workspace_id="shelf1", queue=True)
        for _ in range(number + 1)
    ]
    for entry in entries:
        await world.runs.start(entry)
    return entries


class Refusals:
    """A disk on which this session gets no slot, for this reason or none."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of, self.why = "", ""
        take = world.workspaces.ledger.take

        def refuse(workspace_id: str, session_id: str, *about: Any) -> slots.Outcome:
            if self.why and session_id == self.of:
                raise StoreError(self.why)
            return take(workspace_id, session_id, *about)

        monkeypatch.setattr(world.workspaces.ledger, "take", refuse)


@pytest.mark.parametrize("gets_out_of_the_way", ["by itself", "with its session"])
def test_it_is_said_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gets_out_of_the_way: str
) -> None:
    async def story(world: World, queue: Queue) -> None:
        holder, first, second = await queued(world, 2)
        refusals = Refusals(world, monkeypatch)
        refusals.of, refusals.why = first.id, "the disk is full"
        await world.runs.stop(holder, 1)
        name = first.session.name
        said = f"{SHELF} (1st); cannot begin: {name} gets no slot: the disk is full"
        await world.until(lambda: first.state.reason == said)
        assert second.state.reason == f"{SHELF} (2nd)"
        # Another reason the next time.
        refusals.why = "the disk is gone " + 2 * LONGEST_REASON * "!"
        queue.advance_all()
        await world.until(lambda: "gone" in first.state.reason)
        assert len(first.state.reason) == LONGEST_REASON
        assert first.waits_for_slot
        refusals.why = ""
        if gets_out_of_the_way == "by itself":
            queue.advance_all()
            await world.until(lambda: first.state.state is State.RUNNING)
            await world.until(lambda: second.state.reason == f"{SHELF} (1st)")
        else:
            await world.runs.remove(first, force=False)
            await world.until(lambda: second.state.state is State.RUNNING)
        assert not second.obstacle

    on(tmp_path, story)


def test_what_goes_just_while_it_is_said_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, queue: Queue) -> None:
        holder, first = await queued(world, 1)
        refusals = Refusals(world, monkeypatch)
        refusals.of, refusals.why = first.id, "the disk is full"
        say = queue._tell_obstacle

        async def say_while_it_goes(workspace_id: str) -> None:
            refusals.why = ""
            await queue.advance(workspace_id)
            await say(workspace_id)

        monkeypatch.setattr(queue, "_tell_obstacle", say_while_it_goes)
        await world.runs.stop(holder, 1)
        await world.until(lambda: first.state.state is State.RUNNING)

    on(tmp_path, story)


def test_who_was_given_a_slot_in_vain_is_the_next_still_and_the_others_are_told_no_other_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, queue: Queue) -> None:
        holder, first, second = await queued(world, 2)
        change = world.store.change

        def refuse(present: RunState, new: RunState, line: HistoryEntry | None) -> None:
            if new.session_id == first.id:
                raise StoreError("the disk is full")
            change(present, new, line)

        monkeypatch.setattr(world.store, "change", refuse)
        await world.runs.stop(holder, 1)
        await world.until(lambda: first.obstacle and not queue._starting)
        assert second.state.reason == f"{SHELF} (2nd)"
        monkeypatch.setattr(world.store, "change", change)
        queue.advance_all()
        await world.until(lambda: first.state.state is State.RUNNING)

    on(tmp_path, story)
