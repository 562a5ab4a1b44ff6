"""A terminal that was kept for who looked at it goes when they do, whatever else is done meanwhile."""

import asyncio
from pathlib import Path

from standin_host import World, in_world

from amuxd.states import Liveness, State


def test_the_last_one_leaves_while_something_else_is_done(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        world.host.clients = 1
        await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.COMPLETED and entry.keeps_terminal)
        async with entry.operation:
            world.host.clients = 0
            world.runs.homes.attachment_changed(entry.id)
            await world.until(lambda: not entry.attached)
            assert entry.host_alive is Liveness.ALIVE
        await world.until(lambda: entry.host_alive is Liveness.DEAD)

    asyncio.run(in_world(tmp_path, story))
