"""What is said of a lost conversation is said of that one; what could not be seen is not known."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world
from test_surroundings import KEEPER

from amuxd import conversations, learning
from amuxd.errors import NotResumable
from amuxd.hosts import LaunchRefused
from amuxd.possible import possible
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import Known

Story = Callable[[World, Entry, Path], Awaitable[None]]


def with_kept_conversation(tmp_path: Path, story: Story) -> None:
    """A session whose agent has written something down, and the file that it is in."""

    async def told(world: World) -> None:
        entry = await world.start(replace(KEEPER, environment={"KEEPER": str(tmp_path)}))
        file = tmp_path / entry.state.conversation_id
        file.write_text("something\n")
        await story(world, entry, file)

    asyncio.run(in_world(tmp_path, told))


def lose(file: Path) -> None:
    file.unlink()


def test_a_conversation_that_follows_a_lost_one_is_not_lost(tmp_path: Path) -> None:
    async def story(world: World, entry: Entry, file: Path) -> None:
        await world.runs.stop(entry, 1)
        lose(file)
        with pytest.raises(NotResumable):
            await world.runs.resume(entry)
        assert (entry.lost != "", entry.resumable) == (True, False)
        await world.runs.restart(entry)
        assert not entry.lost
        (tmp_path / entry.state.conversation_id).write_text("something else\n")
        await world.runs.stop(entry, 1)
        assert entry.resumable
        assert "resume" in possible(entry)

    with_kept_conversation(tmp_path, story)


UNKNOWN = "whether anything was said in it is not known"


@pytest.mark.parametrize("fault", [LaunchRefused("systemd does not tell"), RuntimeError("a fault")])
def test_where_the_last_look_failed_no_empty_conversation_is_begun(tmp_path: Path, fault: Exception) -> None:
    async def story(world: World, entry: Entry, file: Path) -> None:
        world.host.failing["environment"] = fault
        await world.runs.stop(entry, 1)
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert entry.state.said is known.state.said is None
        world.host.failing.clear()
        lose(file)
        with pytest.raises(NotResumable, match=UNKNOWN):
            await world.runs.resume(entry)
        assert entry.state.run == 1

    with_kept_conversation(tmp_path, story)


def test_where_the_last_look_took_too_long_no_empty_conversation_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, entry: Entry, file: Path) -> None:
        answers = threading.Event()
        monkeypatch.setattr(learning, "LAST_DEADLINE", 0.01)
        monkeypatch.setattr(conversations, "was_said", lambda *_: answers.wait(20))
        await world.runs.suspend("amuxd was stopped")
        answers.set()
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert (known.state.state, known.state.said) == (State.SUSPENDED, None)
        # The next amuxd looks again.
        assert known.state.not_looked_into == entry.state.conversation_id

    with_kept_conversation(tmp_path, story)


@pytest.mark.parametrize("said", [False, True])
def test_a_look_that_succeeds_makes_good_one_that_failed(tmp_path: Path, said: bool) -> None:
    async def story(world: World, entry: Entry, file: Path) -> None:
        if not said:
            lose(file)
        world.host.failing["environment"] = LaunchRefused("systemd does not tell")
        await world.runs.homes.look_what_was_said(entry)
        assert entry.state.said is None
        world.host.failing.clear()
        await world.runs.homes.look_what_was_said(entry)
        assert entry.state.said is said

    with_kept_conversation(tmp_path, story)


def test_of_what_was_not_seen_from_the_beginning_a_look_in_vain_tells_nothing(tmp_path: Path) -> None:
    async def story(world: World, entry: Entry, file: Path) -> None:
        world.host.failing["environment"] = LaunchRefused("systemd does not tell")
        assert await world.runs.homes.learn_conversation(entry, "another", 1)
        world.host.failing.clear()
        await world.runs.homes.look_what_was_said(entry)
        assert entry.state.said is None

    with_kept_conversation(tmp_path, story)
