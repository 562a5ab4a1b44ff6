"""Repositories and clones that lie in a worktree, and what is mounted there: git itself says little of it."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import commit, empty_repository, git, repository
from worktree_work import (
    ALLOW,
    CACHE,
    add,
    exclude,
    refusal,
    released_on_no_branch,
    repo,  # noqa: F401
    show_no_untracked,
    update,
    with_submodule,
)

from amuxd import mounts
from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import worktrees
from amuxd.workspaces.worktrees import Removed


def test_a_repository_in_a_directory_that_git_tracks(repo: Path) -> None:
    (repo / "deep/er").mkdir(parents=True)
    commit(repo, "deep/er/file")
    made = add(repo)
    inner = Path(made.directory) / "deep/er"
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "own")
    assert git(made.directory, "status", "--porcelain") == ""
    assert refusal(made).endswith(f"mount in it, {inner}")
    assert "take that away first" in refusal(made, force=True)


def test_a_bare_repository_whose_files_are_tracked_is_no_repository(repo: Path) -> None:
    """As those that test programs which read repositories."""
    git(repo, "clone", "-q", "--bare", str(repo), str(repo / "fixture.git"))
    git(repo, "add", "--force", "fixture.git")
    git(repo, "commit", "-q", "-m", "with a fixture")
    made = add(repo)
    (Path(made.directory) / "fixture.git/refs/tags").mkdir(parents=True, exist_ok=True)
    assert (Path(made.directory) / "fixture.git/objects").is_dir()
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_a_directory_that_cannot_be_looked_into(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    closed = PermissionError(13, "Permission denied", "/closed")

    def walk(_top: Path, onerror: object) -> list[object]:
        assert callable(onerror)
        onerror(FileNotFoundError(2, "No such file or directory", "/built"))
        onerror(closed)
        return []

    monkeypatch.setattr(os, "walk", walk)
    with pytest.raises(WorkspaceDirty, match="/closed cannot be looked into: Permission denied"):
        worktrees.remove(made, force=False)
    with pytest.raises(GitFailed):
        worktrees.look(made)


def published(repo: Path) -> None:
    """So that the repository itself has nothing that would keep anybody from removing it."""
    git(repo.parent, "clone", "-q", "--bare", str(repo), "remote.git")
    git(repo, "remote", "add", "origin", str(repo.parent / "remote.git"))
    git(repo, "fetch", "-q", "origin")


def clone_of(repo: Path) -> tuple[Workspace, Path]:
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    return made, clone


def test_work_that_any_ref_of_an_ignored_clone_leads_to(repo: Path) -> None:
    made, clone = clone_of(repo)
    tip = git(clone, "commit-tree", "-m", "wip", "-p", "HEAD", "HEAD^{tree}")
    git(clone, "update-ref", "refs/wip/main", tip)
    assert "cache/clone" in refusal(made)


def test_untracked_files_of_an_ignored_clone_that_the_user_does_not_want_to_see(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, clone = clone_of(repo)
    (clone / "new").write_text("work")
    show_no_untracked(tmp_path, monkeypatch)
    assert "cache/clone" in refusal(made)


def test_an_operation_in_an_ignored_clone(repo: Path) -> None:
    made, clone = clone_of(repo)
    git(clone, "bisect", "start")
    assert "cache/clone" in refusal(made)


def test_an_ignored_clone_that_has_worktrees_or_submodules_elsewhere(repo: Path) -> None:
    made, clone = clone_of(repo)
    git(clone, "worktree", "add", "-q", "--detach", str(repo.parent / "elsewhere"))
    assert "cache/clone" in refusal(made)
    git(clone, "worktree", "remove", str(repo.parent / "elsewhere"))
    empty_repository(clone / ".git/modules/lib")
    assert "cache/clone" in refusal(made)


@pytest.mark.parametrize("place", ["vendor/deep/one", "vendor"])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_repository_with_work_is_not_deleted_even_by_force(repo: Path, place: str, ignored: bool) -> None:
    if ignored:
        exclude(repo, "/vendor")
    made = add(repo)
    repository(Path(made.directory) / place)
    assert f"mount in it, {made.directory}/{place}" in refusal(made)
    assert "take that away first" in refusal(made, force=True)


def test_a_bare_repository_and_one_that_cannot_be_told(repo: Path) -> None:
    exclude(repo, "/cache")
    made = add(repo)
    cache = Path(made.directory) / "cache"
    git(repo, "clone", "-q", "--bare", str(repo), str(cache / "bare.git"))
    # A bare clone has no remote branches, so nobody knows whether its commits are elsewhere.
    assert "cache/bare.git" in refusal(made)
    (cache / "bare.git/HEAD").write_text("rubbish")
    assert "cache/bare.git" in refusal(made)


def emptied(inner: Path) -> None:
    (inner / ".git/HEAD").write_text("")


def without_objects(inner: Path) -> None:
    shutil.rmtree(inner / ".git/objects")


@pytest.mark.parametrize("damage", [emptied, without_objects])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_damaged_repository_is_not_taken_for_what_it_lies_in(
    repo: Path, damage: Callable[[Path], None], ignored: bool
) -> None:
    exclude(repo, *(["/build"] if ignored else []))
    published(repo)
    made = add(repo)
    inner = Path(made.directory) / "build/tool"
    empty_repository(inner)
    commit(inner, "work")
    if not ignored:
        git(inner, "rm", "-q", "--cached", "work")
        (inner / "work").unlink()
    damage(inner)
    assert git(made.directory, "status", "--porcelain") == ""
    assert f"mount in it, {inner}" in refusal(made)
    assert "take that away first" in refusal(made, force=True)


def test_a_new_file_in_an_ignored_clone_whose_name_differs_in_case_alone(repo: Path) -> None:
    made, clone = clone_of(repo)
    git(clone, "config", "core.ignoreCase", "true")
    (clone / "FILE0").write_text("work")
    assert git(clone, "status", "--porcelain") == ""
    assert "cache/clone" in refusal(made)


@pytest.mark.parametrize("settings", [("core.worktree", "/elsewhere"), ("core.bare", "true")])
def test_files_of_an_ignored_clone_that_has_its_files_elsewhere(
    repo: Path, tmp_path: Path, settings: tuple[str, str]
) -> None:
    made, clone = clone_of(repo)
    (clone / "new").write_text("work")
    key, value = settings
    shutil.copytree(repo, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".git"))
    git(clone, "config", key, value.replace("/elsewhere", str(tmp_path / "elsewhere")))
    assert "cache/clone" in refusal(made)


def test_a_clone_without_work_goes_with_the_directory_that_is_ignored(repo: Path) -> None:
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    assert worktrees.look(made).nested == []
    (clone / "new").write_text("x")
    assert "cache/clone" in refusal(made)
    git(clone, "add", "new")
    git(clone, "commit", "-q", "-m", "new")
    assert "cache/clone" in refusal(made)
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    empty_repository(clone / "below")
    assert "cache/clone" in refusal(made)


def test_work_in_an_ignored_clone_that_only_its_own_tag_leads_to(repo: Path) -> None:
    released_on_no_branch(repo)
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    commit(clone, "new")
    git(clone, "tag", "mine")
    assert "cache/clone" in refusal(made)
    git(clone, "checkout", "-q", "--detach", "HEAD~1")
    git(clone, "branch", "-q", "-D", "main")
    assert "cache/clone" in refusal(made)
    git(clone, "pack-refs", "--all")
    assert "cache/clone" in refusal(made)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_hidden_change_in_an_ignored_clone(repo: Path, flag: str) -> None:
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    git(clone, "update-index", flag, "file0")
    (clone / "file0").write_text("work")
    assert "cache/clone" in refusal(made)


def test_commits_that_only_the_reflog_of_an_ignored_clone_has(repo: Path) -> None:
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    commit(clone, "new")
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    assert "cache/clone" in refusal(made)


def test_a_clone_whose_remote_has_abandoned_commits_has_no_work_in_it(repo: Path) -> None:
    exclude(repo, "/cache")
    commit(repo, "new")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    commit(repo, "another")
    git(repo, "merge", "-q", "-m", "merged", made.branch)
    git(clone, "fetch", "-q")
    git(clone, "reset", "-q", "--hard", "origin/main")
    assert worktrees.remove(made, force=False) == Removed(CACHE, [])


@pytest.mark.parametrize("how", [[], ["--depth=1", "--branch=v1"]], ids=["whole", "shallow"])
def test_a_clone_of_a_release_goes_with_the_directory_that_is_ignored(repo: Path, how: list[str]) -> None:
    released_on_no_branch(repo)
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", *how, f"file://{repo}", str(clone))
    git(clone, "checkout", "-q", "v1")
    assert worktrees.remove(made, force=False) == Removed(CACHE, [])


def test_what_is_mounted_in_it(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exclude(repo, "/data")
    made = add(repo)
    mountinfo = repo.parent / "mountinfo"
    inside = f"{made.directory}/data/with blank".replace(" ", "\\040")
    mountinfo.write_text(f"36 35 0:30 / {inside} rw - tmpfs tmpfs rw\n37 35 0:31 / /mnt rw - tmpfs x rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", mountinfo)
    assert refusal(made).endswith(f"mount in it, {made.directory}/data/with blank")


def test_a_commit_in_an_ignored_clone_that_git_has_packed_since(repo: Path) -> None:
    made, clone = clone_of(repo)
    git(clone, "checkout", "-q", "-b", "fixbug")
    commit(clone, "more")
    git(clone, "checkout", "-q", "main")
    git(clone, "gc", "-q")
    assert "cache/clone" in refusal(made)


def test_clones_that_have_their_commits_of_each_other(repo: Path) -> None:
    made, clone = clone_of(repo)
    commit(clone, "more")
    other = clone.with_name("other")
    git(repo, "clone", "-q", str(clone), str(other))
    git(clone, "remote", "add", "other", "../other")
    git(clone, "fetch", "-q", "other")
    told = refusal(made)
    assert "cache/clone" in told
    assert "cache/other" in told


def test_a_commit_in_whose_place_another_is_shown(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "more")
    commit(repo, "else")
    git(repo, "replace", "--graft", "main", tip)
    assert refusal(made) == "1 commit on no other branch and no remote"


def test_clones_that_have_their_commits_of_each_other_in_two_submodules(repo: Path) -> None:
    library = with_submodule(repo, "one")
    git(repo, *ALLOW, "submodule", "add", "-q", str(library), "two")
    git(repo, "commit", "-q", "-m", "with two submodules")
    made = add(repo)
    clones = [update(made, name) / "cache/clone" for name in ("one", "two")]
    for clone in clones:
        exclude_in(clone.parent.parent)
        git(repo, "clone", "-q", str(repo), str(clone))
    commit(clones[0], "more")
    for clone, other in zip(clones, clones[::-1], strict=True):
        git(clone, "remote", "add", "other", str(other))
    git(clones[1], "fetch", "-q", "other")
    git(clones[1], "reset", "-q", "--hard", "other/main")
    git(clones[0], "fetch", "-q", "other")
    told = refusal(made, with_ignored=True)
    assert "one/cache/clone" in told
    assert "two/cache/clone" in told


def exclude_in(submodule: Path) -> None:
    place = Path(git(submodule, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    place.parent.mkdir(exist_ok=True)
    place.write_text("/cache\n")


def test_a_clone_of_the_worktree_itself_has_no_work_in_it(repo: Path) -> None:
    exclude(repo, "/cache")
    made = add(repo)
    for number, url in enumerate((made.directory, f"{made.directory}/.git", "../..")):
        clone = Path(made.directory) / f"cache/clone{number}"
        git(repo, "clone", "-q", made.directory, str(clone))
        git(clone, "remote", "set-url", "origin", url)
    assert worktrees.remove(made, force=False) == Removed(CACHE, [])


def test_a_copy_of_a_clone_of_a_release_has_no_work_in_it(repo: Path) -> None:
    """All of it is as new as that."""
    released_on_no_branch(repo)
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", f"file://{repo}", str(clone))
    later = time.time_ns() + 10**10
    for file in (clone / ".git/packed-refs", clone / ".git/logs/refs/remotes/origin/HEAD"):
        os.utime(file, ns=(later, later))
    assert worktrees.remove(made, force=False) == Removed(CACHE, [])


def test_a_damaged_list_of_packed_refs_says_nothing(repo: Path) -> None:
    made, clone = clone_of(repo)
    (clone / ".git/packed-refs").write_text("rubbish\n")
    assert "cache/clone" in refusal(made)
