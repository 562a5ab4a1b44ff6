"""A workspace whose making amuxd did not finish, removed while what became of it is being found out."""

import asyncio
import errno
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import add_waiting_hook, git, repository
from harness.waiting import until
from standin_host import World, in_world
from worktree_work import planned

from amuxd import helpers
from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import (
    AmuxError,
    Internal,
    InvalidTransition,
    NameTaken,
    NoSuchWorkspace,
    WorkspaceDirty,
)
from amuxd.files import StoreError
from amuxd.git import CHECKOUT, GitFailed
from amuxd.git import git as real_git
from amuxd.records import Workspace
from amuxd.workspaces import copies, half_made, making, worktrees
from amuxd.workspaces.ledger import Ledger, UnreadableWorkspace
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


@pytest.mark.parametrize("work", ["", "mine"])
@pytest.mark.parametrize("failure", [StoreError, ValueError])
def test_that_it_was_made_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, failure: type[Exception]
) -> None:
    """The disk fills while git checks it out. Nothing is left of it where nobody worked in it."""

    async def story(world: World) -> None:
        ledger, workspaces = world.workspaces.ledger, world.workspaces
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees")))
        define = ledger.define

        def full(workspace: Workspace) -> Workspace:
            if workspace.being_made:
                return define(workspace)
            if work:
                (Path(workspace.directory) / work).write_text("x")
            monkeypatch.setattr(ledger, "define", define)
            raise failure("No space left on device")

        monkeypatch.setattr(ledger, "define", full)
        repo = repository(tmp_path / "code")
        seen = Seen()
        workspaces.listen(seen)
        maker = Maker(world.runs, workspaces, Repositories())
        with pytest.raises((Internal, ValueError), match=r"No space left on device$"):
            await maker.add(Asked("fix", repository=str(repo)))
        assert [type(told) for told in seen.appeared] == [UnreadableWorkspace]
        assert workspaces.find("fix") is seen.appeared[0]
        await world.until(lambda: not workspaces.not_readable)
        kept = [workspace.name for workspace in workspaces]
        assert kept == (["fix"] if work else [])
        assert (git(repo, "branch", "--list", "fix") != "") is bool(work)
        assert [workspace.name for workspace in ledger.load_all()] == kept
        assert seen.disappeared == [seen.appeared[0].id]

    asyncio.run(in_world(tmp_path / "state", story))


def test_amuxd_ends_while_files_are_brought_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one takes back what git did not."""
    copy = copies._copy

    def stop(*about: Any) -> str:
        copied = copy(*about)
        helpers.stop()
        return copied

    async def story(world: World) -> None:
        ledger = Ledger(tmp_path / "state", world.store, "boot")
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees", ("a", "b"))))
        repo = repository(tmp_path / "code")
        for name in ("a", "b"):
            (repo / name).write_text("x")
        with monkeypatch.context() as patch:
            patch.setattr(helpers, "_stopping", threading.Event())
            patch.setattr(copies, "_copy", stop)
            maker = Maker(world.runs, Workspaces(world.supervisor, ledger), Repositories())
            with pytest.raises(Internal, match="fix could not be made: amuxd is stopping"):
                await maker.add(Asked("fix", repository=str(repo)))

        workspaces = Workspaces(world.supervisor, ledger)
        (unfinished,) = await workspaces.load()
        await Maker(world.runs, workspaces, Repositories()).recover(unfinished)
        assert not ledger.load_all()
        assert git(repo, "worktree", "list").count("\n") == 0
        assert git(repo, "branch", "--list", "fix") == ""

    asyncio.run(in_world(tmp_path / "state", story))
    assert not (tmp_path / "trees/code/fix").exists()


class Seen:
    def __init__(self) -> None:
        self.appeared: list[Workspace | UnreadableWorkspace] = []
        self.disappeared: list[str] = []

    def workspace_appeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        self.appeared.append(workspace)

    def workspace_disappeared(self, workspace: Workspace | UnreadableWorkspace) -> None:
        self.disappeared.append(workspace.id)

    def workspace_changed(self, workspace: Workspace) -> None: ...

    def directory_changed(self, workspace: Workspace) -> None: ...

    def presence_changed(self, workspace: Workspace) -> None: ...


def test_what_git_is_still_making_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no systemd, when amuxd was killed: nothing ends git with it."""
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    reached, go = add_waiting_hook(repo, tmp_path)
    plan = planned(repo)
    git(repo, "branch", plan.branch)
    plan = replace(plan, made_branch=False)
    making = subprocess.Popen(["git", "-C", str(repo), *half_made.words_to_git(plan)])
    until(reached.exists)
    with pytest.raises(WorkspaceDirty, match="git is still making it"):
        worktrees.recovered(plan)
    go.write_text("\n")
    assert making.wait(30) == 0
    assert not worktrees.recovered(plan)
    assert not Path(plan.directory).exists()


def refuse_copies(*_: object) -> dict[str, str]:
    raise OSError(errno.ENOSPC, "No space left on device", "/code/.env")


def test_a_plan_that_cannot_be_forgotten_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next amuxd would take for its own what somebody has made there since."""

    async def story(world: World) -> None:
        ledger, workspaces = world.workspaces.ledger, world.workspaces
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees", (".env",))))
        repo = repository(tmp_path / "code")
        git(repo, "branch", "dev")
        remove = ledger.remove
        refused: list[str] = []

        def refuse(workspace_id: str) -> None:
            refused.append(workspace_id)
            monkeypatch.setattr(ledger, "remove", remove)
            raise StoreError("Read-only file system")

        monkeypatch.setattr(ledger, "remove", refuse)
        monkeypatch.setattr(copies, "bring", refuse_copies)
        maker = Maker(world.runs, workspaces, Repositories())
        with pytest.raises(Internal, match=r"fix could not be made: /code/\.env: No space left"):
            await maker.add(Asked("fix", repository=str(repo), branch="dev"))
        assert refused == [*workspaces.not_readable]
        with pytest.raises(NameTaken):
            await maker.add(Asked("fix", repository=str(repo), branch="dev"))
        await world.until(lambda: not workspaces.not_readable)
        assert not ledger.load_all()
        assert not (tmp_path / "trees/code/fix").exists()

    asyncio.run(in_world(tmp_path / "state", story))


def test_what_another_workspace_has_is_not_taken_back(tmp_path: Path) -> None:
    """An amuxd before this one forgot of a plan, though not on the disk, and made it again then."""

    async def story(world: World) -> None:
        ledger, workspaces = world.workspaces.ledger, world.workspaces
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees")))
        repo = repository(tmp_path / "code")
        git(repo, "branch", "dev")
        maker = Maker(world.runs, workspaces, Repositories())
        made = await maker.add(Asked("fix", repository=str(repo), branch="dev"))
        await workspaces.write(replace(made, id="before", being_made=True))
        (unfinished,) = await workspaces.load()
        await maker.recover(unfinished)
        assert worktrees.look(made).is_here
        assert [workspace.id for workspace in ledger.load_all()] == [made.id]

    asyncio.run(in_world(tmp_path / "state", story))


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), FileExistsError(17, "is there")])
@pytest.mark.parametrize("branch", ["", "dev"])
@pytest.mark.parametrize("is_listed", [True, False])
def test_what_cannot_be_taken_back_is_known_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, branch: str, is_listed: bool
) -> None:
    directory = tmp_path / "trees/code/fix"

    def refuse(place: object, *words: str, **how: Any) -> str:
        if words[:2] != ("worktree", "remove"):
            return real_git(place, *words, **how)  # type: ignore[arg-type]
        assert how["deadline"] == CHECKOUT
        if not is_listed:
            # As git does it where it cannot delete all of the files.
            shutil.rmtree(git(directory, "rev-parse", "--absolute-git-dir"))
        raise GitFailed([], -1, "git worktree took longer than 600 s")

    def fail(*_: object) -> dict[str, str]:
        raise failure

    async def story(world: World) -> None:
        workspaces = world.workspaces
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees", (".env",))))
        repo = repository(tmp_path / "code")
        git(repo, "branch", "dev")
        monkeypatch.setattr(worktrees, "git", refuse)
        monkeypatch.setattr(copies, "bring", fail)
        monkeypatch.setattr(making, "RETRY_PAUSE", 0.01)
        asked = Asked("fix", repository=str(repo), branch=branch)
        why = f"{directory} is left, for it could not be taken back \\(git worktree took"
        with pytest.raises(Internal, match=why):
            await Maker(world.runs, workspaces, Repositories()).add(asked)
        (unread,) = workspaces.not_readable.values()
        assert f"{directory} is left" in unread.why
        if not is_listed:
            why = f"something in {directory} cannot be deleted"
            await world.until(lambda: next(iter(workspaces.not_readable.values())).why == why)
            shutil.rmtree(directory)
        monkeypatch.setattr(worktrees, "git", real_git)
        await world.until(lambda: not workspaces.not_readable)
        assert not world.workspaces.ledger.load_all()
        assert git(repo, "branch", "--format=%(refname:short)").split() == ["dev", "main"]

    asyncio.run(in_world(tmp_path / "state", story))
    assert not directory.exists()
