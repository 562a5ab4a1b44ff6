"""Removals that amuxd did not finish: nobody comes into such a workspace before it is back."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harness.repositories import repository
from harness.waiting import until
from standin_host import World, in_world

from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import WorkspaceBusy
from amuxd.records import Workspace
from amuxd.workspaces import aside, removing
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.repositories import Repositories

DEADLINE = 30.0
NOT_BACK = "was being removed when amuxd ended, and is not back yet: .* is in .* still"


class Shop:
    """A repository, and two worktrees of it that lie aside."""

    def __init__(self, root: Path, world: World) -> None:
        self.workspaces = Workspaces(world.supervisor, Ledger(root / "state", world.store, "boot"))
        world.runs.configure(Settings(workspaces=WorkspaceSettings(root / "trees")))
        repositories = Repositories()
        self.maker = Maker(world.runs, self.workspaces, repositories)
        self.remover = Remover(world.runs, self.workspaces, repositories)
        self.repository = repository(root / "code")

    async def leave_aside(self) -> tuple[Workspace, Workspace]:
        one, two = [
            await self.maker.add(Asked(name, repository=str(self.repository))) for name in ("one", "two")
        ]
        for workspace in (one, two):
            move_aside(workspace)
        return one, two

    async def is_closed(self, workspace: Workspace) -> bool:
        try:
            async with self.workspaces.closed(workspace):
                return False
        except WorkspaceBusy:
            return True


def move_aside(workspace: Workspace) -> None:
    Path(workspace.directory).rename(aside.place_of(workspace))


def make_anew(workspace: Workspace) -> None:
    Path(workspace.directory).mkdir()
    (Path(workspace.directory) / "theirs").touch()


def on(root: Path, scenario: Callable[[Shop], Awaitable[None]]) -> None:
    async def story(world: World) -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario(Shop(root, world))

    asyncio.run(in_world(root / "state", story))


def is_back(workspace: Workspace) -> bool:
    return (Path(workspace.directory) / "file0").exists()


def test_it_is_tried_again_until_it_is_back_and_nobody_misses_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removing, "RETRY_PAUSE", 0.01)
    attempts: list[str] = []
    recover = aside.recover

    def counted(workspace: Workspace) -> None:
        attempts.append(workspace.id)
        recover(workspace)

    monkeypatch.setattr(aside, "recover", counted)

    async def scenario(shop: Shop) -> None:
        one, two = await shop.leave_aside()
        hidden = tmp_path / "away"
        shop.repository.rename(hidden)
        recovering = asyncio.create_task(shop.remover.recover())
        await asyncio.to_thread(until, lambda: bool(attempts))
        missed = asyncio.create_task(shop.workspaces.look_while_open(one, None))
        await asyncio.to_thread(until, lambda: attempts.count(one.id) > 2 and attempts.count(two.id) > 2)
        for workspace in (one, two):
            with pytest.raises(WorkspaceBusy, match=NOT_BACK):
                await shop.remover.remove(workspace, force=True)
            with pytest.raises(WorkspaceBusy, match=NOT_BACK):
                await shop.remover.would_lose(workspace, force=True)
        assert not missed.done()
        hidden.rename(shop.repository)
        await recovering
        assert is_back(one)
        assert is_back(two)
        assert await missed is Presence.PRESENT
        # Once for each, not once for each time.
        assert caplog.text.count(" still: ") == 2
        await shop.remover.remove(one, force=False)

    on(tmp_path, scenario)


def test_one_that_somebody_made_anew_meanwhile_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(shop: Shop) -> None:
        one, two = await shop.leave_aside()
        make_anew(one)
        await shop.remover.recover()
        assert is_back(two)
        assert (aside.place_of(one) / "file0").exists()
        assert f"has been made anew; what was in it is in {aside.place_of(one)}" in caplog.text
        assert not await shop.is_closed(one)

    on(tmp_path, scenario)


def test_each_is_closed_however_long_the_other_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    recover = aside.recover

    def slow(workspace: Workspace) -> None:
        begun.release()
        may_end.wait()
        recover(workspace)

    monkeypatch.setattr(aside, "recover", slow)

    async def scenario(shop: Shop) -> None:
        left = await shop.leave_aside()
        recovering = asyncio.create_task(shop.remover.recover())
        try:
            assert await asyncio.to_thread(begun.acquire, timeout=10)
            assert [await shop.is_closed(workspace) for workspace in left] == [True, True]
        finally:
            may_end.set()
        await recovering
        assert [is_back(workspace) for workspace in left] == [True, True]

    on(tmp_path, scenario)


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_file_system_that_is_mounted_later_is_waited_for_without_holding_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mount_point: bool
) -> None:
    monkeypatch.setattr(removing, "RETRY_PAUSE", 0.01)

    async def scenario(shop: Shop) -> None:
        one, two = await shop.leave_aside()
        mounted, hidden = Path(one.directory).parent, tmp_path / "unmounted"
        mounted.rename(hidden)
        if is_mount_point:
            mounted.mkdir()
        await shop.remover.recover()
        if is_mount_point:
            mounted.rmdir()
        hidden.rename(mounted)
        await asyncio.to_thread(until, lambda: is_back(one) and is_back(two))

    on(tmp_path, scenario)


def test_nobody_looks_for_one_that_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(shop: Shop) -> None:
        left = await shop.leave_aside()
        for workspace in left:
            aside.place_of(workspace).rename(tmp_path / workspace.id)
        monkeypatch.setattr(removing, "RETRY_PAUSE", 0.01)
        await shop.remover.recover()
        for workspace in left:
            await shop.workspaces.forget(workspace)
        others = shop.workspaces.supervisor._tasks
        await asyncio.to_thread(until, lambda: not others)

    on(tmp_path, scenario)


def test_what_was_being_removed_is_found_once_its_place_can_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusals: list[OSError] = [TimeoutError(), *[PermissionError(13, "Permission denied")] * 3]
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if refusals:
            raise refusals.pop()
        return listdir(path)

    async def scenario(shop: Shop) -> None:
        left = await shop.leave_aside()
        monkeypatch.setattr(removing, "RETRY_PAUSE", 0)
        monkeypatch.setattr(os, "listdir", refuse)
        await shop.remover.recover()
        assert not refusals
        assert [is_back(workspace) for workspace in left] == [True, True]
        # Once for each reason, not once for each time.
        assert caplog.text.count("is not known: Permission denied") == 1
        assert caplog.text.count("is not known: it does not answer") == 1

    on(tmp_path, scenario)
