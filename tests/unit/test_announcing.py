"""What the bus is told of a session that moves: all that is different then."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from standin_host import World, in_world

from amuxd.bus.objects import SESSION, Announcer, SessionObject
from amuxd.bus.server import Server
from amuxd.registry import Entry
from amuxd.terminals import Terminals


class Told:
    """A server that only notes what it is to tell."""

    def __init__(self) -> None:
        self.properties: set[str] = set()

    def changed(self, path: str, interface_name: str, names: Iterable[str]) -> None:
        if interface_name == SESSION.name:
            self.properties |= set(names)

    def emit(self, *_: object) -> None:
        pass


def shown(world: World, entry: Entry) -> dict[str, Any]:
    session = SessionObject(world.runs, cast(Terminals, None), entry)
    told = [name for name, member in SESSION.properties.items() if member.emits != "false"]
    return {name: session.get_property(name) for name in told}


@pytest.mark.parametrize("ended_before", [False, True])
def test_of_one_that_is_suspended_all_that_differs_is_told(tmp_path: Path, ended_before: bool) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        if ended_before:
            await world.runs.stop(entry, 1)
            await world.runs.restart(entry)
        server = Told()
        world.supervisor.listen(Announcer(cast(Server, server), world.runs, cast(Terminals, None)))
        before = shown(world, entry)
        await world.runs.suspend("amuxd was stopped")
        after = shown(world, entry)
        differs = {name for name in after if after[name] != before[name]}
        assert {"State", "Reason", "StateChangedUSec"} <= differs <= server.properties

    asyncio.run(in_world(tmp_path, story))
