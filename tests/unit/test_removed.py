"""What was on its way while a session was removed must not bring it back."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from standin_host import World, in_world

from amuxd import attention, comeback, states, supervisor
from amuxd.records import Certificate, ResumePolicy
from amuxd.registry import Entry
from amuxd.states import End, State
from amuxd.store import Store, StoreError
from amuxd.supervisor import AMUXD


def left_on_disk(store: Store) -> list[str]:
    return [path.name for path in store.sessions.iterdir() if path.is_dir()]


WRITES: dict[str, Callable[[World, Entry], object]] = {
    "state": lambda w, e: w.store.change(e.state, replace(e.state, reason="x"), None),
    "certificate": lambda w, e: w.store.certify(Certificate(e.id, 1, 1, "ended", End(code=0))),
    "run": lambda w, e: w.store.prepare_run(e.id, 1),
}


@pytest.mark.parametrize("kind", WRITES)
def test_a_late_write_is_refused(tmp_path: Path, kind: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        world.store.remove(entry.id)
        with pytest.raises(StoreError):
            WRITES[kind](world, entry)
        assert left_on_disk(world.store) == []

    asyncio.run(in_world(tmp_path, story))


def test_a_write_that_made_the_directory_of_its_lock_anew_is_refused(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        world.store.remove(entry.id)
        world.store.directory(entry.id).mkdir()
        with pytest.raises(StoreError, match="removed"):
            WRITES["state"](world, entry)

    asyncio.run(in_world(tmp_path, story))


async def explained(world: World, entry: Entry) -> None:
    await world.supervisor.explain(entry, entry.state.state, "waiting for a slot (1st)")


async def amended(world: World, entry: Entry) -> None:
    await world.supervisor.amend_surely(entry, lambda: True, "Command", conversation_id="x")


async def moved(world: World, entry: Entry) -> None:
    assert await world.supervisor.apply_surely(entry, states.StartRequested(), AMUXD) is None


async def attended(world: World, entry: Entry) -> None:
    await world.supervisor.attend(entry, attention.Died())


async def certified(world: World, entry: Entry) -> None:
    entry.certificate = Certificate(entry.id, 1, 1, "ended", End(code=0))
    await world.supervisor.certify(entry)


async def removed(world: World, entry: Entry) -> None:
    await world.supervisor.forget(entry)


class Turns(asyncio.Lock):
    """Who changes a session does it in turn, and this tells how many have come to do so."""

    def __init__(self) -> None:
        super().__init__()
        self.come = 0

    async def acquire(self) -> Literal[True]:
        self.come += 1
        return await super().acquire()


@pytest.mark.parametrize("change", [explained, amended, moved, attended, certified, removed])
def test_a_change_that_waits_for_the_removal_finds_nothing_to_change(
    tmp_path: Path, change: Callable[[World, Entry], Coroutine[Any, Any, None]]
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        await world.supervisor.amend(entry, attention="bell")
        begun, go_on = threading.Event(), threading.Event()
        remove = world.store.remove

        def slowly(session_id: str) -> None:
            remove(session_id)
            begun.set()
            assert go_on.wait(30)

        world.store.remove = slowly  # type: ignore[method-assign]
        entry.writing = turns = Turns()
        removing = asyncio.create_task(world.runs.remove(entry, force=False))
        assert await asyncio.to_thread(begun.wait, 10)
        late = asyncio.create_task(change(world, entry))
        await world.until(lambda: turns.come == 2)
        go_on.set()
        async with asyncio.timeout(20):
            await asyncio.gather(removing, late)
        assert list(world.supervisor.registry) == []
        assert left_on_disk(world.store) == []

    asyncio.run(in_world(tmp_path, story))


def test_a_removal_waits_for_the_change_that_is_under_way(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        begun, go_on = threading.Event(), threading.Event()
        change = world.store.change

        def slowly(*arguments: Any, **options: Any) -> None:
            begun.set()
            assert go_on.wait(30)
            change(*arguments, **options)

        world.store.change = slowly  # type: ignore[method-assign]
        entry.writing = turns = Turns()
        explaining = asyncio.create_task(explained(world, entry))
        assert await asyncio.to_thread(begun.wait, 10)
        removing = asyncio.create_task(world.runs.remove(entry, force=False))
        await world.until(lambda: turns.come == 2)
        assert left_on_disk(world.store) == [entry.id]
        go_on.set()
        await asyncio.gather(explaining, removing)
        assert left_on_disk(world.store) == []

    asyncio.run(in_world(tmp_path, story))


def test_an_end_that_a_full_disk_kept_from_being_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RETRY_PAUSE", 0.05)

    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        tried = asyncio.Event()
        loop = asyncio.get_running_loop()

        def refuse(certificate: Certificate) -> None:
            loop.call_soon_threadsafe(tried.set)
            raise StoreError("it could not be certified: No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(world.store, "certify", refuse)
            await world.runs.start(entry)
            await world.until(lambda: entry.state.state is State.COMPLETED)
            await tried.wait()
            await world.runs.remove(entry, force=False)
        async with asyncio.timeout(20):
            while others := world.supervisor._tasks - {asyncio.current_task()}:
                await asyncio.wait(others)
        assert left_on_disk(world.store) == []

    asyncio.run(in_world(tmp_path, story))


def test_one_that_was_about_to_come_back_by_itself(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000", resume=ResumePolicy.AUTO)
        await world.runs.start(entry)
        await world.supervisor.apply(entry, states.MachineWentDown(), AMUXD, command=None, server=None)
        world.runs.homes.leave(entry)
        async with entry.operation:
            coming_back = asyncio.create_task(comeback.bring_back(world.runs))
            await asyncio.sleep(0)
            await world.runs.discard(entry)
        await coming_back
        assert len(world.host.processes) == 1
        assert left_on_disk(world.store) == []

    asyncio.run(in_world(tmp_path, story))
