"""A workspace whose making amuxd did not finish, removed while what became of it is being found out."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from harness.repositories import repository
from standin_host import World, in_world

from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import AmuxError, InvalidTransition, NoSuchWorkspace, WorkspaceDirty
from amuxd.workspaces import making, worktrees
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.repositories import Repositories

DEADLINE = 30.0
REMOVED = (NoSuchWorkspace, "the workspace fix was removed already")


@pytest.mark.parametrize(
    ("outcome", "refusals", "is_left"),
    [
        (True, [(InvalidTransition, "the workspace fix has just been made, and is whole")] * 2, True),
        (False, [REMOVED] * 2, False),
        (WorkspaceDirty("not now"), [REMOVED], False),
    ],
    ids=["made", "undone", "not known"],
)
def test_removed_while_git_is_asked_about_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: bool | WorkspaceDirty,
    refusals: list[tuple[type[AmuxError], str]],
    is_left: bool,
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def slow(_: object) -> bool:
        asked.set()
        may_answer.wait(DEADLINE)
        if isinstance(outcome, WorkspaceDirty):
            raise outcome
        return outcome

    async def story(world: World) -> None:
        ledger = Ledger(tmp_path / "state", world.store, "boot")
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees")))
        before = Workspaces(world.supervisor, ledger)
        repo = str(repository(tmp_path / "code"))
        made = await Maker(world.runs, before, Repositories()).add(Asked("fix", repository=repo))
        await before.write(replace(made, being_made=True))

        workspaces = Workspaces(world.supervisor, ledger)
        (unfinished,) = await workspaces.load()
        monkeypatch.setattr(worktrees, "recovered", slow)
        monkeypatch.setattr(making, "RETRY_PAUSE", 0)
        recovering = asyncio.create_task(Maker(world.runs, workspaces, Repositories()).recover(unfinished))
        assert await asyncio.to_thread(asked.wait, DEADLINE)
        removals = [
            asyncio.create_task(workspaces.put_aside(workspaces.not_readable[made.id])) for _ in range(2)
        ]
        # They have asked, and wait.
        await asyncio.sleep(0)
        may_answer.set()
        async with asyncio.timeout(DEADLINE):
            first, second = await asyncio.gather(*removals, return_exceptions=True)
        refused = [(type(error), str(error)) for error in (first, second) if isinstance(error, AmuxError)]
        assert refused == refusals
        assert isinstance(first, Path) == (len(refusals) == 1)
        await recovering
        assert [workspace.id for workspace in workspaces] == [made.id] * is_left
        assert not workspaces.not_readable
        assert len(ledger.load_all()) == is_left

    asyncio.run(in_world(tmp_path / "state", story))
