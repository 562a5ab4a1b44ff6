"""What amuxd says as it goes, of what it cannot mark suspended, is true of that going alone."""

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from standin_host import World, in_world

from amuxd.hosts import Alive, Finding, Home, Unknown
from amuxd.parting import Parting
from amuxd.reconcile import reconcile, sweep
from amuxd.records import LastWord, RunState, Session
from amuxd.registry import Entry
from amuxd.states import Liveness, State

WHY = "amuxd was stopped"


async def left_running(world: World) -> tuple[Entry, Home]:
    """As the amuxd before this one left it, on a disk that took nothing more."""
    await world.runs.parting.keep_room()
    entry = await world.create(None, "sleep", "1000")
    await world.runs.start(entry)
    home = entry.home
    assert home is not None
    await world.runs.parting.leave(WHY)
    alive = Home(home.command, home.server, os.dup(home.command_fd), os.dup(home.server_fd))
    world.runs.homes.leave(entry)
    return entry, alive


async def cannot_look(session: Session, state: RunState) -> Finding:
    return Unknown("it does not answer")


async def found_by_sweep(world: World, home: Home) -> None:
    async def found(session: Session, state: RunState) -> Finding:
        return Alive(home)

    world.host.find = found  # type: ignore[method-assign]
    await sweep(world.runs)


def test_a_word_is_over_once_the_sweep_found_its_session_alive(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry, home = await left_running(world)
        world.host.find = cannot_look  # type: ignore[method-assign]
        await reconcile(world.runs)
        assert entry.session_alive == "unknown"
        assert [word.session_id for word in world.store.last_words.read()] == [entry.id]
        await found_by_sweep(world, home)
        assert entry.session_alive is Liveness.ALIVE
        assert world.store.last_words.read() == []

    asyncio.run(in_world(tmp_path, story))


def test_a_word_that_could_not_be_taken_back_is_taken_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_words: list[LastWord]) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    async def story(world: World) -> None:
        entry, home = await left_running(world)
        world.host.find = cannot_look  # type: ignore[method-assign]
        await reconcile(world.runs)
        with monkeypatch.context() as refusing:
            refusing.setattr(world.store.last_words, "write", refuse)
            await found_by_sweep(world, home)
        assert len(world.store.last_words.read()) == 1
        await sweep(world.runs)
        assert entry.session_alive is Liveness.ALIVE
        assert world.store.last_words.read() == []

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize(
    ("seen_alive", "foretold"), [(-1, State.SUSPENDED), (0, State.SUSPENDED), (1, State.FAILED)]
)
def test_a_word_tells_nothing_of_what_was_seen_alive_since(
    tmp_path: Path, seen_alive: int, foretold: State
) -> None:
    async def story(world: World) -> None:
        entry, home = await left_running(world)
        home.close()
        [word] = world.store.last_words.read()
        entry.state = replace(entry.state, alive_at=word.at + seen_alive)
        world.runs.parting = Parting(world.supervisor)
        # The stand-in finds nothing of it.
        world.store.change = lambda *_: None  # type: ignore[method-assign]
        await reconcile(world.runs)
        assert entry.state.state is foretold

    asyncio.run(in_world(tmp_path, story))
