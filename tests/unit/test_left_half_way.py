"""What an amuxd left starting or stopping is ended by whoever comes first, and only once."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import reconcile
from amuxd.hosts import Alive, Finding, Home
from amuxd.records import RunState, Session
from amuxd.registry import Entry
from amuxd.states import StartRequested, StopRequested
from amuxd.supervisor import USER


async def left_starting(world: World) -> Entry:
    entry = await world.create(None, "sleep", "1000")
    await world.supervisor.apply(entry, StartRequested(), USER)
    return entry


async def left_stopping(world: World) -> Entry:
    entry = await world.create(None, "sleep", "1000")
    await world.runs.start(entry)
    await world.supervisor.apply(entry, StopRequested(), USER)
    command, server = entry.state.command, entry.state.server
    assert command
    assert server

    async def find(session: Session, state: RunState) -> Finding:
        return Alive(Home(command, server, os.pidfd_open(command.pid), os.pidfd_open(server.pid)))

    world.host.find = find  # type: ignore[method-assign]
    return entry


@pytest.mark.parametrize("left", [left_starting, left_stopping])
def test_it_is_removed_before_amuxd_goes_on_with_it(
    tmp_path: Path, left: Callable[[World], Awaitable[Entry]]
) -> None:
    async def story(world: World) -> None:
        entry = await left(world)
        async with entry.operation:
            removing = asyncio.create_task(world.runs.remove(entry, force=True))
            await asyncio.sleep(0)
            # What goes on with it comes second.
            await reconcile.reconcile(world.runs)
        await removing
        await asyncio.gather(*world.supervisor._tasks)
        assert all(process.wait(20) for process in world.host.processes)
        assert list(world.supervisor.registry) == []
        assert [path.name for path in world.store.sessions.iterdir() if path.is_dir()] == []

    asyncio.run(in_world(tmp_path, story))
