"""What a run is begun in is written down with it, and is what it is looked for by."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd.records import Ground, Process, Workspace
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import State
from amuxd.store import Known
from amuxd.workspaces import orphans as orphans_module
from amuxd.workspaces import registry as registry_module
from amuxd.workspaces.directories import Directories, Identity, Presence, identify
from amuxd.workspaces.orphans import Orphans, orphan_dependent
from amuxd.workspaces.registry import Workspaces

Story = Callable[[World, Workspaces, Path], Awaitable[None]]


def on(root: Path, story: Story) -> None:
    directory = root / "here"
    directory.mkdir()

    async def run(world: World) -> None:
        workspaces = world.runs.places
        assert isinstance(workspaces, Workspaces)
        workspace = Workspace("here11", "here", str(directory), 1)
        await workspaces.write(workspace)
        workspaces.know(workspace)
        async with asyncio.timeout(30):
            await story(world, workspaces, directory)

    asyncio.run(in_world(root, run))


async def begun(world: World) -> Entry:
    entry = await world.create(None, "sleep", "1000", workspace_id="here11")
    await world.runs.start(entry)
    return entry


def replace(directory: Path) -> None:
    """And nobody gets its number, as where a process holds on to it."""
    directory.rename(directory.with_name(f"away{time.monotonic_ns()}"))
    directory.mkdir()


def test_it_is_on_disk_before_the_command_is_let_go(tmp_path: Path) -> None:
    async def story(world: World, _: Workspaces, directory: Path) -> None:
        on_disk: list[Ground | None] = []

        def release(session_id: str) -> None:
            known = world.store.load(session_id)
            assert isinstance(known, Known)
            on_disk.append(known.state.ground)

        world.host.release = release  # type: ignore[method-assign]
        entry = await begun(world)
        identity = identify(str(directory))
        assert identity is not None
        assert entry.home is not None
        assert on_disk == [Ground(entry.home.command, *identity)]
        elsewhere = await world.create(None, "sleep", "1000")
        await world.runs.start(elsewhere)
        assert on_disk[1:] == [None]

    on(tmp_path, story)


def test_where_nobody_can_tell_it_is_begun_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        raise TimeoutError

    async def story(world: World, _: Workspaces, directory: Path) -> None:
        monkeypatch.setattr(registry_module, "ask", silent)
        entry = await begun(world)
        assert (entry.state.state, entry.state.ground) == (State.RUNNING, None)

    on(tmp_path, story)


class LateWatch:
    """Nothing is watched before it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_due, self.goes_on = asyncio.Event(), asyncio.Event()
        watch = Directories.watch

        async def late(directories: Directories, directory: str, whose: str) -> Identity | None:
            self.is_due.set()
            await self.goes_on.wait()
            return await watch(directories, directory, whose)

        monkeypatch.setattr(Directories, "watch", late)


def test_one_that_is_replaced_before_it_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, workspaces: Workspaces, directory: Path) -> None:
        watch, orphans = LateWatch(monkeypatch), Orphans(world.runs, workspaces)
        world.supervisor.listen(orphans)
        entry = await begun(world)
        await watch.is_due.wait()
        replace(directory)
        watch.goes_on.set()
        await world.until(lambda: entry.state.state is State.ORPHANED)
        assert entry.state.reason == f"its directory {directory} is gone"
        await world.until(lambda: workspaces.presence.get("here11") is Presence.PRESENT)
        orphans.close()

    on(tmp_path, story)


def test_one_that_is_replaced_and_watched_before_it_is_known_to_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, workspaces: Workspaces, directory: Path) -> None:
        watch, orphans = LateWatch(monkeypatch), Orphans(world.runs, workspaces)
        world.supervisor.listen(orphans)
        ground = workspaces.ground

        async def replaced_then(entry: Entry, command: Process) -> Ground | None:
            found = await ground(entry, command)
            await watch.is_due.wait()
            replace(directory)
            watch.goes_on.set()
            await world.until(lambda: orphans._directories.are_watched(str(directory), "here11"))
            await world.until(lambda: not orphans._being_looked_at)
            return found

        monkeypatch.setattr(workspaces, "ground", replaced_then)
        entry = await begun(world)
        await world.until(lambda: entry.state.state is State.ORPHANED)
        orphans.close()

    on(tmp_path, story)


def test_one_that_begins_in_what_came_in_its_place_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, workspaces: Workspaces, directory: Path) -> None:
        orphans = Orphans(world.runs, workspaces)
        world.supervisor.listen(orphans)
        ground = workspaces.ground
        lost: list[Entry] = []
        monkeypatch.setattr(
            orphans_module, "orphan_dependent", lambda runs, entry, place: told(lost, runs, entry, place)
        )

        async def replaced_first(entry: Entry, command: Process) -> Ground | None:
            replace(directory)
            await world.until(lambda: bool(lost))
            return await ground(entry, command)

        async def told(lost: list[Entry], runs: Runs, entry: Entry, place: str) -> None:
            lost.append(entry)
            await orphan_dependent(runs, entry, place)

        monkeypatch.setattr(workspaces, "ground", replaced_first)
        entry = await world.create(None, "sleep", "1000", workspace_id="here11")
        await world.until(
            lambda: (
                orphans._directories.are_watched(str(directory), "here11") and not orphans._being_looked_at
            )
        )
        await world.runs.start(entry)
        # Those that waited for it before us have had it.
        async with entry.operation:
            assert entry.state.state is State.RUNNING
        replace(directory)
        await world.until(lambda: entry.state.state is State.ORPHANED)
        assert len(lost) > 1
        orphans.close()

    on(tmp_path, story)
