"""What is seen of a session whose files cannot be read is what was seen last."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import unreadable
from amuxd.hosts import Home
from amuxd.registry import UnreadableSession
from amuxd.states import Liveness
from amuxd.unreadable import Unreadables


def test_a_look_that_took_long_does_not_hide_what_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        session = UnreadableSession("abc123", "abc123", "spoiled", None, 1)
        world.supervisor.registry.not_readable[session.id] = session
        members = [[2**22 + 1], []]
        asked, answer = asyncio.Event(), asyncio.Event()

        async def seen(session_id: str) -> list[int]:
            return members.pop(0)

        async def slow(session_id: str) -> Home | None:
            asked.set()
            await answer.wait()
            return None

        monkeypatch.setattr(world.host, "members", seen)
        monkeypatch.setattr(world.host, "find_in_terminal", slow)
        unreadables = Unreadables(world.supervisor, world.host, world.watch)
        first = asyncio.create_task(unreadables.look(session))
        await asked.wait()
        second = asyncio.create_task(unreadables.look(session))
        # As far as it gets while the first is not done.
        await asyncio.sleep(0)
        answer.set()
        await asyncio.gather(first, second)
        assert (session.session_alive, session.host_alive) == (Liveness.DEAD, Liveness.DEAD)

    asyncio.run(in_world(tmp_path, story))


def test_one_that_cannot_be_watched_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where amuxd may open no more files."""
    refusals = [OSError(errno.EMFILE, "Too many open files"), ProcessLookupError(3, "No such process")]
    pidfd_open = os.pidfd_open

    def refused(pid: int) -> int:
        if refusals:
            raise refusals.pop(0)
        return pidfd_open(pid)

    async def members(_: str) -> list[int]:
        return [os.getpid()]

    async def story(world: World) -> None:
        session = UnreadableSession("abc123", "abc123", "spoiled", None, 1)
        world.supervisor.registry.not_readable[session.id] = session
        monkeypatch.setattr(world.host, "members", members)
        unreadables = Unreadables(world.supervisor, world.host, world.watch)
        await unreadables.look(session)
        assert session.host_alive is Liveness.ALIVE
        await world.until(lambda: session.member_fd >= 0)
        unreadables._leave(session)

    for pause in ("RETRY_PAUSE", "LOOK_AGAIN"):
        monkeypatch.setattr(unreadable, pause, 0.01)
    monkeypatch.setattr(os, "pidfd_open", refused)
    asyncio.run(in_world(tmp_path, story))
