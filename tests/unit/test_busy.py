"""What is only held up for a moment is not told as a fault."""

import asyncio
import fcntl
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import files
from amuxd.errors import Busy
from amuxd.states import State


def test_files_that_another_process_has_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.1)

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        with (world.store.directory(entry.id) / ".lock").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(Busy, match=r"stays created: .* locked by another process"):
                await world.runs.archive(entry)
            assert entry.state.state is State.CREATED
        await world.runs.archive(entry)
        with (world.store.sessions / ".lock").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(Busy):
                await world.runs.remove(entry, force=False)
        await world.runs.remove(entry, force=False)

    asyncio.run(in_world(tmp_path, story))
