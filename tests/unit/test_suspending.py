"""What amuxd writes down for the next one before it goes."""

import asyncio
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd.states import State


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
