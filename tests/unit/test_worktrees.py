"""Worktrees made and removed by the real git, in every kind of repository."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, empty_repository, git, is_reachable, repository

from amuxd import git as git_module
from amuxd.errors import InvalidArgument, WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import standing, worktrees
from amuxd.workspaces.worktrees import Wish


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    # None of this may reach the git that amux calls.
    monkeypatch.setenv("GIT_DIR", "/nonexistent/git")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def add(where: Path, name: str = "fix", key: str = "abc123", **wish: object) -> Workspace:
    asked = Wish(str(where), **wish)  # type: ignore[arg-type]
    parent = where.parent / "worktrees"
    planned = worktrees.planned(Workspace(key, name, "", 1), asked, parent)
    assert planned.being_made
    return worktrees.make(planned, asked)


def refusal(workspace: Workspace) -> str:
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(workspace, force=False)
    assert Path(workspace.directory).exists()
    return str(caught.value)


def removed(workspace: Workspace) -> bool:
    assert worktrees.remove(workspace, force=False) == worktrees.Removed([], [])
    return not Path(workspace.directory).exists()


def branches(where: Path) -> set[str]:
    return set(git(where, "branch", "--format=%(refname:short)").split())


def modes(*paths: Path | str) -> list[int]:
    return [stat.S_IMODE(Path(path).stat().st_mode) for path in paths]


@pytest.fixture
def _private() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_private")
@pytest.mark.parametrize(
    ("umask", "file", "directory"), [(0o022, 0o644, 0o755), (0o007, 0o660, 0o770), (-1, 0o600, 0o700)]
)
def test_it_is_as_open_as_the_caller_makes_things(repo: Path, umask: int, file: int, directory: int) -> None:
    (repo / "deep").mkdir()
    commit(repo, "deep/file")
    git(repo, "remote", "add", "origin", str(repo))
    git(repo, "fetch", "-q")
    made = Path(add(repo, base="origin/main", umask=umask).directory)
    branch = repo / ".git/refs/heads/fix"
    assert modes(made / "file0", made / "deep/file", made / ".git", branch) == [file] * 4
    assert modes(made.parent.parent, made.parent, made, made / "deep") == [directory] * 4
    assert modes(repo / ".git/worktrees/fix", repo / ".git/worktrees/fix/HEAD") == [directory, file]


@pytest.mark.usefixtures("_private")
def test_copies_are_as_open_as_what_they_are_copies_of(repo: Path) -> None:
    for name, mode, inside in (("open", 0o755, 0o644), ("closed", 0o700, 0o400)):
        (repo / name).mkdir()
        (repo / name / "file").write_text("x")
        (repo / name / "file").chmod(inside)
        (repo / name).chmod(mode)
    made = Path(add(repo, copy=["open", "closed"], umask=0o022).directory)
    assert modes(made / "open", made / "closed") == [0o755, 0o700]
    assert modes(made / "open/file", made / "closed/file") == [0o644, 0o400]


@pytest.mark.usefixtures("_private")
def test_what_a_parent_hands_down_stays(repo: Path) -> None:
    parent = repo.parent / "worktrees"
    parent.mkdir()
    parent.chmod(0o2775)
    made = Path(add(repo, umask=0o002).directory)
    assert modes(made.parent, made) == [0o2775, 0o2775]


def test_a_new_branch_comes_and_goes_with_it(repo: Path) -> None:
    made = add(repo)
    assert made.directory == str(repo.parent / "worktrees/code/fix")
    assert (made.branch, made.made_branch, made.base) == ("fix", True, "refs/heads/main")
    assert git(made.directory, "branch", "--show-current") == "fix"
    assert removed(made)
    assert branches(repo) == {"main"}


def test_a_branch_that_was_there_stays(repo: Path) -> None:
    git(repo, "branch", "old")
    with pytest.raises(InvalidArgument, match="there is a branch old already: --branch old takes it"):
        add(repo, "old")
    with pytest.raises(InvalidArgument, match="it has its own base"):
        add(repo, branch="old", base="main")
    made = add(repo, branch="old")
    assert not made.made_branch
    tip = commit(made.directory, "more")
    # Without a remote a branch that stays is where its commits are.
    assert removed(made)
    assert git(repo, "rev-parse", "old") == tip


def test_a_branch_that_is_checked_out_elsewhere_is_named(repo: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"'main' is already .* at '{repo}'"):
        add(repo, branch="main")
    assert git(repo, "worktree", "list").count("\n") == 0
    assert branches(repo) == {"main"}


def test_a_bare_repository(repo: Path) -> None:
    bare = repo.parent / "bare.git"
    git(repo.parent, "clone", "-q", "--bare", str(repo), str(bare))
    made = add(bare, copy=["file0"])
    assert made.repository == str(bare)
    assert made.directory == str(repo.parent / "worktrees/bare/fix")
    assert removed(made)


def test_inside_another_worktree(repo: Path) -> None:
    outer = add(repo, "outer", "outer1")
    inner = add(Path(outer.directory), "inner", "inner1")
    assert inner.repository == str(repo)
    assert inner.base == "refs/heads/outer"
    nested = worktrees.planned(Workspace("c", "c", "", 1), Wish(str(repo)), Path(outer.directory) / "below")
    below = worktrees.make(nested, Wish(str(repo)))
    assert "untracked" in refusal(outer)
    (repo / ".git/info/exclude").write_text("/below\n")
    assert "another repository, worktree or mount in it" in refusal(outer)
    with pytest.raises(WorkspaceDirty, match="take that away first"):
        worktrees.remove(outer, force=True)
    assert removed(below)
    assert removed(outer)


def test_an_ignored_repository_in_it_is_no_rubbish(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".gitignore").write_text("/vendor/\n/.gitignore\n")
    repository(Path(made.directory) / "vendor")
    assert "another repository, worktree or mount in it" in refusal(made)


def test_an_empty_repository_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="has no commit yet"):
        add(empty_repository(tmp_path / "empty"))


def test_no_repository_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not a git repository"):
        add(tmp_path)


@pytest.mark.parametrize(
    "name", ["über ✨", "a b/c", "..", "-x", "x" * 255, "👩‍💻" * 40, "@{u}", "a.lock", ".-d", "~^:?*[\\"]
)
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    where = repository(tmp_path / "sp ace 🌳")
    made = add(where, name)
    assert Path(made.directory).parent == tmp_path / "worktrees/sp ace 🌳"
    (Path(made.directory) / "f ✨").write_text("x")
    assert "(f ✨)" in refusal(made)
    (Path(made.directory) / "f ✨").unlink()
    assert removed(made)


def test_a_name_whose_place_is_taken_gets_another_one(repo: Path) -> None:
    (repo.parent / "worktrees/code/fix").mkdir(parents=True)
    made = add(repo)
    assert made.directory.endswith("/fix-abc123")


def test_a_symlinked_path(repo: Path) -> None:
    link = repo.parent / "link"
    link.symlink_to(repo)
    made = add(link)
    assert removed(made)


def test_a_parent_that_cannot_be_written(repo: Path) -> None:
    wish = Wish(str(repo))
    planned = worktrees.planned(Workspace("abc123", "fix", "", 1), wish, Path("/sys/amux"))
    with pytest.raises(InvalidArgument, match="/sys/amux/code cannot be made"):
        worktrees.make(planned, wish)
    assert branches(repo) == {"main"}


def test_a_branch_of_the_remote_is_followed(repo: Path) -> None:
    git(repo, "branch", "theirs")
    clone = repo.parent / "clone"
    git(repo.parent, "clone", "-q", str(repo), str(clone))
    made = add(clone, branch="theirs")
    assert git(made.directory, "rev-parse", "--abbrev-ref", "@{u}") == "origin/theirs"
    commit(made.directory, "more")
    found = standing.files_of(made.directory)
    assert (found.upstream, found.ahead, found.behind) == ("origin/theirs", 1, 0)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"branch": ".."}, "not a valid branch name"),
        ({"branch": "-d"}, "not a valid branch name"),
        ({"base": "nowhere"}, "there is no commit 'nowhere'"),
        ({"base": "--all"}, "there is no commit '--all'"),
    ],
)
def test_what_git_cannot_do_is_refused(repo: Path, wish: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        add(repo, **wish)
    assert branches(repo) == {"main"}


def test_a_base_is_remembered_by_what_it_is(repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    commit(repo, "second")
    assert add(repo, "a", "aaa111", base="HEAD~1").base == first
    made = add(repo, "b", "bbb111", base="main")
    commit(made.directory, "third")
    commit(repo, "fourth")
    assert standing.ahead_behind(made.directory, made.base) == (1, 1)
    assert standing.ahead_behind(made.directory, "gone") == (0, 0)


def test_everything_that_would_be_lost_is_named(repo: Path) -> None:
    made = add(repo)
    directory = Path(made.directory)
    (directory / "file0").write_text("changed")
    assert refusal(made) == "fix has 1 file with uncommitted changes (file0)"
    git(directory, "stash")
    assert refusal(made) == "fix has 1 stash"
    git(directory, "stash", "pop")
    git(directory, "mv", "file0", "renamed")
    assert "uncommitted changes (renamed)" in refusal(made)
    git(directory, "commit", "-q", "-a", "-m", "renamed")
    assert refusal(made) == "fix has 1 commit on no other branch and no remote"
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert removed(made)


def test_commits_on_no_branch_at_all(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    tip = commit(made.directory, "more")
    assert refusal(made) == "fix has 1 commit on no other branch and no remote"
    (Path(made.directory) / "file0").write_text("changed")
    git(made.directory, "stash")
    assert "1 stash" in refusal(made)
    kept = worktrees.remove(made, force=True).kept
    assert kept == ["refs/amux/removed/abc123/head", "the stash, which is the repository's"]
    assert is_reachable(repo, tip)


def test_work_that_is_on_no_remote_is_told_where_there_are_remotes(repo: Path) -> None:
    bare = repo.parent / "bare.git"
    git(repo.parent, "clone", "-q", "--bare", str(repo), str(bare))
    git(repo, "remote", "add", "origin", str(bare))
    git(repo, "branch", "old")
    made = add(repo, branch="old")
    commit(made.directory, "more")
    assert refusal(made) == "fix has 1 commit on no other branch and no remote"
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
    assert f"a {operation} under way" in refusal(made)


def test_a_submodules_commits_are_not_lost(repo: Path) -> None:
    library = repository(repo.parent / "library")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib/one")
    git(repo, "commit", "-q", "-m", "with a submodule")
    made = add(repo)
    git(made.directory, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    inner = Path(made.directory) / "lib/one"
    (inner / "file0").write_text("changed")
    assert "uncommitted changes (lib/one)" in refusal(made)
    git(inner, "commit", "-q", "-a", "-m", "in the submodule")
    tip = git(inner, "rev-parse", "HEAD")
    git(made.directory, "submodule", "deinit", "-q", "--force", "--all")
    assert refusal(made) == "fix has 1 commit in submodule lib/one on no remote"
    kept = worktrees.remove(made, force=True).kept
    assert kept == ["refs/amux/removed/abc123/submodules/lib/one"]
    assert git(repo, "rev-parse", f"{kept[0]}/HEAD") == tip


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
    assert refusal(made) == "fix has 1 untracked file (local/)"
    (directory / "local/more").unlink()
    (directory / ".env").write_text("KEY=2")
    assert refusal(made) == "fix has 1 untracked file (.env)"
    git(repo, "config", "core.excludesFile", str(repo.parent / "ignored"))
    (repo.parent / "ignored").write_text(".env\n")
    assert refusal(made) == "fix has 1 untracked file (.env)"
    (directory / ".env").write_text("KEY=1")
    assert removed(made)


def test_a_copy_that_fails_leaves_nothing_half_made(repo: Path) -> None:
    (repo / "secret").mkdir()
    (repo / "secret/file").write_text("x")
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "taken").write_text("x")
    git(repo, "add", "taken")
    git(repo, "commit", "-q", "-m", "taken")
    git(repo, "rm", "-q", "taken")
    (repo / "taken").mkdir()
    (repo / "taken/file").write_text("x")
    with pytest.raises(InvalidArgument, match="fix could not be made"):
        add(repo, copy=["taken"], base="other")
    assert branches(repo) == {"main", "other"}
    assert len(worktrees.worktrees(str(repo))) == 1


def test_one_that_is_gone_already_is_cleaned_up(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--detach")
    tip = commit(made.directory, "more")
    Path(made.directory).rename(repo.parent / "elsewhere")
    with pytest.raises(WorkspaceDirty, match="1 commit on no other branch"):
        worktrees.remove(made, force=False)
    worktrees.remove(made, force=True)
    assert is_reachable(repo, tip)
    assert len(worktrees.worktrees(str(repo))) == 1
    assert worktrees.remove(made, force=False) == worktrees.Removed([], [])


def test_one_that_git_knows_no_more_is_left_alone(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".git").unlink()
    with pytest.raises(WorkspaceDirty, match="git cannot tell what is in"):
        worktrees.remove(made, force=False)
    (kept,) = worktrees.remove(made, force=True).kept
    assert kept.startswith(f"{made.directory} itself")
    assert Path(made.directory).is_dir()


def test_a_directory_that_became_another_repositorys_is_left_alone(repo: Path) -> None:
    made = add(repo)
    (Path(made.directory) / ".git").unlink()
    git(made.directory, "init", "-q")
    with pytest.raises(WorkspaceDirty, match="is no worktree of"):
        worktrees.remove(made, force=False)


def test_what_is_locked_is_not_removed_but_by_force(repo: Path) -> None:
    (repo / "copy").write_text("as it was")
    made = add(repo, copy=["copy"])
    git(repo, "worktree", "lock", "--reason", "on a stick", made.directory)
    assert "on a stick" in refusal(made)
    assert (Path(made.directory) / "copy").read_text() == "as it was"
    worktrees.remove(made, force=True)
    assert not Path(made.directory).exists()


def test_a_branch_that_got_more_commits_meanwhile_stays(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    delete_branch = worktrees._delete_branch

    def late(*arguments: Any) -> str:
        tip = git(repo, "commit-tree", "-m", "late", "-p", "fix", "fix^{tree}")
        git(repo, "update-ref", "refs/heads/fix", tip)
        return delete_branch(*arguments)

    monkeypatch.setattr(worktrees, "_delete_branch", late)
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept == "branch fix, which has got more commits meanwhile"
    assert "fix" in branches(repo)


def test_a_branch_of_amux_that_is_in_use_elsewhere_stays(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "add", "-q", "-f", str(repo.parent / "second"), "fix")
    (kept,) = worktrees.remove(made, force=False).kept
    assert kept.startswith("branch fix (")
    assert "fix" in branches(repo)


def test_what_a_crash_left_is_taken_back_once(repo: Path) -> None:
    made = add(repo)
    assert not worktrees.recovered(made)
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert branches(repo) == {"main"}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_branch_that_somebody_made_after_the_plan_stays(repo: Path, is_killed: bool) -> None:
    wish = Wish(str(repo))
    plan = worktrees.planned(Workspace("abc123", "fix", "", 1), wish, repo.parent / "trees")
    git(repo, "branch", "fix")
    if is_killed:
        assert not worktrees.recovered(plan)
    else:
        with pytest.raises(InvalidArgument, match=r"fix could not be made: .*already exists"):
            worktrees.make(plan, wish)
    assert branches(repo) == {"main", "fix"}
    assert not Path(plan.directory).exists()


def test_a_branch_that_somebody_made_anew_after_a_crash_stays(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "remove", made.directory)
    commit(repo, "more")
    git(repo, "branch", "-f", "fix", "main")
    assert not worktrees.recovered(made)
    assert "fix" in branches(repo)
    git(repo, "branch", "-D", "fix")
    git(repo, "branch", "fix")
    assert not worktrees.recovered(made)
    assert "fix" in branches(repo)


@pytest.mark.parametrize("files", [[], ["work"]])
def test_a_directory_that_somebody_made_after_the_plan_stays(repo: Path, files: list[str]) -> None:
    wish = Wish(str(repo))
    plan = worktrees.planned(Workspace("abc123", "fix", "", 1), wish, repo.parent / "trees")
    Path(plan.directory).mkdir(parents=True)
    for name in files:
        (Path(plan.directory) / name).write_text("x")
    with pytest.raises(InvalidArgument, match=f"fix could not be made: {plan.directory} is there"):
        worktrees.make(plan, wish)
    assert [path.name for path in Path(plan.directory).iterdir()] == files
    assert branches(repo) == {"main"}


def test_two_that_were_planned_for_one_place_do_not_undo_each_other(repo: Path) -> None:
    wish = Wish(str(repo))
    plans = [
        worktrees.planned(Workspace(key, name, "", 1), wish, repo.parent / "trees")
        for key, name in (("aaa111", "feat/x"), ("bbb222", "feat-x"))
    ]
    assert len({plan.directory for plan in plans}) == 1
    made = worktrees.make(plans[0], wish)
    (Path(made.directory) / "work").write_text("hours of it")
    with pytest.raises(InvalidArgument, match="is there"):
        worktrees.make(plans[1], wish)
    assert not worktrees.recovered(plans[1])
    assert (Path(made.directory) / "work").exists()
    assert branches(repo) == {"main", "feat/x"}


def test_an_empty_directory_that_a_crash_left_is_taken_back(repo: Path) -> None:
    git(repo, "branch", "old")
    for branch in ("old", "new"):
        plan = worktrees.planned(
            Workspace("abc123", branch, "", 1), Wish(str(repo), branch), repo.parent / "trees"
        )
        if plan.made_branch:
            worktrees._make_branch(plan)
        Path(plan.directory).mkdir(parents=True)
        assert not worktrees.recovered(plan)
        assert not Path(plan.directory).exists()
    assert branches(repo) == {"main", "old"}


def test_git_that_is_missing_or_slow_is_told(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GitFailed, match="took longer than 0 s"):
        git_module.git(repo, "-c", "alias.work=!sleep 1000", "work", deadline=0.1)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitFailed, match="git is not installed"):
        git_module.git(repo, "status")


def test_hooks_and_monitors_of_the_repository_do_not_run(repo: Path) -> None:
    hook = repo / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repo.parent}/ran\n")
    hook.chmod(0o755)
    git(repo, "config", "core.fsmonitor", str(hook))
    assert removed(add(repo))
    assert not (repo.parent / "ran").exists()
