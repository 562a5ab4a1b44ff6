"""What a run finds around it, and what is kept of its conversation there, where that cannot be looked at."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from standin_host import World, in_world

from amuxd import conversations, learning
from amuxd.agents import CONVERSATION, Agent, Kept
from amuxd.bus.connection import Bus, BusError
from amuxd.errors import NotResumable
from amuxd.hosts import LaunchRefused
from amuxd.hosts.units import Units
from amuxd.records import Session
from amuxd.states import State
from amuxd.store import Known


class DeafBus:
    async def call(self, *_question: Any, **_options: Any) -> list[Any]:
        raise BusError("org.freedesktop.DBus.Error.NoReply", "no answer")


def test_a_systemd_that_does_not_tell_lets_nothing_begin() -> None:
    with pytest.raises(LaunchRefused, match="systemd does not tell its environment: no answer"):
        asyncio.run(Units(cast(Bus, DeafBus())).inherited())


KEEPER = Agent(
    "keeper",
    ("sh", "-c", "exec sleep 1000", CONVERSATION),
    resume=("sleep", "1000"),
    kept=Kept("KEEPER", "keeper", "{conversation}"),
    environment={"KEEPER": "/nonexistent"},
)


def test_one_whose_surroundings_are_not_known_stays_parked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(KEEPER)
        await world.runs.parking.park(entry)
        world.host.failing["environment"] = LaunchRefused("systemd does not tell")
        with pytest.raises(NotResumable, match=r"stays parked: systemd does not tell$"):
            await world.runs.parking.bring_back(entry)
        assert entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_one_whose_files_do_not_answer_stays_parked_and_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(KEEPER)
        await world.runs.parking.park(entry)
        answers = threading.Event()
        monkeypatch.setattr(learning, "DEADLINE", 0.01)
        monkeypatch.setattr(conversations, "why_lost", lambda *_: "" if answers.wait(20) else "late")
        with pytest.raises(NotResumable, match=r"could not be looked for within 0 s$"):
            await world.runs.parking.bring_back(entry)
        assert entry.parked
        assert entry.resumable
        answers.set()
        monkeypatch.undo()
        await world.runs.parking.bring_back(entry)
        assert not entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_of_what_cannot_be_looked_for_it_is_not_known_whether_anything_was_said(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(KEEPER)
        said = entry.state.said
        assert said is False
        world.host.failing["environment"] = LaunchRefused("systemd does not tell")
        assert await world.runs.homes.learn_conversation(entry, "another", 1)
        assert entry.state.said is None
        await world.runs.stop(entry, 1)
        assert (entry.state.state, entry.state.said) == ("stopped", None)

    asyncio.run(in_world(tmp_path, story))


def test_that_something_was_said_is_written_once_the_disk_lets_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        keeper = replace(KEEPER, environment={"KEEPER": str(tmp_path)})
        entry = await world.start(keeper)
        (tmp_path / entry.state.conversation_id).write_text("something\n")
        lock = world.store.directory(entry.id) / ".lock"
        lock.unlink()
        lock.mkdir()
        await world.runs.homes.look_what_was_said(entry)
        assert entry.state.said is False
        lock.rmdir()
        await world.runs.stop(entry, 1)
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert entry.state.said is known.state.said is True

    asyncio.run(in_world(tmp_path, story))


def test_a_systemd_that_does_not_answer_does_not_keep_amuxd_from_suspending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "LAST_DEADLINE", 0.01)

    async def story(world: World) -> None:
        entry = await world.start(KEEPER)

        async def never(session: Session) -> dict[str, str]:
            answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
            return await answer

        world.host.environment = never  # type: ignore[method-assign]
        async with asyncio.timeout(20):
            await world.runs.suspend("amuxd was stopped")
        assert entry.state.state is State.SUSPENDED

    asyncio.run(in_world(tmp_path, story))


def test_a_fault_in_the_look_for_what_was_said_keeps_nothing_from_its_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(KEEPER)
        world.host.failing["environment"] = RuntimeError("a fault")
        await world.runs.stop(entry, 1)
        assert entry.state.state is State.STOPPED

    asyncio.run(in_world(tmp_path, story))
