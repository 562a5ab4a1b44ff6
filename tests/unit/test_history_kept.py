"""What came before the end is on disk before the end, which is told the sooner."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import files


def test_an_end_waits_for_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        synced: list[Path] = []
        sync = files.sync

        def note(path: Path) -> None:
            sync(path)
            synced.append(path)

        monkeypatch.setattr(files, "sync", note)
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        history = world.store.directory(entry.id) / "history.jsonl"
        # That it starts, and that it runs.
        await world.until(lambda: synced.count(history) == 2)
        synced.clear()
        told: list[list[Path]] = []
        monkeypatch.setattr(world.changes, "moved", lambda *_: told.append(list(synced)))
        assert entry.state.command is not None
        os.kill(entry.state.command.pid, signal.SIGKILL)
        await world.until(lambda: told)
        assert told[0] == [history.parent]

    asyncio.run(in_world(tmp_path, story))
