"""On another boot the numbers of processes are those of others."""

import asyncio
import os
from pathlib import Path

from standin_host import World, in_world

from amuxd import states
from amuxd.hosts import Finding, Gone
from amuxd.reconcile import reconcile
from amuxd.records import Process, RunState, Session
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.supervisor import AMUXD, KERNEL, USER


async def running(world: World) -> Entry:
    entry = await world.create(None, "sleep", "1000")
    await world.runs.start(entry)
    return entry


def numbers(entry: Entry) -> tuple[Process | None, Process | None]:
    return entry.state.command, entry.state.server


def reboot(world: World, entry: Entry) -> None:
    world.runs.homes.leave(entry)
    world.host.end()
    world.supervisor.boot_id = "another boot"


def test_they_are_kept_as_long_as_the_boot_beside_them_tells_what_they_are(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await running(world)
        await world.supervisor.apply(entry, states.DaemonStopping(), AMUXD)
        await world.supervisor.amend(entry, "Reason", reason="another")
        assert None not in numbers(entry)
        reboot(world, entry)
        await reconcile(world.runs)
        assert (entry.state.state, entry.state.boot_id) == (State.SUSPENDED, "boot")

    asyncio.run(in_world(tmp_path, story))


def test_whatever_is_written_of_a_suspended_one_forgets_them(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await running(world)
        await world.supervisor.apply(entry, states.DaemonStopping(), AMUXD)
        reboot(world, entry)
        await reconcile(world.runs)
        await world.supervisor.amend(entry, "Reason", reason="another")
        assert (entry.state.boot_id, numbers(entry)) == ("another boot", (None, None))

    asyncio.run(in_world(tmp_path, story))


def test_room_that_a_power_cut_left_reserved_is_given_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await running(world)
        log = world.store.log(entry.id, entry.state.run)
        log.write_bytes(b"printed\r\n")
        reserving = await asyncio.create_subprocess_exec("fallocate", "-n", "-o", "9", "-l", "528384", log)
        assert await reserving.wait() == 0
        os.utime(log, ns=(1, 1_000_000_001))
        assert log.stat().st_blocks * 512 >= 528384
        reboot(world, entry)
        await reconcile(world.runs)
        assert log.read_bytes() == b"printed\r\n"
        assert (log.stat().st_blocks * 512 <= 16384, log.stat().st_mtime_ns) == (True, 1_000_000_001)

    asyncio.run(in_world(tmp_path, story))


def test_so_does_its_archiving(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await running(world)
        await world.supervisor.apply(entry, states.DaemonStopping(), AMUXD)
        reboot(world, entry)
        await world.supervisor.apply(entry, states.ArchiveRequested(), USER)
        assert (entry.state.boot_id, numbers(entry)) == ("another boot", (None, None))

    asyncio.run(in_world(tmp_path, story))


def test_what_is_left_of_one_that_had_ended_is_not_looked_for_by_them(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await running(world)
        await world.supervisor.apply(entry, states.WorkspaceDeleted("/code"), KERNEL)
        reboot(world, entry)
        looked_for: list[Process | None] = []

        async def find(session: Session, state: RunState) -> Finding:
            looked_for.extend((state.command, state.server))
            return Gone()

        world.host.find = find  # type: ignore[method-assign]
        await reconcile(world.runs)
        assert entry.settling
        await entry.settling
        assert looked_for == [None, None]
        assert entry.certificate
        assert entry.certificate.complete

    asyncio.run(in_world(tmp_path, story))
