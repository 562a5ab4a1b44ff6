"""Who begins in a worktree while that is removed, and what is made in it, without being of it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harness.repositories import git, repository
from standin_host import World, caller, in_world

from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import Busy, InvalidTransition, WorkspaceBusy, WorkspaceDirty
from amuxd.records import Session, Workspace
from amuxd.registry import Entry
from amuxd.supervisor import now
from amuxd.workspaces import aside, worktrees
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.repositories import Repositories

DEADLINE = 60.0


class Removing:
    """The removal of a worktree, which waits where it would be moved away."""

    def __init__(self, world: World, root: Path) -> None:
        repositories = Repositories()
        self.world, self.root = world, root
        self.maker = Maker(world.runs, world.workspaces, repositories)
        self.remover = Remover(world.runs, world.workspaces, repositories)
        world.runs.configure(Settings(workspaces=WorkspaceSettings(root / "trees")))
        self.reached, self.may_go = threading.Event(), threading.Event()

    async def add(self) -> Workspace:
        return await self.maker.add(Asked("fix", repository=str(repository(self.root / "code"))))

    async def guest(self, directory: Path) -> Entry:
        registry = self.world.supervisor.registry
        session_id = registry.new_id()
        session = Session(session_id, session_id, ["true"], str(directory), now())
        return await self.world.supervisor.create(session, None)

    async def meanwhile(
        self, monkeypatch: pytest.MonkeyPatch, made: Workspace, work: Callable[[], Awaitable[None]]
    ) -> None:
        moved = aside.moved

        def late(*arguments: object) -> object:
            self.reached.set()
            self.may_go.wait(DEADLINE)
            return moved(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(aside, "moved", late)
        removal = asyncio.create_task(self.remover.remove(made, force=False))
        try:
            assert await asyncio.to_thread(self.reached.wait, DEADLINE)
            await work()
        finally:
            self.may_go.set()
        removed = await removal
        assert (removed.lost, removed.kept) == ([], [])


def test_a_session_does_not_begin_in_what_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        (link := tmp_path / "link").symlink_to(made.directory)

        async def come() -> None:
            for place in (Path(made.directory), link):
                guest = await removing.guest(place)
                with pytest.raises(WorkspaceBusy, match="the workspace fix is being removed"):
                    await world.runs.start(guest)
                assert guest.state.state == "created"
            # Elsewhere there is nothing to wait for.
            async with world.workspaces.slot(await removing.guest(tmp_path), 1, False) as has_slot:
                assert has_slot

        await removing.meanwhile(monkeypatch, made, come)

    asyncio.run(in_world(tmp_path / "state", story))


def test_nothing_is_made_a_workspace_in_what_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        inner = Path(made.directory) / "inner"
        inner.mkdir()

        async def come() -> None:
            with pytest.raises(WorkspaceBusy, match="the workspace fix is being removed"):
                await removing.maker.add(Asked("inner", path=str(inner)))

        await removing.meanwhile(monkeypatch, made, come)

    asyncio.run(in_world(tmp_path / "state", story))


def test_what_has_just_begun_in_it_keeps_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        guest = await removing.guest(Path(made.directory))
        async with world.workspaces.slot(guest, 1, False):
            with pytest.raises(WorkspaceDirty, match=f"other live sessions work in fix: {guest.id}"):
                await removing.remover.remove(made, force=False)
        inner = Workspace("inner1", "inner", f"{made.directory}/inner", now())
        with (
            world.workspaces.promised_directory(inner),
            pytest.raises(WorkspaceDirty, match="other workspaces lie in fix: inner"),
        ):
            await removing.remover.remove(made, force=False)
        assert worktrees.look(made).is_here

    asyncio.run(in_world(tmp_path / "state", story))


async def at_work(removing: Removing, made: Workspace) -> Entry:
    session = Session("busy12", "busy", ["sleep", "1000"], made.directory, now(), workspace_id=made.id)
    entry = await removing.world.supervisor.create(session, None)
    await removing.world.runs.start(entry)
    return entry


def test_nothing_is_ended_for_who_has_gone_before_the_removals_turn(tmp_path: Path) -> None:
    async def has_gone() -> bool:
        return False

    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        busy = await at_work(removing, made)
        asked = removing.remover.remove(made, force=True)
        with pytest.raises(Busy, match="has gone before it was begun"):
            await asyncio.get_running_loop().create_task(asked, context=caller(has_gone))
        assert busy.state.state == "running"
        assert git(made.repository, "for-each-ref", "refs/amux") == ""
        assert worktrees.look(made).is_here

    asyncio.run(in_world(tmp_path / "state", story))


def test_what_was_ended_for_a_removal_ends_with_it_whoever_has_gone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        busy = await at_work(removing, made)

        async def is_there() -> bool:
            return busy.state.state == "running"

        asked = removing.remover.remove(made, force=True)
        removed = await asyncio.get_running_loop().create_task(asked, context=caller(is_there))
        assert removed.lost == ["what busy does (running): it is stopped"]
        assert busy.state.state == "stopped"
        assert not worktrees.look(made).is_here

    asyncio.run(in_world(tmp_path / "state", story))


@pytest.mark.parametrize("force", [False, True])
def test_what_amuxd_looks_away_from_as_it_ends_lives_all_the_same(tmp_path: Path, force: bool) -> None:
    async def story(world: World) -> None:
        removing = Removing(world, tmp_path)
        made = await removing.add()
        busy = await at_work(removing, made)
        await world.runs.suspend("amuxd was stopped")
        why = (
            r"busy is suspended: it cannot be ended"
            if force
            else r"fix has live sessions: busy \(suspended\)"
        )
        with pytest.raises(InvalidTransition if force else WorkspaceDirty, match=why):
            await removing.remover.remove(made, force)
        assert worktrees.look(made).is_here
        assert busy.state.state == "suspended"

    asyncio.run(in_world(tmp_path / "state", story))
