"""What no event told of is found by the sweep."""

import asyncio
import errno
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import reconcile
from amuxd.states import End, State


def test_the_end_in_a_shell_whose_directory_could_not_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(world.watch, "directory", refuse)
        entry = await world.create(None, "sleep", "1000", shell=True)
        await world.runs.start(entry)
        await reconcile.sweep(world.runs)
        assert entry.state.state is State.RUNNING

        def cannot_read(*_: object) -> End | None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(world.host, "end_in_shell", cannot_read)
        await reconcile.sweep(world.runs)
        assert entry.state.state is State.RUNNING
        monkeypatch.setattr(world.host, "end_in_shell", lambda *_: End(code=3))
        await reconcile.sweep(world.runs)
        await world.until(lambda: entry.state.state is State.FAILED)
        assert entry.state.reason == "exited with code 3"

    asyncio.run(in_world(tmp_path, story))
