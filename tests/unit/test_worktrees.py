"""Worktrees made and removed by the real git, in every kind of repository."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
from pathlib import Path

import pytest
from harness.repositories import commit, empty_repository, git, repository
from worktree_work import (
    add,
    branches,
    misleading_environment,  # noqa: F401
    planned,
    refused,
    removed,
    repo,  # noqa: F401
)

from amuxd import git as git_module
from amuxd.errors import Internal, InvalidArgument, WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import planning, standing, worktrees
from amuxd.workspaces.in_common import against_base
from amuxd.workspaces.planning import Wish


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
    nested = planning.planned(Workspace("c", "c", "", 1), Wish(str(repo)), Path(outer.directory) / "below")
    below = worktrees.make(nested, Wish(str(repo)))
    assert "untracked" in refused(outer)
    (repo / ".git/info/exclude").write_text("/below\n")
    assert "another repository, worktree or mount in it" in refused(outer)
    with pytest.raises(WorkspaceDirty, match="take that away first"):
        worktrees.remove(outer, force=True)
    assert removed(below)
    assert removed(outer)


def test_an_empty_repository_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="has no commit yet"):
        add(empty_repository(tmp_path / "empty"))


def test_no_repository_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        add(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is in no git repository: amux ws add --repo DIR names one, and --path DIR takes a "
        "directory as it is"
    )


@pytest.mark.parametrize(
    "branch", ["a\nb", "a..b", "..", "@", "HEAD", "-x", "a b", "@{-1}", "x.lock", "/x", "\x1b"]
)
def test_what_git_does_not_take_for_the_name_of_a_branch(repo: Path, branch: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        add(repo, branch=branch)
    assert str(caught.value) == f"{branch!r} is no name for a branch"
    assert branches(repo) == {"main"}


@pytest.mark.parametrize("base", ["main..dev", "main...dev", "^main", "main^!", "{tip}..{first}", "^{tip}"])
def test_a_worktree_begins_from_one_commit(repo: Path, base: str) -> None:
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "branch", "dev")
    base = base.format(tip=commit(repo, "more"), first=first)
    with pytest.raises(InvalidArgument) as caught:
        add(repo, base=base)
    assert str(caught.value) == f"{base!r} is not one commit"


@pytest.mark.parametrize(
    ("base", "written"),
    [
        ("main", "refs/heads/main"),
        ("v1", "refs/tags/v1"),
        ("@", "refs/heads/main"),
        ("main~1", ""),
        ("FETCH_HEAD", ""),
    ],
)
def test_what_a_worktree_begins_from(repo: Path, base: str, written: str) -> None:
    first = git(repo, "rev-parse", "HEAD")
    commit(repo, "more")
    git(repo, "tag", "v1")
    git(repo, "fetch", "-q", ".", first)
    assert add(repo, base=base).base == (written or first)


def test_where_a_person_is_on_no_branch_a_worktree_begins_from_that_commit(repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    commit(repo, "more")
    git(repo, "checkout", "-q", first)
    assert add(repo).base == first


@pytest.mark.parametrize(
    "name",
    [
        "über ✨",
        "a b/c",
        "..",
        "-x",
        "x" * 255,
        "👩‍💻" * 40,
        "@{u}",
        "@",
        "HEAD",
        "a.lock",
        ".-d",
        "~^:?*[\\",
    ],
)
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    where = repository(tmp_path / "sp ace 🌳")
    made = add(where, name)
    assert Path(made.directory).parent == tmp_path / "worktrees/sp ace 🌳"
    (Path(made.directory) / "f ✨").write_text("x")
    assert "(f ✨)" in refused(made)
    (Path(made.directory) / "f ✨").unlink()
    assert removed(made)


def test_a_name_that_is_that_of_a_branch_in_full(repo: Path) -> None:
    assert add(repo, "refs/heads/fix").branch == "fix"
    assert branches(repo) == {"main", "fix"}


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
    planned = planning.planned(Workspace("abc123", "fix", "", 1), wish, Path("/sys/amux"))
    with pytest.raises(Internal, match="/sys/amux/code cannot be made"):
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


def test_what_follows_a_branch_that_is_gone_is_compared_with_its_base(repo: Path) -> None:
    """As once it was merged, and deleted on the remote."""
    clone = repo.parent / "clone"
    git(repo.parent, "clone", "-q", str(repo), str(clone))
    made = add(clone)
    commit(made.directory, "more")
    git(made.directory, "push", "-q", "-u", "origin", "fix")
    files = standing.files_of(made.directory)
    assert (files.upstream, against_base(files, made).ahead) == ("origin/fix", 0)
    git(repo, "branch", "-q", "-D", "fix")
    git(clone, "fetch", "-q", "--prune")
    files = standing.files_of(made.directory)
    assert (files.upstream, against_base(files, made).ahead) == ("", 1)


def with_two_remotes(repo: Path) -> Path:
    """Each of which has a fix of its own."""
    forked = repository(repo.parent / "forked")
    clone = repo.parent / "clone"
    git(repo.parent, "clone", "-q", "-o", "own", str(repo), str(clone))
    git(clone, "remote", "add", "fork", str(forked))
    for remote in (repo, forked):
        git(remote, "checkout", "-q", "-b", "fix")
        commit(remote, "fixed", remote.name)
    git(clone, "fetch", "-q", "--all")
    return clone


def test_of_the_branches_of_two_remotes_none_is_guessed(repo: Path) -> None:
    clone = with_two_remotes(repo)
    with pytest.raises(InvalidArgument) as told:
        add(clone)
    way_out = "amux ws add --base fork/fix takes that one, --base HEAD begins where you are"
    assert str(told.value) == f"fork/fix and own/fix are there: {way_out}"
    assert branches(clone) == {"main"}
    git(clone, "config", "checkout.defaultRemote", "elsewhere")
    with pytest.raises(InvalidArgument, match="fork/fix and own/fix are there"):
        add(clone)
    made = add(clone, base="own/fix")
    assert git(made.directory, "rev-parse", "--abbrev-ref", "@{u}") == "own/fix"
    begun = add(clone, "other", "other1", base="HEAD")
    assert begun.base == "refs/heads/main"


@pytest.mark.parametrize("remote", ["own", "fork"])
def test_of_the_branches_of_two_remotes_that_of_gits_default_is_taken(repo: Path, remote: str) -> None:
    clone = with_two_remotes(repo)
    git(clone, "config", "checkout.defaultRemote", remote)
    made = add(clone, branch="fix")
    assert git(made.directory, "rev-parse", "--abbrev-ref", "@{u}") == f"{remote}/fix"


def test_a_branch_of_a_remote_is_not_made_another_of_the_same_name(repo: Path) -> None:
    clone = repo.parent / "clone"
    git(repo, "branch", "feat/x")
    git(repo.parent, "clone", "-q", str(repo), str(clone))
    with pytest.raises(InvalidArgument) as told:
        add(clone, branch="origin/feat/x")
    way_out = "--branch feat/x takes it, --branch NEW --base origin/feat/x begins another there"
    assert str(told.value) == f"origin/feat/x is a branch of the remote origin: {way_out}"
    assert branches(clone) == {"main"}
    with pytest.raises(InvalidArgument, match="is a branch of the remote origin"):
        add(clone, "origin/feat/x")
    assert add(clone, branch="feat/x").base == "refs/remotes/origin/feat/x"
    # Who says from where, or has made one so called, means that name.
    begun = add(clone, "begun", "begun1", branch="origin/feat/x", base="main")
    assert (begun.branch, begun.base) == ("origin/feat/x", "refs/heads/main")
    git(clone, "branch", "origin/main")
    assert add(clone, "other", "other1", branch="origin/main").branch == "origin/main"


def test_a_branch_below_the_name_of_a_remote_is_not_that_of_the_workspace(repo: Path) -> None:
    git(repo, "branch", "wip/alice")
    clone = repo.parent / "clone"
    git(repo.parent, "clone", "-q", "-o", "alice", str(repo), str(clone))
    assert add(clone, "alice").base == "refs/heads/main"
    # And what a remote has as its default is no branch of that name.
    assert planned(clone, "other", "other1", branch="alice/HEAD").branch == "alice/HEAD"


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"branch": "refs/heads/x"}, "refs/heads/x is a ref: --branch x is its branch"),
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


def test_where_no_branch_is_checked_out_it_begins_from_that_commit(repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    tip = commit(repo, "on none")
    made = add(repo)
    assert made.base == git(made.directory, "rev-parse", "HEAD") == tip
    assert git(made.directory, "branch", "--show-current") == "fix"
    # Its beginning stays what it was.
    commit(repo, "later")
    assert standing.ahead_behind(made.directory, made.base) == (0, 0)
    assert refused(made) == "fix has 1 commit on no other branch and no remote"
    git(repo, "branch", "kept", tip)
    assert removed(made)


def test_git_that_is_missing_or_slow_is_told(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GitFailed, match="took longer than 0 s"):
        git_module.git(repo, "-c", "alias.work=!sleep 1000", "work", deadline=0.1)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitFailed, match="git is not installed"):
        git_module.git(repo, "status")


@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor works alone")
def test_files_are_checked_out_on_all_processors_unless_the_user_has_said_otherwise(repo: Path) -> None:
    git(repo, "config", "checkout.thresholdForParallelism", "1")

    def workers(name: str, key: str) -> int:
        trace = repo.parent / f"{name}.trace"
        made = add(repo, name, key, environment={"GIT_TRACE": str(trace)})
        assert (Path(made.directory) / "file1").is_file()
        return trace.read_text().count("git checkout--worker")

    assert workers("all", "aaa111") > 0
    git(repo, "config", "checkout.workers", "1")
    assert workers("one", "bbb111") == 0


@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor works alone")
def test_whose_worktree_it_is_may_have_said_that_one_processor_will_do(repo: Path) -> None:
    (repo.parent / "git").mkdir()
    (repo.parent / "git/config").write_text("[checkout]\n\tworkers = 1\n\tthresholdForParallelism = 1\n")
    trace = repo.parent / "trace"
    add(repo, environment={"GIT_TRACE": str(trace), "XDG_CONFIG_HOME": str(repo.parent)})
    assert "git worktree add" in trace.read_text()
    assert "git checkout--worker" not in trace.read_text()


@pytest.mark.parametrize("code", [-9, -1, 2, 128])
def test_where_git_cannot_tell_what_its_user_has_said_that_is_not_overridden(
    repo: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*arguments: str, **_how: object) -> str:
        raise GitFailed(arguments, code, "")

    monkeypatch.setattr(worktrees, "git", fail)
    assert worktrees._all_processors(str(repo), {}) == {}


@pytest.mark.parametrize("question", ["_refs_of", "worktrees"])
def test_a_repository_that_git_cannot_read_is_refused(
    repo: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    def fail(*_: object) -> None:
        raise GitFailed([], 128, "bad ref")

    monkeypatch.setattr(planning, question, fail)
    with pytest.raises(Internal, match=f"git cannot tell what is in {repo}: bad ref"):
        add(repo)


def test_monitors_of_the_repository_do_not_run(repo: Path) -> None:
    monitor = repo / ".git/monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {repo.parent}/ran\n")
    monitor.chmod(0o755)
    git(repo, "config", "core.fsmonitor", str(monitor))
    assert removed(add(repo))
    assert not (repo.parent / "ran").exists()
