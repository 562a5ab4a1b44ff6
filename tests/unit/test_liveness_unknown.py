"""Nobody can tell whether a suspended session is alive: nothing is done that would end it if it were."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import pytest
from standin_host import World, in_world

from amuxd import comeback, reconcile
from amuxd.agents import Agent
from amuxd.cleaning import clean
from amuxd.config import Settings
from amuxd.errors import Busy
from amuxd.processes import is_dying
from amuxd.records import ResumePolicy
from amuxd.registry import Entry
from amuxd.retention import Retention
from amuxd.states import Liveness, State

SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "1000"))


async def refused(act: Awaitable[object]) -> None:
    with pytest.raises(Busy, match="could not be looked at"):
        await act


async def cleaned(world: World) -> None:
    world.runs.settings = Settings(retention=Retention(suspended=0, suspended_resumable=0))
    assert await clean(world.runs, dry_run=False) == []


ACTS: dict[str, Callable[[World, Entry], Awaitable[None]]] = {
    "resume": lambda world, entry: refused(world.runs.resume(entry)),
    "restart": lambda world, entry: refused(world.runs.restart(entry)),
    "archive": lambda world, entry: refused(world.runs.archive(entry)),
    "rm": lambda world, entry: refused(world.runs.remove(entry, force=False)),
    "comeback": lambda world, _: comeback.bring_back(world.runs),
    "clean": lambda world, _: cleaned(world),
}


@pytest.mark.parametrize("act", ACTS)
def test_one_that_may_live_is_left_alone(tmp_path: Path, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cannot_look(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story(world: World) -> None:
        entry = await world.create(SLEEPER, resume=ResumePolicy.AUTO)
        await world.runs.start(entry)
        assert entry.home is not None
        command = entry.home.command
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        monkeypatch.setattr(world.host, "find", cannot_look)
        await reconcile.reconcile(world.runs)
        assert entry.session_alive is Liveness.UNKNOWN
        await ACTS[act](world, entry)
        assert (entry.state.state, entry.state.run) == (State.SUSPENDED, 1)
        assert world.supervisor.registry.get(entry.id) is entry
        assert not is_dying(command)

    asyncio.run(in_world(tmp_path, story))
