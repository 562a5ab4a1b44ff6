"""A terminal that was kept for who looked at it goes when they do, whatever else is done meanwhile."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import homes, inotify
from amuxd.hosts.tmux import TmuxUnreachable
from amuxd.records import Process
from amuxd.registry import Entry
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


def test_the_last_one_leaves_and_the_kernel_cannot_tell_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await kept(world)
        (tmp_path / "attached").mkdir()
        world.runs.homes.watch_attachments(tmp_path / "attached")
        world.host.clients = 0
        with monkeypatch.context() as patch:
            lost = [inotify.Event(-1, inotify.OVERFLOW, "")]
            patch.setattr(world.watch._inotify, "read", lambda: lost)
            world.watch._file_events()
        await world.until(lambda: not entry.attached and entry.host_alive is Liveness.DEAD)

    asyncio.run(in_world(tmp_path / "state", story))


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def kept(world: World) -> Entry:
    entry = await world.create(None, "true")
    world.host.clients = 1
    await world.runs.start(entry)
    await world.until(lambda: entry.certificate is not None and entry.certificate.complete)
    return entry


def test_one_that_does_not_answer_is_kept_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "RETRY_PAUSE", 0.05)

    async def story(world: World) -> None:
        entry = await kept(world)
        world.host.failing["attached"] = TmuxUnreachable("tmux did not answer within 5 s")
        world.changes.happened.clear()
        world.runs.homes.attachment_changed(entry.id)
        await world.changes.happened.wait()
        assert (entry.attached, entry.host_alive) == (1, Liveness.ALIVE)
        world.host.failing.clear()
        world.host.clients = 0
        await world.until(lambda: entry.host_alive is Liveness.DEAD)

    asyncio.run(in_world(tmp_path, story))


def test_one_that_is_no_more_has_nobody_who_looks_at_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")

        async def attached(session_id: str) -> int:
            entry.state = replace(entry.state, server=Process(2**22 + 1, 1))
            raise TmuxUnreachable("no server running")

        world.host.attached = attached  # type: ignore[method-assign]
        entry.attached = 1
        await world.runs.start(entry)
        await world.until(lambda: entry.certificate is not None and entry.certificate.complete)
        assert (entry.attached, entry.host_alive) == (0, Liveness.DEAD)

    asyncio.run(in_world(tmp_path, story))


def test_an_older_answer_does_not_overtake_a_newer_one(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await kept(world)
        one_is_asked, answer_it = asyncio.Event(), asyncio.Event()

        async def attached(session_id: str) -> int:
            if one_is_asked.is_set():
                return 0
            one_is_asked.set()
            await answer_it.wait()
            return 1

        world.host.attached = attached  # type: ignore[method-assign]
        world.runs.homes.attachment_changed(entry.id)
        await one_is_asked.wait()
        world.runs.homes.attachment_changed(entry.id)
        # As far as it gets without the answer to the first, and then as far as that gets.
        await turns()
        answer_it.set()
        await turns()
        await world.until(lambda: entry.host_alive is Liveness.DEAD)
        assert entry.attached == 0

    asyncio.run(in_world(tmp_path, story))
