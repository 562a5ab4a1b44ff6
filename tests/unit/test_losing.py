"""Work that is easily lost: each way to hide it from git is one that a removal must not fall for."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, empty_repository, git, repository
from harness.waiting import until

from amuxd.errors import WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import copies, hidden, worktrees
from amuxd.workspaces.worktrees import Removed, Wish

ALLOW = ("-c", "protocol.file.allow=always")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    return repository(tmp_path / "code", files=2)


def planned(where: Path, **wish: Any) -> Workspace:
    return worktrees.planned(
        Workspace("abc123", "fix", "", 1), Wish(str(where), **wish), where.parent / "trees"
    )


def add(where: Path, **wish: Any) -> Workspace:
    return worktrees.make(planned(where, **wish), Wish(str(where), **wish))


def refusal(workspace: Workspace, **how: Any) -> str:
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(workspace, **{"force": False, **how})
    assert Path(workspace.directory).exists()
    return str(caught.value).removeprefix("fix has ")


def exclude(repo: Path, *patterns: str) -> None:
    (repo / ".git/info/exclude").write_text("".join(f"{pattern}\n" for pattern in patterns))


def objects(where: Path) -> set[str]:
    """What git would not throw away, now or at its next clearing up."""
    return set(git(where, "rev-list", "--all", "--reflog").split())


def test_a_file_that_git_ignores_is_no_rubbish(repo: Path) -> None:
    exclude(repo, "*.env", "/built")
    made = add(repo)
    directory = Path(made.directory)
    (directory / "built/deep").mkdir(parents=True)
    (directory / "built/deep/object").write_text("x")
    (directory / "notes").mkdir()
    (directory / "notes/secret.env").write_text("x")
    assert refusal(made) == "1 file that git ignores (notes/secret.env); --ignored takes these along"
    (directory / "new").write_text("x")
    told = "1 untracked file (new) and 1 file that git ignores (notes/secret.env)"
    assert refusal(made) == told
    assert refusal(made, with_ignored=True) == "1 untracked file (new)"
    (directory / "new").unlink()
    told = "1 file that git ignores (notes/secret.env)"
    assert worktrees.would_lose(made, force=False, with_ignored=True) == [told]
    assert worktrees.remove(made, force=False, with_ignored=True) == Removed([told], [])


def test_a_directory_that_is_ignored_as_a_whole_goes(repo: Path) -> None:
    exclude(repo, "node_modules")
    made = add(repo)
    (Path(made.directory) / "node_modules/one").mkdir(parents=True)
    (Path(made.directory) / "node_modules/one/index.js").write_text("x")
    assert worktrees.remove(made, force=False) == Removed([], [])


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_not_to_look_at(repo: Path, flag: str) -> None:
    made = add(repo)
    directory = Path(made.directory)
    git(directory, "update-index", flag, "file0", "file1")
    # Touched and not changed is no work.
    (directory / "file0").write_text((directory / "file0").read_text())
    assert worktrees.look(made).files.uncommitted == []
    (directory / "file1").write_text("changed")
    assert refusal(made) == "1 file with uncommitted changes (file1)"
    # It was only asked, and nothing about it was changed.
    assert git(directory, "status", "--porcelain") == ""
    git(directory, "update-index", flag.replace("--", "--no-"), "file1")
    git(directory, "checkout", "file1")
    assert worktrees.remove(made, force=False) == Removed([], [])


def early_in_a_second() -> None:
    until(lambda: time.time() % 1 < 0.2)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_hidden_change_in_the_second_in_which_git_wrote_its_index(repo: Path, flag: str) -> None:
    """To git the times of files are whole seconds, and the size is the same."""
    made = add(repo)
    file = Path(made.directory) / "file0"
    before = file.read_text()
    seconds: set[int] = set()
    while len(seconds) != 1:
        early_in_a_second()
        git(made.directory, "update-index", flag.replace("--", "--no-"), "file0")
        file.write_text(before)
        began = file.stat()
        git(made.directory, "add", "file0")
        git(made.directory, "update-index", flag, "file0")
        file.write_text(before.replace("0", "1"))
        ended = file.stat()
        seconds = {int(moment) for s in (began, ended) for moment in (s.st_mtime, s.st_ctime)}
    until(lambda: int(time.time()) > max(seconds))
    assert refusal(made) == "1 file with uncommitted changes (file0)"


def test_a_change_that_git_was_told_to_take_no_notice_of(repo: Path) -> None:
    """Of the same size, and with the time that the file had before."""
    git(repo, "config", "core.trustctime", "false")
    git(repo, "config", "core.checkStat", "minimal")
    made = add(repo)
    file = Path(made.directory) / "file0"
    os.utime(file, (1_000_000_000, 1_000_000_000))
    git(made.directory, "update-index", "--refresh")
    noted = int(file.stat().st_ctime)
    file.write_text(file.read_text().replace("0", "1"))

    def changed_later() -> bool:
        os.utime(file, (1_000_000_000, 1_000_000_000))
        return int(file.stat().st_ctime) > noted

    until(changed_later)
    assert git(made.directory, "status", "--porcelain") == ""
    assert refusal(made) == "1 file with uncommitted changes (file0)"


def test_what_a_filter_changes_back_is_no_work(repo: Path) -> None:
    """Also where git looks at what it was told not to look at."""
    (repo / "bin").mkdir()
    (repo / "bin/my-filter").write_text("#!/bin/sh\nsed s/shown/stored/\n")
    (repo / "bin/my-filter").chmod(0o755)
    (repo / ".gitattributes").write_text("*.txt filter=mine\n")
    (repo / "some.txt").write_text("stored\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "filtered")
    git(repo, "config", "filter.mine.clean", "my-filter")
    made = add(repo)
    git(made.directory, "update-index", "--assume-unchanged", "some.txt")
    (Path(made.directory) / "some.txt").write_text("shown\n")
    assert refusal(made).startswith("1 file with uncommitted changes (some.txt)")
    assert worktrees.remove(replace(made, search_path=str(repo / "bin")), force=False) == Removed([], [])


def test_a_sparse_checkout(repo: Path) -> None:
    (repo / "deep").mkdir()
    (repo / "deep/file").write_text("x")
    git(repo, "add", "deep")
    git(repo, "commit", "-q", "-m", "deep")
    made = add(repo)
    directory = Path(made.directory)
    git(directory, "sparse-checkout", "set", "--no-cone", "/file0")
    assert not (directory / "deep").exists()
    assert worktrees.look(made).files.uncommitted == []
    (directory / "deep").mkdir()
    (directory / "deep/file").write_text("mine")
    assert "deep/file" in refusal(made)
    (directory / "deep/file").unlink()
    assert worktrees.remove(made, force=False).lost == []


def test_only_the_index_has_it(repo: Path) -> None:
    made = add(repo)
    directory = Path(made.directory)
    before = (directory / "file0").read_text()
    (directory / "file0").write_text("staged")
    git(directory, "add", "file0")
    (directory / "file0").write_text(before)
    assert refusal(made) == "1 file with uncommitted changes (file0)"
    directory.rename(directory.with_name("moved"))
    with pytest.raises(WorkspaceDirty, match="1 file with uncommitted changes"):
        worktrees.remove(made, force=False)
    worktrees.remove(made, force=True)
    assert (directory.with_name("moved") / "file1").exists()


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


@pytest.fixture
def with_submodule(repo: Path) -> Path:
    library = repository(repo.parent / "library")
    git(repo, *ALLOW, "submodule", "add", "-q", str(library), "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    return repo


def update(made: Workspace) -> Path:
    git(made.directory, *ALLOW, "submodule", "update", "-q", "--init")
    return Path(made.directory) / "lib"


def test_a_submodule_that_was_never_fetched_is_no_hindrance(with_submodule: Path) -> None:
    assert worktrees.remove(add(with_submodule), force=False) == Removed([], [])


def test_files_in_a_submodule(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    where = Path(git(inner, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    where.parent.mkdir(exist_ok=True)
    where.write_text("*.env\n")
    (inner / "a.env").write_text("x")
    assert refusal(made) == "1 file that git ignores (lib/a.env); --ignored takes these along"
    (inner / "a.env").unlink()
    git(inner, "update-index", "--assume-unchanged", "file0")
    (inner / "file0").write_text("changed")
    assert refusal(made) == "1 file with uncommitted changes (lib/file0)"
    git(inner, "update-index", "--no-assume-unchanged", "file0")
    assert refusal(made) == "1 file with uncommitted changes (lib)"


def test_a_commit_that_a_submodule_left_behind(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    tip = commit(inner, "more")
    git(made.directory, *ALLOW, "submodule", "update", "-q")
    assert worktrees.remove(made, force=False).kept == ["refs/amux/removed/abc123/submodules/lib"]
    assert tip in git(with_submodule, "rev-list", "--all").split()


@pytest.mark.parametrize("force", [False, True])
def test_a_commit_of_a_submodule_that_only_a_tag_leads_to(with_submodule: Path, force: bool) -> None:
    made = add(with_submodule)
    inner = update(made)
    tip = commit(inner, "more")
    git(inner, "tag", "-a", "-m", "kept", "mine")
    git(made.directory, *ALLOW, "submodule", "update", "-q")
    if force:
        assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib"]
        assert tip in git(with_submodule, "rev-list", "--all").split()
    else:
        assert refusal(made) == "1 commit in submodule lib on no remote"


def test_a_release_that_is_on_no_branch_of_a_submodules_remote(with_submodule: Path) -> None:
    released_on_no_branch(with_submodule.parent / "library")
    made = add(with_submodule)
    update(made)
    assert worktrees.remove(made, force=False) == Removed([], [])


EXPIRE = ("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")


def test_reflogs_that_have_expired_are_no_hindrance(with_submodule: Path) -> None:
    exclude(with_submodule, "/cache")
    made = add(with_submodule)
    inner, clone = update(made), Path(made.directory) / "cache/clone"
    git(with_submodule, "clone", "-q", str(with_submodule), str(clone))
    git(inner, *EXPIRE)
    git(clone, *EXPIRE)
    assert worktrees.remove(made, force=False) == Removed([], [])


def released_on_no_branch(upstream: Path) -> None:
    git(upstream, "checkout", "-q", "--detach")
    commit(upstream, "release")
    git(upstream, "tag", "-a", "-m", "a release", "v1")
    git(upstream, "checkout", "-q", "main")


def test_a_submodule_that_keeps_its_commits_in_itself(repo: Path) -> None:
    made = add(repo)
    repository(Path(made.directory) / "own")
    git(made.directory, *ALLOW, "submodule", "add", "-q", "./own", "own")
    git(made.directory, "commit", "-q", "-m", "with one of its own")
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert refusal(made).endswith(f"mount in it, {made.directory}/own")
    assert "take that away first" in refusal(made, force=True)


def test_work_that_comes_into_a_submodule_after_the_look(
    with_submodule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(with_submodule)
    inner = update(made)
    keep = worktrees._keep

    def late(*arguments: Any) -> list[str]:
        kept = keep(*arguments)
        (inner / "late").write_text("x")
        return kept

    monkeypatch.setattr(worktrees, "_keep", late)
    assert refusal(made) == "1 file with uncommitted changes (lib)"
    assert (inner / "late").exists()


def hide_a_change(directory: Path) -> None:
    git(directory, "update-index", "--assume-unchanged", "file0")
    (directory / "file0").write_text("late")


def ignore_a_file(directory: Path) -> None:
    (directory / "late.env").write_text("late")


def commit_on_no_branch(directory: Path) -> None:
    git(directory, "checkout", "-q", "--detach")
    commit(directory, "late")


def clone_and_work(directory: Path) -> None:
    repository(directory / "cache/late")


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (hide_a_change, "1 file with uncommitted changes (file0)"),
        (ignore_a_file, "1 file that git ignores (late.env); --ignored takes these along"),
        (commit_on_no_branch, "1 commit on no other branch and no remote"),
        (clone_and_work, "another repository, worktree or mount in it, "),
    ],
)
def test_work_after_the_look(
    repo: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], None], told: str
) -> None:
    exclude(repo, "*.env", "/cache")
    made = add(repo)
    keep = worktrees._keep

    def late(*arguments: Any) -> list[str]:
        kept = keep(*arguments)
        work(Path(made.directory))
        return kept

    monkeypatch.setattr(worktrees, "_keep", late)
    assert refusal(made).startswith(told)


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
    assert worktrees.remove(made, force=False) == Removed([], [])


@pytest.mark.parametrize("how", [[], ["--depth=1", "--branch=v1"]], ids=["whole", "shallow"])
def test_a_clone_of_a_release_goes_with_the_directory_that_is_ignored(repo: Path, how: list[str]) -> None:
    released_on_no_branch(repo)
    exclude(repo, "/cache")
    made = add(repo)
    clone = Path(made.directory) / "cache/clone"
    git(repo, "clone", "-q", *how, f"file://{repo}", str(clone))
    git(clone, "checkout", "-q", "v1")
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_what_is_mounted_in_it(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exclude(repo, "/data")
    made = add(repo)
    mounts = repo.parent / "mountinfo"
    inside = f"{made.directory}/data/with blank".replace(" ", "\\040")
    mounts.write_text(f"36 35 0:30 / {inside} rw - tmpfs tmpfs rw\n37 35 0:31 / /mnt rw - tmpfs x rw\n")
    monkeypatch.setattr(hidden, "_MOUNTS", mounts)
    assert refusal(made).endswith(f"mount in it, {made.directory}/data/with blank")


def test_a_copy_that_is_changed_after_the_look(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".env").write_text("KEY=1")
    (repo / "other").write_text("x")
    made = add(repo, copy=["other", ".env"])
    aside = copies.aside

    def late(*arguments: Any) -> AbstractContextManager[None]:
        (Path(made.directory) / ".env").write_text("KEY=2")
        return aside(*arguments)

    monkeypatch.setattr(copies, "aside", late)
    assert ".env has just been changed" in refusal(made)
    assert (Path(made.directory) / ".env").read_text() == "KEY=2"
    assert (Path(made.directory) / "other").read_text() == "x"
    assert list(Path(made.directory).parent.iterdir()) == [Path(made.directory)]


@pytest.mark.parametrize("changed", [False, True])
def test_a_copy_that_was_committed_is_no_hindrance(repo: Path, changed: bool) -> None:
    (repo / ".env").write_text("KEY=1")
    exclude(repo, ".env")
    made = add(repo, copy=[".env"])
    if changed:
        (Path(made.directory) / ".env").write_text("KEY=2")
    git(made.directory, "add", "--force", ".env")
    git(made.directory, "commit", "-q", "-m", "with a copy")
    assert refusal(made) == "1 commit on no other branch and no remote"
    (repo / ".env").unlink()
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert worktrees.would_lose(made, force=False) == []
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_copies_come_back_to_where_their_directory_was(tmp_path: Path) -> None:
    directory = tmp_path / "tree"
    (directory / "local").mkdir(parents=True)
    (directory / "local/settings").write_text("x")
    copied = {"local/settings": copies._digest(directory / "local/settings")}

    def half_removed() -> None:
        with copies.aside(directory, copied):
            (directory / "local").rmdir()
            raise OSError("half removed")

    with pytest.raises(OSError, match="half removed"):
        half_removed()
    assert (directory / "local/settings").read_text() == "x"


def test_a_copy_is_not_written_through_a_link(repo: Path) -> None:
    (repo / ".env").symlink_to("../shared")
    git(repo, "add", ".env")
    git(repo, "commit", "-q", "-m", "a link")
    (repo / ".env").unlink()
    (repo / ".env").write_text("KEY=1")
    made = add(repo, copy=[".env"])
    assert made.copied == {}
    assert not (Path(made.directory).parent / "shared").exists()


def test_one_that_is_out_of_reach_is_not_taken_for_gone(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path) == made.directory:
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(WorkspaceDirty, match="is out of reach"):
        worktrees.remove(made, force=False)
    monkeypatch.undo()
    assert made.directory in worktrees.worktrees(str(repo))


def test_after_a_crash_what_nobody_worked_in_is_undone(repo: Path) -> None:
    made = add(repo)
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert git(repo, "branch", "--list", "fix") == ""


@pytest.mark.parametrize("work", ["file0", "new"])
def test_after_a_crash_what_somebody_worked_in_is_kept(repo: Path, work: str) -> None:
    made = add(repo)
    (Path(made.directory) / work).write_text("mine")
    assert worktrees.recovered(made)
    assert (Path(made.directory) / work).read_text() == "mine"


@pytest.mark.parametrize("work", ["", "mine"])
def test_git_itself_was_killed_while_it_made_one(repo: Path, tmp_path: Path, work: str) -> None:
    """One file is checked out, and the next one takes for ever."""
    (repo / ".gitattributes").write_text("file1 filter=slow\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "slow")
    git(repo, "config", "filter.slow.smudge", f"touch {tmp_path}/reached; sleep 1000")
    plan = planned(repo)
    worktrees._make_branch(plan)
    adding = subprocess.Popen(
        ["git", "-C", str(repo), "worktree", "add", "-q", plan.directory, "fix"],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    until((tmp_path / "reached").exists)
    os.killpg(adding.pid, signal.SIGKILL)
    adding.wait()
    git(repo, "config", "--unset", "filter.slow.smudge")
    assert (Path(plan.directory) / "file0").exists()
    if work:
        (Path(plan.directory) / "file0").write_text(work)
    assert worktrees.recovered(plan) is bool(work)
    assert Path(plan.directory).exists() is bool(work)
