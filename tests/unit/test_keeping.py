"""What a removal keeps is there when it has ended, also of a worktree whose directory is not."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, git, repository
from worktree_work import (
    add,
    objects,
    out_of_sight,
    repo,  # noqa: F401
    update,
    with_submodule,
)

from amuxd.errors import WorkspaceDirty
from amuxd.git import git as real
from amuxd.records import Workspace
from amuxd.workspaces import keeping, standing, worktrees
from amuxd.workspaces.worktrees import Removed


def move(made: Workspace) -> Path:
    return Path(made.directory).rename(Path(made.repository).parent / "moved")


def refused(made: Workspace) -> str:
    """For it is not there, and also for what git has of it, which git keeps."""
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(made, force=False)
    assert made.directory in standing.worktrees(made.repository)
    told = str(caught.value).removesuffix(out_of_sight(made))
    assert told != str(caught.value)
    return told.removeprefix("fix has ").removesuffix("; ")


def test_a_submodules_commits_when_the_directory_was_moved(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    tip = commit(update(made), "more")
    git(made.directory, "commit", "-q", "-a", "-m", "newer")
    git(repo, "merge", "-q", "--ff-only", "fix")
    moved = move(made)
    assert refused(made) == "1 commit in submodule lib on no remote"
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    shutil.rmtree(moved)
    assert tip in git(repo, "rev-list", "--all").split()


def test_a_commit_that_a_submodule_left_when_the_directory_was_deleted(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    tip = commit(inner, "more")
    git(inner, "checkout", "-q", "HEAD~1")
    shutil.rmtree(made.directory)
    assert refused(made) == ""
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    assert tip in git(repo, "rev-list", "--all").split()


def test_what_only_a_reflog_has_when_the_directory_was_moved(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    tips = {commit(made.directory, "one")}
    git(made.directory, "checkout", "-q", "fix")
    tips.add(commit(made.directory, "two"))
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    move(made)
    (told,) = worktrees.remove(made, force=True).kept
    assert told == "refs/amux/removed/abc123/log, whose reflog has 2 that were amended or left"
    git(repo, "gc", "-q", "--prune=now")
    assert tips <= objects(repo)


def test_what_only_the_reflog_of_its_branch_has_when_git_has_forgotten_it(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "one")
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    git(repo, "worktree", "remove", made.directory)
    assert "/log, whose reflog has 1 " in worktrees.remove(made, force=False).kept[0]
    assert tip in objects(repo)


def test_refs_of_this_worktree_alone_when_the_directory_was_moved(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "one")
    git(made.directory, "update-ref", "refs/worktree/mine", tip)
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    move(made)
    assert refused(made) == "1 commit on no other branch and no remote"
    worktrees.remove(made, force=True)
    assert tip in git(repo, "rev-list", "--all").split()


def test_what_was_fetched_from_elsewhere_and_what_only_git_itself_has_noted(
    repo: Path, tmp_path: Path
) -> None:
    made = add(repo)
    other = repository(tmp_path / "other")
    fetched = commit(other, "theirs")
    git(made.directory, "fetch", "-q", str(other), "main")
    noted = git(made.directory, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "noted")
    git(made.directory, "update-ref", "ORIG_HEAD", noted)
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept == "refs/amux/removed/abc123/log, whose reflog has 2 that were amended or left"
    assert {fetched, noted} <= set(git(repo, "rev-list", "--all", "--reflog").split())


def test_the_reflog_of_a_ref_of_this_worktree_alone(repo: Path) -> None:
    made = add(repo)
    tip = git(repo, "commit-tree", "-m", "wip", "-p", "HEAD", "HEAD^{tree}")
    for target in (tip, "HEAD"):
        git(made.directory, "update-ref", "--create-reflog", "refs/worktree/mine", target)
    assert "/log, whose reflog has 1 " in worktrees.remove(made, force=False).kept[0]
    assert tip in objects(repo)


def test_what_is_staged_for_a_first_commit_when_the_directory_was_moved(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "switch", "-q", "--orphan", "new")
    (Path(made.directory) / "first").write_text("x")
    git(made.directory, "add", "first")
    move(made)
    assert refused(made) == "1 file with uncommitted changes (first)"


def test_a_worktree_that_git_knows_by_a_relative_path(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "update-ref", "refs/worktree/mine", commit(made.directory, "one"))
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    own = repo / ".git/worktrees/fix"
    (own / "gitdir").write_text(os.path.relpath(f"{made.directory}/.git", own) + "\n")
    move(made)
    assert worktrees.look(made).unpushed == 1


def shallow_submodule(repo: Path) -> tuple[Workspace, Path]:
    library = repository(repo.parent / "library")
    for name in ("a", "b"):
        commit(library, name)
    git(repo, "submodule", "add", "-q", f"file://{library}", "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    made = add(repo)
    inner = update(made, "lib", "--depth", "1")
    assert git(inner, "rev-parse", "--is-shallow-repository") == "true"
    return made, inner


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
def test_commits_of_a_shallow_submodule(repo: Path, is_left: bool, is_moved: bool) -> None:
    made, inner = shallow_submodule(repo)
    tip = commit(inner, "more")
    if is_left:
        git(inner, "checkout", "-q", "HEAD~1")
    if is_moved:
        move(made)
    place = repo / ".git/amux/removed/abc123/submodules/lib"
    removed = worktrees.remove(made, force=is_moved or not is_left)
    assert removed.kept == [f"{place}, the repository of submodule lib"]
    assert git(repo, "rev-parse", "--is-shallow-repository") == "false"
    assert tip in git(place, "rev-list", "--all", "--reflog").split()
    assert git(place, "show", f"{tip}:more") == "more"
    git(place, "fsck", "--strict")
    assert git(repo, "for-each-ref", "refs/amux") == ""


def test_what_was_kept_for_a_removal_that_is_refused_then_is_not_kept_twice(repo: Path) -> None:
    made, inner = shallow_submodule(repo)
    commit(inner, "more")
    stem = repo / ".git/amux/removed/abc123/submodules"
    worktrees.keep_ahead(made, force=True)
    worktrees.keep_ahead(made, force=True)
    tip = commit(inner, "later")
    assert worktrees.remove(made, force=True).kept == [f"{stem}/lib-1, the repository of submodule lib"]
    assert tip in git(stem / "lib-1", "rev-list", "--all").split()


def test_files_that_cannot_be_linked_are_copied(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, inner = shallow_submodule(repo)
    tip = commit(inner, "more")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    (kept,) = worktrees.remove(made, force=True).kept
    assert tip in git(kept.partition(",")[0], "rev-list", "--all").split()


def test_what_cannot_be_kept_is_not_thrown_away(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, inner = shallow_submodule(repo)
    tip = commit(inner, "more")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copy2", refuse)
    told = "commits of submodule lib cannot be kept: .*No space left on device"
    with pytest.raises(WorkspaceDirty, match=told):
        worktrees.remove(made, force=True)
    assert git(inner, "rev-parse", "HEAD") == tip
    assert list((repo / ".git/amux/removed/abc123/submodules").iterdir()) == []


def test_a_copy_that_lacks_something_is_not_taken_for_one(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, inner = shallow_submodule(repo)
    tip = commit(inner, "more")

    def lack(place: Path) -> None:
        shutil.rmtree(place / "logs")
        (place / "HEAD").unlink()
        (place / "HEAD").write_text("ref: refs/heads/none\n")

    monkeypatch.setattr(keeping, "_let_go_of_its_files", lack)
    with pytest.raises(WorkspaceDirty, match=f"submodules/lib cannot be kept: {tip}"):
        worktrees.remove(made, force=True)
    assert git(inner, "rev-parse", "HEAD") == tip


def test_a_ref_that_is_not_there_is_not_claimed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    tip = commit(made.directory, "one")

    def forget(directory: Any, *arguments: str, **options: Any) -> str:
        return "" if arguments[0] == "update-ref" else real(directory, *arguments, **options)

    monkeypatch.setattr(keeping, "git", forget)
    with pytest.raises(WorkspaceDirty, match=f"commits of fix cannot be kept: {tip}"):
        worktrees.remove(made, force=True)
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(WorkspaceDirty, match=f"what was amended or left cannot be kept: {tip}"):
        worktrees.remove(made, force=True)
    assert Path(made.directory).exists()


@pytest.mark.parametrize("name", ["my lib", "a.b/..c/d.lock", "~^:?*[x]", "100%", "über ✨", ".x."])
def test_whatever_a_submodule_is_called(repo: Path, name: str) -> None:
    library = repository(repo.parent / "library")
    git(repo, "submodule", "add", "-q", "--name", name.replace("/..", "/x.."), str(library), "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    made = add(repo)
    tip = commit(update(made), "more")
    (kept,) = worktrees.remove(made, force=True).kept
    assert git(repo, "rev-parse", f"{kept.removesuffix('*')}HEAD") == tip


def test_keeping_leaves_no_trace_beside_what_is_kept(repo: Path) -> None:
    with_submodule(repo)
    git(repo, "config", "fetch.prune", "true")
    made = add(repo)
    inner = update(made)
    tip = commit(inner, "more")
    git(inner, "checkout", "-q", "HEAD~1")
    before = git(inner, "for-each-ref")
    worktrees.keep_ahead(made, force=True)
    worktrees.keep_ahead(made, force=True)
    assert git(inner, "for-each-ref") == before
    assert not (repo / ".git/FETCH_HEAD").exists()
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    assert tip in git(repo, "rev-list", "--all").split()


def test_a_removal_of_a_moved_one_without_work_keeps_nothing(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    update(made)
    move(made)
    assert refused(made) == ""
    lost = [f"what git keeps for {made.directory}, which is not there"]
    assert worktrees.remove(made, force=True) == Removed(lost, [])
    assert git(repo, "for-each-ref", "refs/amux") == ""


def test_what_was_kept_for_a_removal_that_was_refused_stays_kept(repo: Path) -> None:
    """It is on the branch no more, and what is kept now would have the same name."""
    made = add(repo)
    tip = commit(made.directory, "more")
    git(made.directory, "checkout", "-q", "--detach", "main")
    worktrees.keep_ahead(made, force=True)
    git(made.directory, "checkout", "-q", "fix")
    git(made.directory, "reset", "-q", "--hard", "main")
    assert worktrees.remove(made, force=False) == Removed([], [])
    assert git(repo, "for-each-ref", "--format=%(objectname) %(refname)", "refs/amux") == (
        f"{tip} refs/amux/removed/abc123/branch"
    )


def test_what_is_kept_later_has_a_name_of_its_own(repo: Path) -> None:
    made = add(repo)
    tips: list[str] = []
    for _ in range(3):
        git(made.directory, "reset", "-q", "--hard", "main")
        tips.append(commit(made.directory, f"file{len(tips)}"))
        # More often than once for the same.
        for _ in range(2):
            worktrees.keep_ahead(made, force=True)
    kept = [f"refs/amux/removed/abc123/head{number}" for number in ("", "-1", "-2")]
    assert worktrees.remove(made, force=True).kept == kept[-1:]
    assert [git(repo, "rev-parse", ref) for ref in kept] == tips
