"""Commits that no branch has, and operations under way: what of a worktree only git's own books tell."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import commit, git
from worktree_work import (
    add,
    objects,
    refusal,
    removed,
    repo,  # noqa: F401
)

from amuxd.errors import WorkspaceDirty
from amuxd.workspaces import worktrees
from amuxd.workspaces.worktrees import Removed


def test_an_operation_in_a_worktree_that_was_moved(repo: Path) -> None:
    made = add(repo)
    theirs = commit(repo, "file0", "theirs\n")
    commit(made.directory, "file0", "ours\n")
    git(made.directory, "cherry-pick", theirs, check=False)
    Path(made.directory).rename(repo.parent / "moved")
    with pytest.raises(WorkspaceDirty, match="a cherry-pick under way"):
        worktrees.remove(made, force=False)


def test_between_two_commits_of_several(repo: Path) -> None:
    made = add(repo)
    picked = [commit(repo, "file0", "theirs\n"), commit(repo, "file1", "theirs\n")]
    commit(made.directory, "file0", "ours\n")
    git(made.directory, "cherry-pick", *picked, check=False)
    (Path(made.directory) / "file0").write_text("both\n")
    git(made.directory, "commit", "-q", "-a", "-m", "by hand")
    assert "a cherry-pick or revert under way" in refusal(made)


def begin_to_merge_notes(directory: Path) -> Path:
    git(directory, "notes", "add", "-m", "mine")
    git(directory, "notes", "--ref", "other", "add", "-m", "theirs")
    git(directory, "notes", "merge", "other", check=False)
    (conflict,) = Path(git(directory, "rev-parse", "--git-path", "NOTES_MERGE_WORKTREE")).iterdir()
    conflict.write_text("both\n")
    return conflict


def test_notes_that_are_being_merged(repo: Path) -> None:
    made = add(repo)
    conflict = begin_to_merge_notes(Path(made.directory))
    assert refusal(made) == "a notes merge under way"
    assert conflict.read_text() == "both\n"
    git(made.directory, "notes", "merge", "--commit")
    assert git(repo, "notes", "show") == "both"
    assert removed(made)


def test_two_operations_beside_each_other(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "bisect", "start")
    begin_to_merge_notes(Path(made.directory))
    git(made.directory, "-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD")
    assert refusal(made) == "a rebase and a bisect and a notes merge under way"


def test_patches_that_are_being_applied(repo: Path) -> None:
    made = add(repo)
    patches = git(made.directory, "format-patch", "-1", "--root", "-o", str(repo.parent)).splitlines()
    commit(made.directory, "file0", "ours\n")
    git(repo, "merge", "-q", "--ff-only", "fix")
    git(made.directory, "am", *patches, check=False)
    assert refusal(made) == "an am session under way"
    git(made.directory, "am", "--abort")
    assert removed(made)


def test_the_message_of_what_was_squashed_is_no_operation(repo: Path) -> None:
    made = add(repo)
    commit(repo, "file0", "theirs\n")
    git(made.directory, "merge", "--squash", "main")
    assert refusal(made) == "1 file with uncommitted changes (file0)"
    git(made.directory, "reset", "-q", "--hard")
    assert removed(made)


def amended(directory: Path) -> None:
    git(directory, "commit", "-q", "--amend", "-m", "amended")


def reset(directory: Path) -> None:
    git(directory, "reset", "-q", "--hard", "HEAD~1")


def left(directory: Path) -> None:
    git(directory, "checkout", "-q", "--detach", "HEAD~1")
    commit(directory, "elsewhere")
    git(directory, "checkout", "-q", "fix")


@pytest.mark.parametrize("leave", [amended, reset, left])
@pytest.mark.parametrize("force", [False, True])
def test_commits_that_only_a_reflog_has(repo: Path, leave: Callable[[Path], None], force: bool) -> None:
    made = add(repo)
    directory = Path(made.directory)
    for name in ("one", "two"):
        commit(directory, name)
    leave(directory)
    before = objects(repo)
    if not force:
        git(repo, "merge", "-q", "--ff-only", "fix")
    kept = worktrees.remove(made, force=force).kept
    assert kept[-1] == "refs/amux/removed/abc123/log, whose reflog has 1 that were amended or left"
    assert before <= objects(repo)
    # A month later.
    for expiry in ("reflogExpire", "reflogExpireUnreachable"):
        git(repo, "config", f"gc.{expiry}", "now")
    git(repo, "gc", "-q", "--prune=now")
    assert before <= objects(repo)


@pytest.mark.parametrize("detached", [False, True])
def test_commits_that_were_left_for_a_branch_without_a_commit(repo: Path, detached: bool) -> None:
    made = add(repo)
    if detached:
        git(made.directory, "checkout", "-q", "--detach")
    first, second = commit(made.directory, "one"), commit(made.directory, "two")
    git(made.directory, "reset", "-q", "--hard", "HEAD~2")
    git(made.directory, "switch", "-q", "--orphan", "new")
    assert "/log, whose reflog has 2 " in worktrees.remove(made, force=False).kept[-1]
    git(repo, "gc", "-q", "--prune=now")
    assert {first, second} <= objects(repo)


def test_a_removal_of_what_has_no_such_commits_keeps_nothing(repo: Path) -> None:
    made = add(repo)
    commit(made.directory, "one")
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert worktrees.remove(made, force=False) == Removed([], [])
    assert git(repo, "for-each-ref", "refs/amux") == ""


def test_commits_that_a_ref_of_this_worktree_alone_leads_to(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "one")
    git(made.directory, "update-ref", "refs/worktree/mine", tip)
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    assert refusal(made) == "1 commit on no other branch and no remote"
    worktrees.remove(made, force=True)
    assert tip in git(repo, "rev-list", "--all").split()


def a_file(directory: Path) -> str:
    return git(directory, "hash-object", "-w", "new")


def a_directory(directory: Path) -> str:
    git(directory, "add", "new")
    tree = git(directory, "write-tree")
    git(directory, "reset", "-q")
    return tree


def a_tag(directory: Path) -> str:
    git(directory, "tag", "-a", "-m", "words", "mine")
    tag = git(directory, "rev-parse", "mine")
    git(directory, "tag", "-d", "mine")
    return tag


@pytest.mark.parametrize("make", [a_file, a_directory, a_tag])
def test_what_is_no_commit_and_a_ref_of_this_worktree_alone_names(
    repo: Path, make: Callable[[Path], str]
) -> None:
    made = add(repo)
    new = Path(made.directory) / "new"
    new.write_text("work")
    name = make(Path(made.directory))
    new.unlink()
    git(made.directory, "update-ref", "refs/worktree/mine", name)
    told = ["1 object that only a ref of this worktree names"]
    assert [refusal(made)] == worktrees.would_lose(made, force=True).lost == told
    git(repo, "update-ref", "refs/elsewhere/mine", name)
    assert worktrees.would_lose(made, force=False).lost == []
    git(repo, "update-ref", "-d", "refs/elsewhere/mine")
    worktrees.keep_ahead(made, force=True)
    assert worktrees.remove(made, force=True) == Removed(told, ["refs/amux/removed/abc123/object0"])
    assert git(repo, "rev-parse", "refs/amux/removed/abc123/object0") == name


def rebasing(directory: Path) -> None:
    git(directory, "rebase", "-q", "--autostash", "main", check=False)


def merging(directory: Path) -> None:
    git(directory, "merge", "-q", "--autostash", "main", check=False)


@pytest.mark.parametrize("begin", [rebasing, merging])
def test_what_git_put_away_for_what_is_under_way(repo: Path, begin: Callable[[Path], None]) -> None:
    made = add(repo)
    directory = Path(made.directory)
    commit(repo, "file0", "theirs\n")
    commit(directory, "file0", "ours\n")
    (directory / "file1").write_text("changed")
    begin(directory)
    assert (directory / "file1").read_text() != "changed"
    assert "1 change that git put away for what is under way" in refusal(made)
    kept = worktrees.remove(made, force=True).kept
    assert "refs/amux/removed/abc123/autostash" in kept
    assert git(repo, "show", "refs/amux/removed/abc123/autostash:file1") == "changed"


def test_a_stash_that_bears_another_name(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / "file0").write_text("changed")
    stash = git(made.directory, "stash", "create")
    git(made.directory, "stash", "store", "-m", "for later", stash)
    git(made.directory, "checkout", "-q", ".")
    assert refusal(made) == "1 stash"
