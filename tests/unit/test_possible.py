"""What is offered is what is done: neither more, nor less."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import pytest
from standin_host import World, in_world

from amuxd import reconcile
from amuxd.agents import Agent
from amuxd.errors import AmuxError
from amuxd.possible import possible
from amuxd.records import Workspace
from amuxd.registry import Entry
from amuxd.states import End, Liveness, State
from amuxd.store import StoreError

AGENT = Agent("agent", ("sleep", "1000"), resume=("sleep", "2000"))
ASKS_WHICH = Agent("asks", ("sleep", "1000"), resume=("sleep", "{conversation}"))

Bring = Callable[[World], Awaitable[Entry]]


async def created(world: World) -> Entry:
    return await world.create(AGENT)


async def created_of_a_profile_that_may_be_back(world: World) -> Entry:
    entry = await created(world)
    entry.agent, entry.configuration_error = None, "a typo"
    return entry


async def running(world: World) -> Entry:
    return await world.start(AGENT)


async def stopped(world: World) -> Entry:
    entry = await running(world)
    await world.runs.stop(entry, 1)
    return entry


async def parked(world: World) -> Entry:
    entry = await running(world)
    await world.runs.parking.park(entry)
    return entry


async def archived(world: World) -> Entry:
    entry = await stopped(world)
    await world.runs.archive(entry)
    return entry


async def of_a_profile_that_is_gone(world: World) -> Entry:
    entry = await stopped(world)
    entry.agent = None
    return entry


async def of_a_profile_that_may_be_back(world: World) -> Entry:
    entry = await of_a_profile_that_is_gone(world)
    entry.configuration_error = "a typo"
    return entry


async def without_conversation(world: World) -> Entry:
    entry = await world.start(ASKS_WHICH)
    await world.runs.stop(entry, 1)
    return entry


async def completed(world: World) -> Entry:
    entry = await world.create(None, "true")
    await world.runs.start(entry)
    await world.until(lambda: entry.state.state is State.COMPLETED)
    return entry


async def with_an_open_shell(world: World) -> Entry:
    entry = await world.create(None, "sleep", "1000", shell=True)
    await world.runs.start(entry)
    world.host.end_in_shell = lambda *_: End(code=0)  # type: ignore[method-assign]
    world.runs.aftermath.look_for_end_in_shell(entry)
    await world.until(lambda: entry.shell_open)
    assert entry.state.state is State.COMPLETED
    return entry


async def suspended(world: World) -> Entry:
    entry = await running(world)
    await world.runs.suspend("amuxd was stopped")
    world.runs.homes.leave(entry)
    assert entry.session_alive is Liveness.DEAD
    return entry


async def looked_at_in_vain(world: World) -> Entry:
    async def cannot_look(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    entry = await suspended(world)
    world.host.find = cannot_look  # type: ignore[method-assign]
    await reconcile.reconcile(world.runs)
    assert entry.session_alive is Liveness.UNKNOWN
    return entry


VERBS: dict[str, Callable[[World, Entry], Awaitable[None]]] = {
    "start": lambda world, entry: world.runs.start(entry),
    "stop": lambda world, entry: world.runs.stop(entry, 1),
    "restart": lambda world, entry: world.runs.restart(entry),
    "resume": lambda world, entry: world.runs.resume(entry),
    "archive": lambda world, entry: world.runs.archive(entry),
    "rm": lambda world, entry: world.runs.remove(entry, force=False),
}
BROUGHT: dict[Bring, set[str]] = {
    created: {"start", "archive", "rm"},
    created_of_a_profile_that_may_be_back: {"archive", "rm"},
    running: {"stop"},
    stopped: {"restart", "resume", "archive", "rm"},
    parked: {"stop", "resume"},
    archived: {"rm"},
    of_a_profile_that_is_gone: {"archive", "rm"},
    of_a_profile_that_may_be_back: {"archive", "rm"},
    without_conversation: {"restart", "archive", "rm"},
    completed: {"restart", "archive", "rm"},
    with_an_open_shell: {"stop", "restart"},
    suspended: {"restart", "resume", "archive", "rm"},
    looked_at_in_vain: set(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("bring", BROUGHT, ids=lambda bring: bring.__name__)
def test_what_is_offered_is_done(tmp_path: Path, bring: Bring, verb: str) -> None:
    async def story(world: World) -> None:
        entry = await bring(world)
        offered = set(possible(entry))
        assert offered == BROUGHT[bring]
        assert entry.resumable == ("resume" in offered)
        before = entry.state
        if verb in offered:
            await VERBS[verb](world, entry)
        else:
            with pytest.raises(AmuxError):
                await VERBS[verb](world, entry)
            assert entry.state == before

    asyncio.run(in_world(tmp_path, story))


def test_what_waits_for_a_slot_begins_by_itself_whatever_it_could_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cannot_write(*_: object) -> NoReturn:
        raise StoreError("read-only")

    async def story(world: World) -> None:
        workspace = Workspace("shelf1", "shelf", "/", 1, slots=1)
        await world.workspaces.write(workspace)
        world.workspaces.know(workspace)
        holder, entry = [await world.create(AGENT, workspace_id="shelf1", queue=True) for _ in range(2)]
        await world.runs.start(holder)
        assert "start" in possible(entry)
        monkeypatch.setattr(world.supervisor, "explain", cannot_write)
        # It is granted all the same: who asks is told what it waits for.
        await world.runs.start(entry)
        assert (entry.state.state, entry.state.reason) == (State.CREATED, "created")
        assert "start" not in possible(entry)
        assert "start" not in possible(holder)
        await world.runs.stop(holder, 1)
        await world.workspaces.forget(workspace)
        assert "start" in possible(entry)

    asyncio.run(in_world(tmp_path, story))


def test_a_stop_of_what_may_live_says_why_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await looked_at_in_vain(world)
        world.host.unit = lambda session_id: f"amux-{session_id}.service"  # type: ignore[method-assign]
        with pytest.raises(AmuxError) as refusal:
            await world.runs.stop(entry, 1)
        assert str(refusal.value) == (
            f"{entry.session.name} could not be looked at (Too many open files), and is looked at "
            "again and again: stop is not possible until then; its processes can be ended by: "
            f"systemctl --user kill --signal=SIGKILL amux-{entry.id}.service"
        )

    asyncio.run(in_world(tmp_path, story))
