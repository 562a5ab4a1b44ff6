"""What the removal of a worktree names, keeps and leaves alone, by the real git."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shlex
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, git, is_reachable, repository
from worktree_work import (
    add,
    branches,
    just_before_it_is_moved,
    misleading_environment,  # noqa: F401
    refused,
    removed,
    repo,  # noqa: F401
)

from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.git import git as real_git
from amuxd.records import Workspace
from amuxd.workspaces import aside, standing, worktrees
from amuxd.workspaces import branches as branches_of
from amuxd.workspaces.worktrees import Removed


def test_an_ignored_repository_in_it_is_no_rubbish(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".gitignore").write_text("/vendor/\n/.gitignore\n")
    repository(Path(made.directory) / "vendor")
    assert "another repository, worktree or mount in it" in refused(made)


def test_everything_that_would_be_lost_is_named(repo: Path) -> None:
    made = add(repo)
    directory = Path(made.directory)
    (directory / "file0").write_text("changed")
    assert refused(made) == "fix has 1 file with uncommitted changes (file0)"
    git(directory, "stash")
    assert refused(made) == "fix has 1 stash"
    git(directory, "stash", "pop")
    git(directory, "mv", "file0", "renamed")
    assert "uncommitted changes (renamed)" in refused(made)
    git(directory, "commit", "-q", "-a", "-m", "renamed")
    assert refused(made) == "fix has 1 commit on no other branch and no remote"
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert removed(made)


def test_commits_on_no_branch_at_all(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    tip = commit(made.directory, "more")
    assert refused(made) == "fix has 1 commit on no other branch and no remote"
    (Path(made.directory) / "file0").write_text("changed")
    git(made.directory, "stash")
    assert "1 stash" in refused(made)
    assert "stash" not in " ".join(worktrees.would_lose(made, force=True).lost)
    lost, kept = astuple(worktrees.remove(made, force=True))
    assert lost == ["1 commit on no other branch and no remote"]
    assert kept == ["refs/amux/removed/abc123/head", "the stash, which is the repository's"]
    assert is_reachable(repo, tip)


def test_work_that_is_on_no_remote_is_told_where_there_are_remotes(repo: Path) -> None:
    bare = repo.parent / "bare.git"
    git(repo.parent, "clone", "-q", "--bare", str(repo), str(bare))
    git(repo, "remote", "add", "origin", str(bare))
    git(repo, "branch", "old")
    made = add(repo, branch="old")
    commit(made.directory, "more")
    assert refused(made) == "fix has 1 commit on no other branch and no remote"
    # Nothing of it goes: the branch stays.
    assert worktrees.would_lose(made, force=True).lost == []
    git(made.directory, "push", "-q", "origin", "old")
    assert removed(made)
    assert "old" in branches(repo)


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "bisect"])
def test_what_is_under_way_is_named(repo: Path, operation: str) -> None:
    made = add(repo)
    theirs = commit(repo, "file0", "theirs\n")
    commit(made.directory, "file0", "ours\n")
    if operation == "bisect":
        git(made.directory, "bisect", "start")
    elif operation == "revert":
        first = commit(made.directory, "file0", "one\n")
        commit(made.directory, "file0", "two\n")
        git(made.directory, "revert", "--no-edit", first, check=False)
    else:
        git(made.directory, operation, theirs if operation == "cherry-pick" else "main", check=False)
    assert f"a {operation} under way" in refused(made)


def test_a_submodules_commits_are_not_lost(repo: Path) -> None:
    library = repository(repo.parent / "library")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib/one")
    git(repo, "commit", "-q", "-m", "with a submodule")
    made = add(repo)
    git(made.directory, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    inner = Path(made.directory) / "lib/one"
    (inner / "file0").write_text("changed")
    assert "uncommitted changes (lib/one)" in refused(made)
    git(inner, "commit", "-q", "-a", "-m", "in the submodule")
    tip = git(inner, "rev-parse", "HEAD")
    git(made.directory, "submodule", "deinit", "-q", "--force", "--all")
    assert refused(made) == "fix has 1 commit in submodule lib/one on no remote"
    kept = worktrees.remove(made, force=True).kept
    assert kept == ["refs/amux/removed/abc123/submodules/lib/one/*"]
    assert git(repo, "rev-parse", f"{kept[0].removesuffix('*')}HEAD") == tip


def test_a_submodule_without_work_is_no_hindrance(repo: Path) -> None:
    library = repository(repo.parent / "library")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    made = add(repo)
    git(made.directory, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    assert removed(made)


def test_copies_are_nobodys_work_until_they_are_changed(repo: Path) -> None:
    (repo / ".env").write_text("KEY=1")
    (repo / "local").mkdir()
    (repo / "local/settings").write_text("x")
    (repo / "file0").write_text("changed here")
    made = add(repo, copy=[".env", "local", "file0", "missing"])
    directory = Path(made.directory)
    assert set(made.copied) == {".env", "local/settings"}
    assert (directory / "file0").read_text() != "changed here"
    assert worktrees.look(made).files.untracked == []
    (directory / "local/more").write_text("mine")
    assert refused(made) == "fix has 1 untracked directory (local/)"
    (directory / "local/more").unlink()
    (directory / ".env").write_text("KEY=2")
    assert refused(made) == "fix has 1 untracked file (.env)"
    git(repo, "config", "core.excludesFile", str(repo.parent / "ignored"))
    (repo.parent / "ignored").write_text(".env\n")
    assert refused(made) == "fix has 1 ignored copy, changed or the last there is (.env)"
    assert refused(made, with_ignored=True) == "fix has 1 ignored copy, changed or the last there is (.env)"
    (directory / ".env").write_text("KEY=1")
    assert removed(made)


def test_one_that_is_gone_already_is_cleaned_up(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    tip = commit(made.directory, "more")
    Path(made.directory).rename(repo.parent / "elsewhere")
    with pytest.raises(WorkspaceDirty, match="1 commit on no other branch"):
        worktrees.remove(made, force=False)
    worktrees.remove(made, force=True)
    assert is_reachable(repo, tip)
    assert len(standing.worktrees(str(repo))) == 1
    assert worktrees.remove(made, force=False) == worktrees.Removed([], [])


def test_one_that_git_knows_no_more_is_left_alone(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".git").unlink()
    with pytest.raises(WorkspaceDirty, match="git cannot tell what is in"):
        worktrees.remove(made, force=False)
    (kept,) = worktrees.remove(made, force=True).kept
    assert kept.startswith(f"{made.directory} and what git keeps for it, ")
    assert Path(made.directory).is_dir()


def test_what_the_refusal_names_mends_it(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".git").unlink()
    told = refused(made).partition(" is gone: ")[2].removesuffix(" may mend that")
    program, option, *words = shlex.split(told)
    assert (program, option) == ("git", "-C")
    git(*words)
    worktrees.remove(made, force=False)
    assert not Path(made.directory).exists()


def test_a_directory_that_became_another_repositorys_is_left_alone(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".git").unlink()
    git(made.directory, "init", "-q")
    with pytest.raises(WorkspaceDirty, match=r"\.git is gone: git -C \S+ worktree repair may mend that"):
        worktrees.remove(made, force=False)


def test_one_in_whose_place_another_directory_came_is_not_told_to_be_repaired(repo: Path) -> None:
    """git would write a .git into it, and call every file deleted."""
    made = add(repo)
    place = Path(made.directory)
    aside = place.rename(place.with_name("aside"))
    place.mkdir()
    assert refused(made).endswith(f"{place}/.git is gone: put the worktree back")
    place.rmdir()
    other = add(repo, name="other", key="def456")
    Path(other.directory).rename(place)
    aside.rename(other.directory)
    for swapped in (made, other):
        assert refused(swapped).endswith(": move each worktree back to its place")


def test_one_that_something_is_mounted_over_is_told_as_that(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(repo)
    place = Path(made.directory)
    aside = place.rename(place.with_name("aside"))
    place.mkdir()
    monkeypatch.setattr(standing, "mounted", lambda: iter([(7, place)]))
    assert refused(made).endswith(f"what is mounted at {place} is not the worktree")
    place.rmdir()
    aside.rename(place)
    # It may be on a file system of its own.
    assert removed(made)


def replace_by_a_link(made: Workspace) -> Path:
    elsewhere = Path(made.directory).rename(Path(made.repository).parent / "elsewhere")
    Path(made.directory).symlink_to(elsewhere)
    return elsewhere


@pytest.mark.parametrize("is_broken", [False, True])
def test_one_that_a_link_has_taken_the_place_of(repo: Path, is_broken: bool) -> None:
    made = add(repo)
    elsewhere = replace_by_a_link(made)
    (elsewhere / "new").write_text("work")
    link = f"a link to {elsewhere}"
    if is_broken:
        elsewhere.rename(repo.parent / "moved")
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(made, force=False)
    assert str(caught.value) == f"{made.directory} is {link}: put the worktree itself there"
    assert worktrees.would_lose(made, force=True).lost == []
    kept = f"{made.directory} itself, which is {link}, and what git keeps for it"
    assert worktrees.remove(made, force=True) == Removed([], [kept])
    assert Path(made.directory).readlink() == elsewhere
    if is_broken:
        (repo.parent / "moved").rename(elsewhere)
    assert git(elsewhere, "status", "--porcelain") == "?? new"
    assert made.directory in standing.worktrees(str(repo))


def test_a_link_that_takes_its_place_after_the_look(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    just_before_it_is_moved(monkeypatch, lambda: replace_by_a_link(made))
    assert refused(made).endswith(f"it is a link to {repo.parent / 'elsewhere'}")
    assert Path(made.directory).is_symlink()
    assert git(made.directory, "status", "--porcelain") == ""


def test_what_is_locked_is_not_removed_but_by_force(repo: Path) -> None:
    (repo / "copy").write_text("as it was")
    made = add(repo, copy=["copy"])
    git(repo, "worktree", "lock", "--reason", "on a stick", made.directory)
    told = ["a lock by git worktree lock (on a stick)"]
    assert refused(made) == f"fix has {told[0]}"
    assert (Path(made.directory) / "copy").read_text() == "as it was"
    assert worktrees.would_lose(made, force=True).lost == told
    assert worktrees.remove(made, force=True) == Removed(told, [])
    assert not Path(made.directory).exists()


def test_a_lock_that_could_not_be_written_is_nobodys(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git leaves it on a disk that is full."""
    made = add(repo)

    def fill(directory: object, *words: str, **how: Any) -> str:
        if words[:2] == ("worktree", "lock"):
            own = standing.git_directory_of(made.directory, made.repository)
            assert own is not None
            (own / "locked").write_text("")
            raise GitFailed([], 128, "could not write to 'locked': No space left on device")
        return real_git(directory, *words, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(aside, "git", fill)
        assert "No space left on device" in refused(made)
    assert removed(made)


def test_a_lock_without_a_reason_and_one_that_comes_after_the_look(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(repo)

    def lock() -> None:
        git(repo, "worktree", "lock", made.directory)

    lock()
    assert refused(made) == "fix has a lock by git worktree lock"
    git(repo, "worktree", "unlock", made.directory)
    just_before_it_is_moved(monkeypatch, lock)
    assert "is already locked" in refused(made)


def test_the_lock_of_one_that_was_moved(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "lock", "--reason", "on a stick", made.directory)
    moved = Path(made.directory).rename(repo.parent / "moved")
    assert "a lock by git worktree lock (on a stick)" in worktrees.would_lose(made, force=True).lost
    moved.rename(made.directory)


def test_a_branch_that_got_more_commits_meanwhile_stays(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    delete_branch = branches_of.delete

    def late(*arguments: Any) -> list[str]:
        tip = git(repo, "commit-tree", "-m", "late", "-p", "fix", "fix^{tree}")
        git(repo, "update-ref", "refs/heads/fix", tip)
        return delete_branch(*arguments)

    monkeypatch.setattr(branches_of, "delete", late)
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept == "branch fix, which has got more commits meanwhile"
    assert "fix" in branches(repo)


def test_a_branch_of_amux_that_is_in_use_elsewhere_stays(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "add", "-q", "-f", str(repo.parent / "second"), "fix")
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept.startswith("branch fix (")
    assert "fix" in branches(repo)
