"""What is kept however old it is."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import cleaning, comeback, processes, states
from amuxd.agents import Agent
from amuxd.cleaning import clean
from amuxd.errors import AmuxError
from amuxd.hosts import Finding, Unknown
from amuxd.reconcile import reconcile
from amuxd.records import ResumePolicy, RunState, Session
from amuxd.states import State
from amuxd.supervisor import AMUXD, now


@pytest.mark.parametrize("dry_run", [True, False])
def test_one_that_may_be_alive(tmp_path: Path, dry_run: bool) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        command = entry.state.command
        assert command
        await world.supervisor.apply(entry, states.DaemonStopping("amuxd was stopped"), AMUXD)
        world.runs.homes.leave(entry)
        entry.state = replace(entry.state, state_changed_at=1, uptime_at_change=0)

        async def find(session: Session, state: RunState) -> Finding:
            return Unknown("its terminal does not answer")

        world.host.find = find  # type: ignore[method-assign]
        world.host.has_terminal = lambda session_id: True  # type: ignore[method-assign]
        await reconcile(world.runs)
        assert await clean(world.runs, dry_run) == []
        assert world.supervisor.registry.get(entry.id) is entry
        assert not processes.is_dying(command)
        entry.looked_in_vain = False
        assert await clean(world.runs, dry_run) == [entry.id]

    asyncio.run(in_world(tmp_path, story))


TALKER = Agent("talker", ("sleep", "1000"), resume=("sleep", "2000"))


@pytest.mark.parametrize("decided_by", ["failures", "profile"])
def test_one_that_was_to_come_back_is_kept_until_that_is_decided(tmp_path: Path, decided_by: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(TALKER, resume=ResumePolicy.AUTO)
        await world.runs.start(entry)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        entry.state = replace(entry.state, state_changed_at=1, uptime_at_change=0)
        assert await clean(world.runs, dry_run=True) == []
        if decided_by == "failures":
            entry.state = replace(
                entry.state, auto_run=1, auto_failures=comeback.MOST_FAILURES, cut_short=True
            )
        else:
            entry.agent = None
        # The disk knows nothing of what the test says of it.
        world.store.change = lambda *_: None  # type: ignore[method-assign]
        assert await clean(world.runs, dry_run=True) == []
        await comeback.bring_back(world.runs)
        assert entry.state.run == 1
        assert await clean(world.runs, dry_run=True) == [entry.id]

    asyncio.run(in_world(tmp_path, story))


def test_a_clock_that_is_set_forward_makes_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = 3 * 24 * 3600 * 1_000_000

    async def story(world: World) -> None:
        entry = await world.create(None, "false")
        with contextlib.suppress(AmuxError):
            await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.FAILED)
        monkeypatch.setattr(cleaning, "now", lambda: now() + days)
        assert await clean(world.runs, dry_run=True) == []
        monkeypatch.setattr(cleaning, "uptime", lambda: processes.uptime() + days)
        assert await clean(world.runs, dry_run=True) == [entry.id]
        # What rested before this boot did so by the one clock that it has.
        monkeypatch.setattr(cleaning, "uptime", processes.uptime)
        entry.state = replace(entry.state, boot_id="another")
        assert await clean(world.runs, dry_run=True) == [entry.id]

    asyncio.run(in_world(tmp_path, story))
