"""Workspaces that are added at the same time, on real git and real files."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import git, repository
from standin_host import World, in_world

from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import Internal, InvalidArgument, NoSuchWorkspace, WorkspaceBusy
from amuxd.records import Workspace
from amuxd.workspaces import copies, directories, worktrees
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.repositories import Repositories


def added_at_once(root: Path, *asked: Asked, copied: Sequence[str] = ()) -> list[Workspace | BaseException]:
    answers: list[Workspace | BaseException] = []

    async def story(world: World) -> None:
        ledger = Ledger(root / "state", world.store, "boot")
        workspaces = Workspaces(world.supervisor, ledger)
        world.runs.configure(Settings(workspaces=WorkspaceSettings(root / "trees", tuple(copied))))
        maker = Maker(world.runs, workspaces, Repositories())
        answers.extend(await asyncio.gather(*map(maker.add, asked), return_exceptions=True))
        made = [answer for answer in answers if isinstance(answer, Workspace)]
        assert sorted(made, key=lambda w: w.id) == sorted(workspaces, key=lambda w: w.id) == ledger.load_all()
        # What was promised while it was made is free again.
        for workspace in made:
            await workspaces.forget(workspace)
            assert not workspaces.whose(workspace.directory)

    asyncio.run(in_world(root / "state", story))
    return answers


def test_two_names_for_one_place_in_one_repository_get_a_place_each(tmp_path: Path) -> None:
    repo = repository(tmp_path / "code")
    (repo / "sub").mkdir()
    wanted = [Asked("feat/x", repository=str(repo)), Asked("feat-x", repository=str(repo / "sub"))]
    made = [answer for answer in added_at_once(tmp_path, *wanted) if isinstance(answer, Workspace)]
    assert len({workspace.directory for workspace in made}) == 2
    for workspace in made:
        assert git(workspace.directory, "branch", "--show-current") == workspace.name


def test_two_repositories_of_one_name_get_a_place_each(tmp_path: Path) -> None:
    repositories = [repository(tmp_path / f"{where}/code") for where in ("here", "there")]
    wanted = [
        Asked(name, repository=str(repo)) for name, repo in zip(("a/b", "a-b"), repositories, strict=True)
    ]
    made = [answer for answer in added_at_once(tmp_path, *wanted) if isinstance(answer, Workspace)]
    assert [workspace.repository for workspace in made] == [str(repo) for repo in repositories]
    assert len({workspace.directory for workspace in made}) == 2


def test_variables_of_git_that_the_caller_has_lead_to_no_other_repository(tmp_path: Path) -> None:
    repo, other = (repository(tmp_path / name) for name in ("code", "other"))
    git(other, "branch", "fix")
    environment = {"GIT_DIR": f"{other}/.git", "GIT_WORK_TREE": str(other)}
    (made,) = added_at_once(tmp_path, Asked("fix", repository=str(repo), environment=environment))
    assert isinstance(made, Workspace)
    assert git(repo, "worktree", "list").count("\n") == 1
    assert git(other, "worktree", "list").count("\n") == 0
    assert made.repository == str(repo)


def test_of_those_that_want_one_directory_one_gets_it(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    answers = added_at_once(tmp_path, *(Asked(f"n{number}", path=str(here)) for number in range(4)))
    refused = [answer for answer in answers if isinstance(answer, InvalidArgument)]
    (made,) = (answer for answer in answers if isinstance(answer, Workspace))
    assert [str(error) for error in refused] == [f"{here} is the workspace {made.name} already"] * 3


def test_a_directory_that_hangs_is_refused_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real = os.path.realpath

    def hang(path: str) -> str:
        if path == "/hung":
            answers.wait()
        return real(path)

    monkeypatch.setattr(os.path, "realpath", hang)
    monkeypatch.setattr(directories, "PATIENCE", 2.0)
    wanted = [Asked(f"n{number}", path="/hung") for number in range(64)]
    *refused, made = added_at_once(tmp_path, *wanted, Asked("here", path=str(tmp_path)))
    answers.set()
    assert {str(error) for error in refused} == {"/hung is out of reach: it does not answer"}
    assert isinstance(made, Workspace)


def test_a_place_that_hangs_since_others_had_their_turn_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, is_hung = threading.Event(), threading.Event()
    real = os.stat

    def hang(path: str, *arguments: Any, **named: Any) -> os.stat_result:
        if is_hung.is_set() and os.fspath(path) == str(tmp_path / "trees"):
            answers.wait(20)
        return real(path, *arguments, **named)

    class Busy(Repositories):
        @contextlib.asynccontextmanager
        async def turn_of_caller(self, repository: Path) -> AsyncIterator[None]:
            async with super().turn_of_caller(repository):
                is_hung.set()
                yield

    monkeypatch.setattr(os, "stat", hang)
    monkeypatch.setattr(directories, "PATIENCE", 2.0)
    monkeypatch.setattr("test_making.Repositories", Busy)
    (refused,) = added_at_once(tmp_path, Asked("fix", repository=str(repository(tmp_path / "code"))))
    answers.set()
    assert str(refused) == f"{tmp_path}/trees is out of reach: it does not answer"


def test_a_directory_that_may_not_be_looked_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os.path, "realpath", refuse)
    (refused,) = added_at_once(tmp_path, Asked("here", path="/here"))
    assert isinstance(refused, Internal)
    assert str(refused) == "/here is out of reach: Permission denied"


NO_TEXT = os.fsdecode(b"caf\xe9")


def test_copies_may_have_names_that_are_no_text(tmp_path: Path) -> None:
    repo = repository(tmp_path / "code")
    (repo / "conf").mkdir()
    (repo / "conf" / NO_TEXT).write_text("x")
    # What is written down of it is read again, and is the same.
    (made,) = added_at_once(tmp_path, Asked("fix", repository=str(repo)), copied=["conf"])
    assert isinstance(made, Workspace)
    assert set(made.copied) == {f"conf/{NO_TEXT}"}
    assert worktrees.would_lose(made, force=False).lost == []


def in_a_directory(repo: Path) -> Path:
    return repo.rename(repo.parent / NO_TEXT)


def on_a_branch(repo: Path) -> Path:
    git(repo, "checkout", "-q", "-b", NO_TEXT)
    return repo


@pytest.mark.parametrize(
    ("become", "what", "way_out"),
    [
        (in_a_directory, "repository {root}/caf?", ""),
        (on_a_branch, "base refs/heads/caf?", "; --base takes its commit as well"),
    ],
)
def test_a_worktree_of_what_cannot_be_told_is_refused_before_it_is_made(
    tmp_path: Path, become: Callable[[Path], Path], what: str, way_out: str
) -> None:
    repo = become(repository(tmp_path / "code"))
    (tmp_path / "link").symlink_to(repo)
    (refused,) = added_at_once(tmp_path, Asked("fix", repository=str(tmp_path / "link")))
    assert isinstance(refused, InvalidArgument)
    told = f"its {what.format(root=tmp_path)} is not UTF-8, and D-Bus can tell of no other{way_out}"
    assert str(refused) == told
    assert not (repo / ".git/worktrees").exists()
    assert not (repo / ".git/refs/heads/fix").exists()
    if way_out:
        (made,) = added_at_once(tmp_path, Asked("fix", repository=str(repo), base="HEAD~0"))
        assert isinstance(made, Workspace)


def test_a_directory_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    (tmp_path / NO_TEXT).mkdir()
    (tmp_path / "link").symlink_to(NO_TEXT)
    (refused,) = added_at_once(tmp_path, Asked("here", path=str(tmp_path / "link")))
    assert isinstance(refused, InvalidArgument)
    assert str(refused) == f"its directory {tmp_path}/caf? is not UTF-8, and D-Bus can tell of no other"


def test_one_whose_parent_cannot_be_told_keeps_its_path_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for link, place in (("odd", NO_TEXT), ("plain", "there")):
        (tmp_path / place / "fix").mkdir(parents=True)
        (tmp_path / link).symlink_to(place)

    async def story(world: World) -> None:
        workspaces = world.workspaces
        for number, link in enumerate(("odd", "plain")):
            one = Workspace(f"abc12{number}", link, f"{tmp_path}/{link}/fix", 1, repository="/code")
            workspaces.know(await workspaces.write(one))
        await Maker(world.runs, workspaces, Repositories()).resolve_paths()
        known = {workspace.name: workspace.directory for workspace in workspaces}
        assert known == {"odd": f"{tmp_path}/odd/fix", "plain": f"{tmp_path}/there/fix"}

    asyncio.run(in_world(tmp_path / "state", story))
    assert "workspace odd keeps the path of a link: its directory" in caplog.text


def test_whatever_goes_wrong_leaves_nothing_that_nobody_knows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not foreseen")

    monkeypatch.setattr(copies, "bring", fail)
    repo = repository(tmp_path / "code")
    (failed,) = added_at_once(tmp_path, Asked("fix", repository=str(repo)), copied=["conf"])
    assert isinstance(failed, ValueError)
    assert git(repo, "worktree", "list").count("\n") == 0
    assert git(repo, "branch", "--list", "fix") == ""


def test_a_set_up_that_a_removal_refuses_leaves_no_session(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        workspaces = world.workspaces
        (tmp_path / ".git").write_text("gitdir: /code/.git/worktrees/fix\n")
        one = await workspaces.write(Workspace("abc123", "fix", str(tmp_path), 1, repository="/code"))
        workspaces.know(one)
        maker = Maker(world.runs, workspaces, Repositories())
        async with workspaces.closed(one):
            with pytest.raises(WorkspaceBusy, match="the workspace fix is being removed"):
                await maker.set_up(one, "true", {})
        assert list(world.supervisor.registry) == []

    asyncio.run(in_world(tmp_path / "state", story))


@pytest.mark.parametrize("last_look", [1, 2])
def test_a_set_up_in_what_has_just_been_removed_leaves_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_look: int
) -> None:
    async def story(world: World) -> None:
        workspaces = world.workspaces
        one = await workspaces.write(Workspace("abc123", "fix", str(tmp_path), 1))
        workspaces.know(one)
        looks: list[Workspace] = []

        async def remove(workspace: Workspace) -> None:
            looks.append(workspace)
            if len(looks) == last_look:
                await workspaces.forget(workspace)

        monkeypatch.setattr(workspaces, "refuse_displaced", remove)
        with pytest.raises(NoSuchWorkspace, match="has just been removed"):
            await Maker(world.runs, workspaces, Repositories()).set_up(one, "true", {})
        assert len(looks) == last_look
        assert list(world.supervisor.registry) == []
        assert world.store.load_all() == []

    asyncio.run(in_world(tmp_path / "state", story))
