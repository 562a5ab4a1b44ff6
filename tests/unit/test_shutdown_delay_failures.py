"""A logind that is slow to answer, and a shutdown that is called off while it is prepared for."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from standin_host import World, in_world

from amuxd import shutdown
from amuxd.agents import Agent
from amuxd.bus.connection import Bus, BusError, BusLost, BusTimeout, Signal
from amuxd.registry import Entry
from amuxd.shutdown import LOGIN, MANAGER, PATH, ShutdownDelay
from amuxd.states import State, Transition

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "1000"))


class Logind:
    """Fails once with each of these, and then does what it is asked for."""

    def __init__(self, *failures: BusError) -> None:
        self.failures = list(failures)
        self.told: Callable[[Signal], None] | None = None
        self.locks: list[int] = []
        self.locked = asyncio.Event()

    async def add_match(self, _match: object, handler: Callable[[Signal], None]) -> None:
        self._maybe_fail()
        self.told = handler

    async def call(self, *_arguments: Any) -> list[int]:
        self._maybe_fail()
        ours, theirs = os.pipe()
        self.locks.append(ours)
        self.locked.set()
        return [theirs]

    def _maybe_fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def announce(self, going_down: bool) -> None:
        assert self.told is not None
        self.told(Signal(LOGIN, PATH, MANAGER, "PrepareForShutdown", "b", [going_down]))

    def close(self) -> None:
        for lock in self.locks:
            os.close(lock)


@pytest.mark.parametrize("hiccups", [1, 3])
def test_it_is_asked_again_where_there_was_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hiccups: int
) -> None:
    monkeypatch.setattr(shutdown, "RETRY_PAUSE", 0.01)

    async def story(world: World) -> None:
        logind = Logind(*[BusTimeout("logind did not answer")] * hiccups)
        keeping = _keep(world, logind)
        await world.start(SLEEPER)
        await asyncio.wait_for(logind.locked.wait(), 20)
        await _leave(keeping)
        assert os.read(logind.locks[0], 1) == b""
        logind.close()

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize(
    "error", [BusError("org.freedesktop.DBus.Error.AccessDenied", "not you"), BusLost("the bus is gone")]
)
def test_it_is_not_asked_again_where_it_refused(tmp_path: Path, error: BusError) -> None:
    async def story(world: World) -> None:
        logind = Logind(error)
        await world.start(SLEEPER)
        await asyncio.wait_for(_keep(world, logind), 20)
        assert not logind.locks

    asyncio.run(in_world(tmp_path, story))


def test_one_that_is_called_off_at_once_leaves_nothing_suspended(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        logind = Logind()
        keeping = _keep(world, logind)
        parked, running = await world.start(SLEEPER), await world.start(SLEEPER)
        await world.runs.parking.park(parked)
        moves: list[State] = []
        moved = world.changes.moved

        def noted(entry: Entry, transition: Transition) -> None:
            moves.append(transition.target)
            moved(entry, transition)

        world.changes.moved = noted  # type: ignore[method-assign]
        logind.announce(True)
        logind.announce(False)
        await world.until(lambda: len(moves) == 4)
        assert moves == [State.SUSPENDED] * 2 + [State.RUNNING] * 2
        assert (running.state.state, running.parked) == (State.RUNNING, False)
        assert (parked.state.state, parked.parked) == (State.RUNNING, True)
        await _leave(keeping)
        logind.close()

    asyncio.run(in_world(tmp_path, story))


def _keep(world: World, logind: Logind) -> asyncio.Task[None]:
    delay = ShutdownDelay(world.runs, cast(Bus, logind))
    world.supervisor.listen(delay)
    return asyncio.ensure_future(delay.keep())


async def _leave(keeping: asyncio.Task[None]) -> None:
    keeping.cancel()
    await asyncio.wait([keeping])
