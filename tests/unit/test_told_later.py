"""What has happened and cannot be written down yet: nobody waits for it, and nothing comes of it later."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from standin_host import World, in_world

from amuxd import operations
from amuxd import supervisor as supervising
from amuxd.agents import Agent, OnExit
from amuxd.errors import Busy, Internal, InvalidTransition
from amuxd.hosts import LaunchRefused
from amuxd.hosts.launcher import hold
from amuxd.possible import possible
from amuxd.reconcile import sweep
from amuxd.registry import Entry
from amuxd.states import End, Liveness, State
from amuxd.store import StoreError
from amuxd.workspaces.orphans import orphan

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "2000"))
STAYING = Agent("staying", ("cat",), resume=("cat",), on_exit=OnExit.STAY)
NOT_WRITTEN = "and that is not written down: it could not be changed: No space left"


@pytest.fixture(autouse=True)
def _try_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "RETRY_PAUSE", 0.01)
    monkeypatch.setattr(operations, "RETRY_PAUSE", 0.01)


@contextmanager
def full(world: World) -> Iterator[None]:
    change = world.store.change

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("it could not be changed: No space left")

    world.store.change = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        world.store.change = change  # type: ignore[method-assign]


class SlowGrace:
    """Who is asked to end thinks about it."""

    def __init__(self, world: World) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self._ask = world.host.ask_to_end
        world.host.ask_to_end = self._slowly  # type: ignore[method-assign]

    async def _slowly(self, *arguments: Any, **options: Any) -> None:
        self.asked.set()
        await self.go_on.wait()
        await self._ask(*arguments, **options)


async def answers(*asked: Awaitable[None]) -> list[BaseException | None]:
    async with asyncio.timeout(10):
        return await asyncio.gather(*asked, return_exceptions=True)


def all_that_can_be_asked(world: World, entry: Entry) -> list[Coroutine[Any, Any, None]]:
    runs = world.runs
    return [
        runs.remove(entry, force=True),
        runs.remove(entry, force=False),
        runs.stop(entry, 1),
        runs.restart(entry),
        runs.resume(entry),
        runs.archive(entry),
        runs.start(entry),
        runs.parking.park(entry),
        runs.parking.bring_back(entry),
    ]


def assert_refused(told: list[BaseException | None], why: str) -> None:
    for error in told:
        assert isinstance(error, Busy)
        assert why in str(error)


def test_a_disk_that_fills_up_during_the_grace_of_a_stop(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        grace = SlowGrace(world)
        stopping = asyncio.ensure_future(world.runs.stop(entry, 5))
        await grace.asked.wait()
        queued = [asyncio.ensure_future(asked) for asked in all_that_can_be_asked(world, entry)]
        with full(world):
            grace.go_on.set()
            with pytest.raises(
                Internal, match=rf"it is stopped \(stopped; killed by SIGTERM\), {NOT_WRITTEN}"
            ):
                await stopping
            why = f"{entry.id}: it is stopped (stopped; killed by SIGTERM), {NOT_WRITTEN}"
            assert_refused(await answers(*queued), why)
            assert_refused(await answers(*all_that_can_be_asked(world, entry)), why)
            assert (entry.state.state, possible(entry)) == (State.STOPPING, [])
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert (entry.state.state, entry.state.run, entry.unwritten) == (State.STOPPED, 1, {})
        assert world.supervisor.registry.get(entry.id) is entry
        assert not entry.refused.is_set()
        await world.runs.resume(entry)
        assert entry.session_alive is Liveness.ALIVE

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_one_that_can_not_be_stopped(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        grace = SlowGrace(world)
        stopping = asyncio.ensure_future(world.runs.stop(entry, 5))
        await grace.asked.wait()
        world.host.failing["ask_to_end"] = OSError("no")
        with full(world):
            grace.go_on.set()
            with pytest.raises(Internal, match="could not be stopped: no"):
                await stopping
            [told] = await answers(world.runs.remove(entry, force=True))
            assert_refused([told], f"it is failed (could not be stopped: no), {NOT_WRITTEN}")
            assert str(told).endswith(f"can be ended by: amux kill --signal SIGKILL {entry.id}")
            world.host.end()
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert (entry.state.state, entry.session_alive) == (State.FAILED, Liveness.DEAD)
        assert world.supervisor.registry.get(entry.id) is entry

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_one_that_could_not_start(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(SLEEPER)
        launching, go_on = asyncio.Event(), asyncio.Event()

        async def refused(*_: object, **__: object) -> NoReturn:
            launching.set()
            await go_on.wait()
            raise LaunchRefused("no")

        world.host.launch = refused  # type: ignore[method-assign]
        starting = asyncio.ensure_future(world.runs.start(entry))
        await launching.wait()
        with full(world):
            go_on.set()
            why = f"it is failed (could not start: no), {NOT_WRITTEN}"
            with pytest.raises(Internal) as told:
                await starting
            assert str(told.value) == f"{entry.id}: {why}"
            assert_refused(await answers(*all_that_can_be_asked(world, entry)), why)
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert entry.state.reason == "could not start: no"

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_one_whose_directory_goes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        with full(world):
            async with asyncio.timeout(10):
                await orphan(world.runs, entry, "/gone")
            assert_refused(await answers(*all_that_can_be_asked(world, entry)), NOT_WRITTEN)
            assert entry.session_alive is Liveness.ALIVE
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert (entry.state.state, entry.session_alive) == (State.ORPHANED, Liveness.DEAD)

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


@pytest.mark.parametrize("ends", [False, True])
def test_one_that_can_not_be_parked(tmp_path: Path, ends: bool) -> None:
    """The word that it is parked is on disk, and its process lives, or ends before that can be taken back."""

    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        grace = SlowGrace(world)
        parking = asyncio.ensure_future(world.runs.parking.park(entry))
        await grace.asked.wait()
        world.host.failing["ask_to_end"] = OSError("no")
        with full(world):
            grace.go_on.set()
            with pytest.raises(Internal, match="could not be parked: no"):
                await parking
            assert_refused(await answers(*all_that_can_be_asked(world, entry)), NOT_WRITTEN)
            if ends:
                world.host.end()
                await entry.ended.wait()
        await world.until(lambda: not entry.unwritten)
        if ends:
            await world.until(lambda: entry.home is None)
            assert entry.state.parked_end is not None
            assert entry.state.parked_end.signal == "SIGKILL"
            assert (entry.parked, entry.session_alive) == (True, Liveness.NONE)
            await world.runs.parking.bring_back(entry)
        assert (entry.parked, entry.session_alive) == (False, Liveness.ALIVE)
        world.host.end()
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert entry.state.state is State.FAILED

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_one_that_is_wanted_back_before_it_is_told_that_it_stays(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(STAYING)
        draining, go_on = asyncio.Event(), asyncio.Event()
        drain = world.runs.homes.drain

        async def slow(entry: Entry) -> None:
            draining.set()
            await go_on.wait()
            await drain(entry)

        world.runs.homes.drain = slow  # type: ignore[method-assign]
        with full(world):
            world.host.processes[0].communicate()
            await entry.refused.wait()
        await draining.wait()
        assert not entry.unwritten
        wanted = asyncio.ensure_future(world.runs.parking.bring_back(entry))
        also = asyncio.ensure_future(world.runs.resume(entry))
        await world.until(entry.operation.locked)
        assert not wanted.done()
        go_on.set()
        await wanted
        with pytest.raises(InvalidTransition):
            await also
        assert entry.telling
        assert entry.telling.done()
        assert (entry.parked, entry.session_alive) == (False, Liveness.ALIVE)
        assert world.host.processes[1].poll() is None

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_what_cannot_be_told_for_another_reason(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        end_of, may_answer = world.host.end_of, asyncio.Event()

        async def asked(*arguments: Any, **options: Any) -> End:
            if not may_answer.is_set():
                raise OSError("Too many open files")
            return await end_of(*arguments, **options)

        async def ended_and_failed(*_: object, **__: object) -> None:
            world.host.end()
            await entry.ended.wait()
            raise OSError("no")

        world.host.end_of = asked  # type: ignore[method-assign]
        world.host.ask_to_end = ended_and_failed  # type: ignore[method-assign]
        with pytest.raises(Internal, match="could not be parked: no"):
            await world.runs.parking.park(entry)
        why = f"{entry.id}: what became of it is not known yet: Too many open files"
        assert_refused(await answers(*all_that_can_be_asked(world, entry)), why)
        may_answer.set()
        await world.until(lambda: entry.home is None)
        await world.runs.parking.bring_back(entry)
        assert (entry.parked, entry.session_alive) == (False, Liveness.ALIVE)

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))


def test_one_that_is_busy_keeps_the_sweep_from_no_other(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        busy, other = await world.start(SLEEPER), await world.start(SLEEPER)
        for entry in (busy, other):
            home = hold(entry.state.command, entry.state.server)
            assert home
            world.runs.homes.leave(entry)
            home.close()
            entry.miss("it does not answer")
        async with busy.operation, asyncio.timeout(10):
            await sweep(world.runs)
        assert (busy.looked_in_vain, other.looked_in_vain) == (True, False)
        await sweep(world.runs)
        assert not busy.looked_in_vain

    asyncio.run(asyncio.wait_for(in_world(tmp_path, story), 60))
