"""A worktree whose directory is not there, moved or on what is not mounted: nobody can tell what is in it."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from pathlib import Path

import pytest
from harness.repositories import commit, git, is_reachable
from worktree_work import (
    add,
    branches,
    out_of_sight,
    repo,  # noqa: F401
)

from amuxd.errors import WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import aside, standing, worktrees
from amuxd.workspaces.worktrees import Removed


def move(made: Workspace) -> Path:
    return Path(made.directory).rename(Path(made.repository).parent / "moved")


def refused(made: Workspace, with_ignored: bool = False) -> str:
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(made, force=False, with_ignored=with_ignored)
    return str(caught.value)


@pytest.mark.parametrize("with_ignored", [False, True])
def test_it_is_refused_and_still_a_worktree_when_it_is_back(repo: Path, with_ignored: bool) -> None:
    made = add(repo)
    (Path(made.directory) / "file0").write_text("changed")
    moved = move(made)
    assert refused(made, with_ignored) == out_of_sight(made)
    moved.rename(made.directory)
    assert git(made.directory, "status", "--porcelain") == "M file0"
    assert refused(made) == "fix has 1 file with uncommitted changes (file0)"


def test_what_git_has_of_it_is_told_as_well(repo: Path) -> None:
    made = add(repo)
    commit(made.directory, "more")
    move(made)
    assert refused(made) == f"fix has 1 commit on no other branch and no remote; {out_of_sight(made)}"


def test_by_force_it_is_said_what_goes_and_commits_are_kept(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "more")
    (Path(made.directory) / "staged").write_text("work")
    git(made.directory, "add", "staged")
    (Path(made.directory) / "new").write_text("work")
    moved = move(made)
    losses = [
        f"what git keeps for {made.directory}, which is not there",
        "1 file with uncommitted changes (staged)",
        "1 commit on no other branch and no remote",
    ]
    assert worktrees.would_lose(made, force=True).lost == losses
    assert worktrees.remove(made, force=True) == Removed(losses, ["refs/amux/removed/abc123/head"])
    assert is_reachable(repo, tip)
    assert (moved / "new").read_text() == "work"
    assert branches(repo) == {"main"}
    assert len(standing.worktrees(str(repo))) == 1


@pytest.mark.parametrize("way", ["remove", "prune", "repair"])
def test_one_that_git_knows_no_more_is_forgotten_unless_its_branch_has_work(repo: Path, way: str) -> None:
    made = add(repo)
    tip = commit(made.directory, "more")
    if way == "remove":
        git(repo, "worktree", "remove", made.directory)
    elif way == "prune":
        shutil.rmtree(made.directory)
        git(repo, "worktree", "prune")
    else:
        git(move(made), "worktree", "repair")
    assert refused(made) == "fix has 1 commit on no other branch and no remote"
    git(repo, "merge", "-q", "--ff-only", "fix")
    removed = worktrees.remove(made, force=False)
    assert removed.lost == []
    if way == "repair":
        # It is a worktree on that branch still.
        assert [kept.partition(" (")[0] for kept in removed.kept] == ["branch fix"]
        assert git(repo.parent / "moved", "branch", "--show-current") == "fix"
    else:
        assert removed.kept == []
        assert branches(repo) == {"main"}
    assert is_reachable(repo, tip)


def test_it_goes_out_of_sight_after_the_look(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    look = worktrees.look

    def looked(workspace: Workspace, _there: str = "") -> object:
        found = look(workspace)
        move(made)
        return found

    monkeypatch.setattr(worktrees, "look", looked)
    with pytest.raises(WorkspaceDirty, match=f"{made.directory} is not removed"):
        worktrees.remove(made, force=False)
    monkeypatch.undo()
    (repo.parent / "moved").rename(made.directory)
    assert git(made.directory, "status", "--porcelain") == ""


def test_by_force_what_is_in_a_broken_repository_stays(repo: Path) -> None:
    made = add(repo)
    move(made)
    (repo / ".git/config").write_text("[core\n")
    with pytest.raises(WorkspaceDirty, match="git cannot tell what is in"):
        worktrees.remove(made, force=False)
    (kept,) = worktrees.remove(made, force=True).kept
    assert kept.startswith(f"what git keeps for {made.directory}, for it cannot tell what that is (")


def test_after_a_crash_it_is_not_taken_for_one_of_which_nothing_was_made(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / "new").write_text("work")
    moved = move(made)
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.recovered(made)
    assert str(caught.value) == f"{made.directory} is not there, and git lists it as a worktree"
    moved.rename(made.directory)
    assert worktrees.recovered(made)
    assert git(made.directory, "status", "--porcelain") == "?? new"


def test_what_a_crash_left_to_be_deleted_is_no_secret_to_git(repo: Path) -> None:
    made = add(repo)
    Path(made.directory).rename(aside._doomed(made))
    aside.recover(made)
    assert list(Path(made.directory).parent.iterdir()) == []
    assert made.directory not in standing.worktrees(str(repo))
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_what_a_crash_left_to_be_deleted_is_not_kept_for_its_repository(repo: Path) -> None:
    made = add(repo)
    doomed = Path(made.directory).rename(aside._doomed(made))
    hidden = repo.rename(repo.with_name("away"))
    aside.recover(made)
    assert not doomed.exists()
    hidden.rename(repo)
    assert refused(made) == out_of_sight(made)
    worktrees.remove(made, force=True)
    assert made.directory not in standing.worktrees(str(repo))


def test_what_was_made_anew_in_place_of_what_a_crash_left_to_be_deleted_stays(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "lock", made.directory)
    doomed = Path(made.directory).rename(aside._doomed(made))
    (Path(made.directory) / "deep").mkdir(parents=True)
    aside.recover(made)
    assert not doomed.exists()
    assert (Path(made.directory) / "deep").exists()
    assert "locked" not in git(repo, "worktree", "list", "--porcelain")


def test_by_force_one_that_is_back_before_git_forgets_it_stays(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(repo)
    (Path(made.directory) / "new").write_text("work")
    moved = move(made)
    forget = aside.forget

    def back(workspace: Workspace) -> None:
        moved.rename(workspace.directory)
        forget(workspace)

    monkeypatch.setattr(aside, "forget", back)
    with pytest.raises(WorkspaceDirty, match=f"{made.directory} is there again"):
        worktrees.remove(made, force=True)
    assert git(made.directory, "status", "--porcelain") == "?? new"


def test_by_force_a_directory_that_git_does_not_list_stays_and_nothing_is_said_to_go(repo: Path) -> None:
    made = add(repo)
    directory, there = Path(made.directory), repo.parent / "there"
    (directory / "new").write_text("work")
    git(repo, "worktree", "move", made.directory, str(there))
    shutil.copytree(there, directory, symlinks=True)
    with pytest.raises(WorkspaceDirty, match=f"{directory} is there, and git lists no such worktree of"):
        worktrees.remove(made, force=False)
    assert worktrees.would_lose(made, force=True).lost == []
    assert worktrees.remove(made, force=True) == Removed([], [f"{directory} itself, which git does not list"])
    assert (directory / "new").read_text() == (there / "new").read_text() == "work"
    assert git(there, "branch", "--show-current") == "fix"
