"""What is kept however old it is."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import processes, states
from amuxd.cleaning import clean
from amuxd.hosts import Finding, Unknown
from amuxd.reconcile import reconcile
from amuxd.records import RunState, Session
from amuxd.supervisor import AMUXD


@pytest.mark.parametrize("dry_run", [True, False])
def test_one_that_may_be_alive(tmp_path: Path, dry_run: bool) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        command = entry.state.command
        assert command
        await world.supervisor.apply(entry, states.DaemonStopping("amuxd was stopped"), AMUXD)
        world.runs.homes.leave(entry)
        entry.state = replace(entry.state, state_changed_at=1)

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
