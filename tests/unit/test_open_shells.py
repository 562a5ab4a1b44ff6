"""A shell that stays open after its command, and what is asked of it just then."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd.errors import Internal, InvalidTransition
from amuxd.hosts import EXIT_STATUS, StopRefused
from amuxd.registry import Entry
from amuxd.states import End, State, Transition


def test_it_can_be_stopped_from_the_moment_at_which_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", shell=True)
        stopping: list[asyncio.Task[None]] = []
        torn_down: list[str] = []
        moved = world.changes.moved

        def stop_at_once(entry: Entry, transition: Transition) -> None:
            if transition.target is State.COMPLETED:
                stopping.append(asyncio.ensure_future(world.runs.stop(entry, 5)))
            moved(entry, transition)

        async def tear_down(session_id: str, **_: Any) -> None:
            torn_down.append(session_id)
            world.host.end()

        world.changes.moved = stop_at_once  # type: ignore[method-assign]
        monkeypatch.setattr(world.host, "tear_down", tear_down)
        await world.runs.start(entry)
        status = world.store.run_directory(entry.id, 1) / EXIT_STATUS
        monkeypatch.setattr(world.host, "end_in_shell", lambda *_: End(code=0))
        status.with_suffix(".new").write_text("0\n")
        status.with_suffix(".new").rename(status)
        await world.until(lambda: stopping)
        await stopping[0]
        assert torn_down == [entry.id]
        assert not entry.shell_open

    asyncio.run(in_world(tmp_path, story))


def test_one_that_cannot_be_ended_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", shell=True)
        await world.runs.start(entry)
        status = world.store.run_directory(entry.id, 1) / EXIT_STATUS
        monkeypatch.setattr(world.host, "end_in_shell", lambda *_: End(code=0))
        status.with_suffix(".new").write_text("0\n")
        status.with_suffix(".new").rename(status)
        await world.until(lambda: entry.shell_open)
        world.host.failing["tear_down"] = StopRefused("its unit does not end (timeout)")
        with pytest.raises(Internal, match="could not be ended: its unit does not end"):
            await world.runs.stop(entry, 5)
        assert entry.shell_open
        assert entry.keeps_terminal
        world.host.failing.clear()
        await world.runs.stop(entry, 5)
        assert not entry.shell_open

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("begun_again", [False, True])
def test_its_end_is_shown_to_who_looks_at_it_and_not_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_again: bool
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", shell=True)
        shown: list[str] = []

        async def show_end(session_id: str, text: str) -> None:
            shown.append(text)

        monkeypatch.setattr(world.host, "show_end", show_end)
        await world.runs.start(entry)
        monkeypatch.setattr(world.host, "end_in_shell", lambda *_: End(code=0))
        world.runs.aftermath.look_for_end_in_shell(entry)
        await world.until(lambda: entry.shell_open)
        await world.runs.aftermath.settled(entry)
        world.host.clients = 1
        async with entry.operation:
            restarting = asyncio.ensure_future(world.runs.restart(entry)) if begun_again else None
            await asyncio.sleep(0)
            world.host.end()
            await world.until(lambda: not entry.shell_open)
        if restarting:
            await restarting
            # Nobody else wants it any more.
            async with entry.operation:
                assert entry.state.run == 2
        else:
            await world.until(lambda: shown)
        assert shown == ([] if begun_again else ["Process exited with code 0. Click or press R to restart."])

    asyncio.run(in_world(tmp_path, story))


def test_who_asks_to_close_what_is_being_closed_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", shell=True)
        await world.runs.start(entry)
        monkeypatch.setattr(world.host, "end_in_shell", lambda *_: End(code=0))
        world.runs.aftermath.look_for_end_in_shell(entry)
        await world.until(lambda: entry.shell_open)
        await asyncio.gather(world.runs.stop(entry, 5), world.runs.stop(entry, 5))
        assert (entry.state.state, entry.shell_open) == (State.COMPLETED, False)
        with pytest.raises(InvalidTransition, match="is completed, stop is not possible"):
            await world.runs.stop(entry, 5)

    asyncio.run(in_world(tmp_path, story))
