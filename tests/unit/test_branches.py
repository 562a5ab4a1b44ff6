"""The branch that amux made goes with its worktree: no other of that name does, and no commit."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.repositories import commit, git, repository
from standin_host import World, in_world
from worktree_work import add

from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.git import git as real
from amuxd.records import Workspace
from amuxd.workspaces import branches, keeping, worktrees
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.removing import Remover
from amuxd.workspaces.repositories import Repositories
from amuxd.workspaces.worktrees import Removed

NOT_AMUX = ["branch fix, of which git does not say that amux made it"]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    return repository(tmp_path / "code")


def all_branches(repo: Path) -> set[str]:
    return set(git(repo, "branch", "--format=%(refname:short)").split())


def make_anew(made: Workspace) -> None:
    git(made.directory, "branch", "-m", "fix", "feature")
    git(made.repository, "branch", "fix", "main")


def rename_another(made: Workspace) -> None:
    git(made.directory, "branch", "-m", "fix", "feature")
    git(made.repository, "branch", "mine", "main")
    git(made.repository, "branch", "-m", "mine", "fix")


def rename_that_of_another_workspace(made: Workspace) -> None:
    git(made.directory, "branch", "-m", "fix", "feature")
    add(Path(made.repository), "other", "other1")
    git(made.repository, "branch", "-m", "other", "fix")


def reset_it(made: Workspace) -> None:
    git(made.directory, "checkout", "-q", "--detach")
    commit(made.repository, "later")
    git(made.repository, "branch", "-f", "fix", "main")


def make_without_a_reflog(made: Workspace) -> None:
    git(made.directory, "branch", "-m", "fix", "feature")
    git(made.repository, "-c", "core.logAllRefUpdates=false", "branch", "fix", "main")


@pytest.mark.parametrize(
    "work", [make_anew, rename_another, rename_that_of_another_workspace, reset_it, make_without_a_reflog]
)
@pytest.mark.parametrize("force", [False, True])
def test_a_branch_of_the_same_name_that_somebody_else_made_stays(
    repo: Path, work: Callable[[Workspace], None], force: bool
) -> None:
    made = add(repo)
    work(made)
    before = all_branches(repo)
    assert worktrees.remove(made, force).kept == NOT_AMUX
    assert all_branches(repo) == before


def test_commits_of_a_branch_that_was_made_anew_are_safe_in_it(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "more")
    git(made.directory, "branch", "-m", "fix", "feature")
    git(repo, "branch", "fix", "feature")
    git(made.directory, "checkout", "-q", "--detach")
    git(repo, "branch", "-D", "feature")
    assert worktrees.remove(made, force=False) == Removed([], NOT_AMUX)
    assert git(repo, "rev-parse", "fix") == tip


def test_a_branch_that_was_renamed_and_renamed_back_goes(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "branch", "-m", "fix", "other")
    git(made.directory, "branch", "-m", "other", "fix")
    assert worktrees.remove(made, force=False) == Removed([], [])
    assert all_branches(repo) == {"main"}


def test_a_branch_that_stands_for_another_by_now_is_removed_like_any(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    git(repo, "symbolic-ref", "refs/heads/fix", "refs/heads/main")
    worktrees.remove(made, force=True)
    assert "main" in all_branches(repo)
    assert not Path(made.directory).exists()


def test_a_branch_that_git_cannot_be_asked_about_is_not_taken_for_another(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(repo)

    def hang(*_: object, **__: object) -> str:
        raise GitFailed([], -1, "git log took longer than 30 s")

    monkeypatch.setattr(branches, "git", hang)
    with pytest.raises(WorkspaceDirty, match="git log took longer"):
        worktrees.remove(made, force=False)


@pytest.mark.parametrize("force", [False, True])
def test_of_two_that_are_removed_at_once_one_keeps_the_commit(
    repo: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """As two amuxds do it, say, of two people who share the repository: it is on the other's branch."""
    first = add(repo, "a", "aaa111")
    tip = commit(first.directory, "more")
    second = add(repo, "b", "bbb222", base="a")
    delete = branches.delete
    also: list[Removed] = []

    def between(*arguments: object, **options: bool) -> list[str]:
        monkeypatch.undo()
        also.append(worktrees.remove(second, force))
        return delete(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(branches, "delete", between)
    kept = worktrees.remove(first, force).kept + also[0].kept
    assert tip in git(repo, "rev-list", "--all").split()
    assert kept == (
        ["refs/amux/removed/aaa111/branch"] if force else ["branch a, which has got more commits meanwhile"]
    )


@pytest.mark.parametrize("force", [False, True])
def test_two_branches_that_are_deleted_in_the_same_moment(
    repo: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    first = add(repo, "a", "aaa111")
    tip = commit(first.directory, "more")
    second = add(repo, "b", "bbb222", base="a")
    for made in (first, second):
        git(repo, "worktree", "remove", made.directory)
    held: list[str] = []

    def between(directory: object, *arguments: str, **options: dict[str, str]) -> str:
        """Who comes second deletes his own after the first has looked, and before that deletes."""
        if arguments[:2] == ("branch", "-D"):
            monkeypatch.undo()
            held.extend(branches.delete(second, "b", force))
        return real(directory, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(branches, "git", between)
    held += branches.delete(first, "a", force)
    assert held == ["refs/amux/removed/aaa111/branch"]
    assert git(repo, "rev-parse", held[0]) == tip
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/amux") == held[0]


def test_a_commit_that_comes_while_its_branch_is_deleted(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    git(repo, "worktree", "remove", made.directory)
    late = git(repo, "commit-tree", "-m", "late", "-p", "fix", "fix^{tree}")

    def between(directory: object, *arguments: str, **options: dict[str, str]) -> str:
        if arguments[:2] == ("branch", "-D"):
            git(repo, "update-ref", "refs/heads/fix", late)
        return real(directory, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(branches, "git", between)
    assert branches.delete(made, "fix", force=False) == ["refs/amux/removed/abc123/branch"]
    assert git(repo, "rev-parse", "refs/amux/removed/abc123/branch") == late


@pytest.mark.parametrize("made_by_amux", [True, False])
def test_a_branch_that_git_cannot_tell_of_keeps_nothing_else(
    repo: Path, monkeypatch: pytest.MonkeyPatch, made_by_amux: bool
) -> None:
    made = add(repo)
    if not made_by_amux:
        make_anew(made)

    def fail(*_: object) -> bool:
        raise GitFailed([], 128, "not now")

    monkeypatch.setattr(branches, "has_ref", fail)
    monkeypatch.setattr(keeping, "held", fail)
    assert worktrees.remove(made, force=False) == Removed([], ["branch fix (not now)"])
    assert not Path(made.directory).exists()
    assert made.directory not in git(repo, "worktree", "list")


def test_what_holds_a_deleted_branch_stays_where_git_cannot_tell_what_else_does(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(repo)
    tip = git(repo, "rev-parse", "fix")

    def fail(directory: object, *arguments: str, **options: dict[str, str]) -> str:
        if arguments[0] == "rev-list":
            raise GitFailed([], 128, "not now")
        return real(directory, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(branches, "git", fail)
    assert worktrees.remove(made, force=False).kept == ["refs/amux/removed/abc123/branch"]
    assert git(repo, "rev-parse", "refs/amux/removed/abc123/branch") == tip
    assert "fix" not in all_branches(repo)


def test_a_branch_that_could_not_be_deleted_is_not_kept_twice(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "add", "-q", "-f", str(repo.parent / "second"), "fix")
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept.startswith("branch fix (")
    assert git(repo, "for-each-ref", "refs/amux") == ""


@pytest.mark.parametrize("force", [False, True])
def test_two_removals_at_once_come_one_after_the_other(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    inside: list[str] = []
    overlapped: list[list[str]] = []
    take_away = worktrees.take_away

    def watched(workspace: Workspace, *how: bool) -> Removed:
        inside.append(workspace.name)
        overlapped.extend([list(inside)] if len(inside) > 1 else [])
        try:
            return take_away(workspace, *how)
        finally:
            inside.remove(workspace.name)

    monkeypatch.setattr(worktrees, "take_away", watched)

    async def story(world: World) -> None:
        workspaces = Workspaces(world.supervisor, Ledger(tmp_path / "state", world.store, "boot"))
        world.runs.configure(Settings(workspaces=WorkspaceSettings(tmp_path / "trees")))
        repositories = Repositories()
        # Neither waits for a thread.
        repositories._threads = ThreadPoolExecutor(4)
        maker = Maker(world.runs, workspaces, repositories)
        remover = Remover(world.runs, workspaces, repositories)
        first = await maker.add(Asked("a", repository=str(repo)))
        tip = commit(first.directory, "more")
        second = await maker.add(Asked("b", repository=str(repo), base="a"))
        answers = await asyncio.gather(
            *(remover.remove(workspace, force) for workspace in (first, second)), return_exceptions=True
        )
        assert overlapped == []
        assert tip in git(repo, "rev-list", "--all").split()
        refused = [str(answer) for answer in answers if isinstance(answer, WorkspaceDirty)]
        kept = [kept for answer in answers if isinstance(answer, Removed) for kept in answer.kept]
        if force:
            assert len(kept) == 1
        else:
            assert len(refused) == 1
            assert refused[0].endswith("has 1 commit on no other branch and no remote")

    asyncio.run(in_world(tmp_path / "state", story))


def test_a_removal_whose_repository_is_gone_is_refused(repo: Path) -> None:
    made = add(repo)
    repo.rename(repo.with_name("away"))
    with pytest.raises(WorkspaceDirty, match="git cannot tell"):
        worktrees.remove(made, force=False)
