"""What the status line of a terminal is told, and when."""

import asyncio
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd.statuslines import StatusLines


def told(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []

    async def show_status(session_id: str, text: str) -> None:
        # A terminal takes its time, in which the session goes on.
        await asyncio.sleep(0.05)
        said.append(text)

    monkeypatch.setattr(world.host, "show_status", show_status)
    world.supervisor.listen(StatusLines(world.supervisor, world.host))
    return said


def test_the_last_that_it_says_is_how_the_session_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        said = told(world, monkeypatch)
        world.host.clients = 1
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.runs.homes.attachment_changed(entry.id)
        await world.until(lambda: said == ["running"])
        # The same again is nothing to say.
        world.supervisor.changed(entry, "Attached")
        world.host.end()
        await world.until(lambda: entry.keeps_terminal and said[-1] == "failed (SIGKILL)")
        await world.runs.restart(entry)
        await world.until(lambda: said[-1] == "running")
        assert said.count("running") == 2

    asyncio.run(in_world(tmp_path, story))


def test_nothing_is_said_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        said = told(world, monkeypatch)
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        await world.runs.stop(entry, 5)
        await world.runs.restart(entry)
        # For this one somebody has come, and what was to be said before it were said by then.
        world.host.clients = 1
        world.runs.homes.attachment_changed(entry.id)
        await world.until(lambda: said)
        assert said == ["running"]

    asyncio.run(in_world(tmp_path, story))
