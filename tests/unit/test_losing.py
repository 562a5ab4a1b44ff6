"""Work that is easily lost: each way to hide it from git is one that a removal must not fall for."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, git, repository
from harness.waiting import until
from worktree_work import (
    add,
    exclude,
    just_before_it_is_moved,
    objects,
    planned,
    refusal,
    repo,  # noqa: F401
)

from amuxd.errors import WorkspaceDirty
from amuxd.workspaces import standing, worktrees
from amuxd.workspaces.worktrees import Removed


def test_a_file_that_git_ignores_is_no_rubbish(repo: Path) -> None:
    exclude(repo, "*.env", "/build")
    made = add(repo)
    directory = Path(made.directory)
    (directory / "build/deep").mkdir(parents=True)
    (directory / "build/deep/object").write_text("x")
    (directory / "notes").mkdir()
    (directory / "notes/secret.env").write_text("x")
    assert refusal(made) == "1 file that git ignores (notes/secret.env); --ignored takes these along"
    (directory / "new").write_text("x")
    told = "1 untracked file (new) and 1 file that git ignores (notes/secret.env)"
    assert refusal(made) == told
    assert refusal(made, with_ignored=True) == "1 untracked file (new)"
    (directory / "new").unlink()
    lost = ["1 file that git ignores (notes/secret.env)", "1 ignored directory (build)"]
    assert worktrees.would_lose(made, force=False, with_ignored=True).lost == lost
    assert worktrees.remove(made, force=False, with_ignored=True) == Removed(lost, [])


def test_a_directory_that_is_ignored_as_a_whole_is_no_rubbish(repo: Path) -> None:
    exclude(repo, "data/", "/drafts", "node_modules/")
    made = add(repo)
    for name in ("data", "web/data", "drafts", "node_modules"):
        (Path(made.directory) / name / "deep").mkdir(parents=True)
        (Path(made.directory) / name / "deep/file").write_text("x")
    told = "3 directories that git ignores (drafts, 2 named data)"
    assert refusal(made) == f"{told}; --ignored takes these along"
    told_all = [told, "1 ignored directory (node_modules)"]
    assert worktrees.remove(made, force=False, with_ignored=True) == Removed(told_all, [])


def test_a_directory_that_a_tool_makes_again_goes(repo: Path) -> None:
    exclude(repo, "node_modules/", "/obj", "/env", "__pycache__/", "/local/")
    (repo / "local").mkdir()
    (repo / "local/settings").write_text("x")
    made = add(repo, copy=["local"])
    marked = ("obj/CACHEDIR.TAG", "env/pyvenv.cfg")
    for name in ("web/node_modules/one/file", "__pycache__/file", "web/__pycache__/file", *marked):
        (Path(made.directory) / name).parent.mkdir(parents=True)
        (Path(made.directory) / name).write_text("x")
    told = ["5 ignored directories (env, obj, web/node_modules, 2 named __pycache__)"]
    assert worktrees.would_lose(made, force=True).lost == told
    assert worktrees.remove(made, force=False) == Removed(told, [])


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


def test_a_new_file_whose_name_differs_from_another_in_case_alone(repo: Path) -> None:
    git(repo, "config", "core.ignoreCase", "true")
    made = add(repo)
    (Path(made.directory) / "FILE0").write_text("work")
    assert git(made.directory, "status", "--porcelain") == ""
    assert refusal(made) == "1 untracked file (FILE0)"


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
    just_before_it_is_moved(monkeypatch, lambda: work(Path(made.directory)))
    assert refusal(made).startswith(told)


def test_a_copy_that_is_changed_after_the_look(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".env").write_text("KEY=1")
    (repo / "other").write_text("x")
    made = add(repo, copy=["other", ".env"])
    just_before_it_is_moved(monkeypatch, lambda: (Path(made.directory) / ".env").write_text("KEY=2"))
    assert refusal(made) == "1 untracked file (.env)"
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
    assert worktrees.would_lose(made, force=False).lost == []
    assert worktrees.remove(made, force=False) == Removed([], [])


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
    assert made.directory in standing.worktrees(str(repo))


def test_after_a_crash_what_nobody_worked_in_is_undone(repo: Path) -> None:
    made = add(repo)
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert git(repo, "branch", "--list", "fix") == ""


@pytest.mark.parametrize("work", ["file0", "new", "data/results"])
def test_after_a_crash_what_somebody_worked_in_is_kept(repo: Path, work: str) -> None:
    exclude(repo, "/data")
    made = add(repo)
    (Path(made.directory) / work).parent.mkdir(exist_ok=True)
    (Path(made.directory) / work).write_text("mine")
    assert worktrees.recovered(made)
    assert (Path(made.directory) / work).read_text() == "mine"


def test_after_a_crash_commits_that_were_left_are_kept(repo: Path) -> None:
    made = add(repo)
    tip = commit(made.directory, "more")
    git(made.directory, "reset", "-q", "--hard", "HEAD~1")
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert tip in objects(repo)


def test_after_a_crash_what_comes_after_the_look_is_kept(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    work = Path(made.directory) / "late"
    just_before_it_is_moved(monkeypatch, lambda: work.write_text("mine"))
    assert worktrees.recovered(made)
    assert work.read_text() == "mine"


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
