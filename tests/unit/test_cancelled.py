"""Who asked for something may not be there any more to hear of it: no session is left half way for that."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd.agents import Agent
from amuxd.registry import Entry
from amuxd.states import State

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "2000"))

Ask = Callable[[World, Entry], Awaitable[object]]


class Slow:
    def __init__(self, work: Callable[..., Awaitable[Any]]) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self._work = work

    async def __call__(self, *arguments: Any) -> Any:
        self.begun.set()
        await self.go_on.wait()
        return await self._work(*arguments)


async def stopped(world: World, entry: Entry) -> None:
    await world.runs.stop(entry, 1)


async def parked(world: World, entry: Entry) -> None:
    await world.runs.parking.park(entry)


@pytest.mark.parametrize(
    ("before", "asked", "slowly", "after"),
    [
        (stopped, lambda world, entry: world.runs.resume(entry), "launch", (State.RUNNING, 2, False)),
        (stopped, lambda world, entry: world.runs.restart(entry), "launch", (State.RUNNING, 2, False)),
        (parked, lambda world, entry: world.runs.resume(entry), "launch", (State.RUNNING, 1, False)),
        (None, stopped, "ask_to_end", (State.STOPPED, 1, False)),
        (None, parked, "ask_to_end", (State.RUNNING, 1, True)),
    ],
)
def test_what_was_asked_for_is_done_to_its_end(
    tmp_path: Path, before: Ask | None, asked: Ask, slowly: str, after: tuple[State, int, bool]
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        if before:
            await before(world, entry)
        slow = Slow(getattr(world.host, slowly))
        setattr(world.host, slowly, slow)
        asking = asyncio.ensure_future(asked(world, entry))
        await slow.begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert entry.operation.locked()
        slow.go_on.set()
        async with entry.operation:
            assert (entry.state.state, entry.state.run, entry.parked) == after

    asyncio.run(in_world(tmp_path, story))
