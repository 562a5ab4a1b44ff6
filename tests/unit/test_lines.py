"""Names and messages may have in them what str.splitlines() takes for the end of a line."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from pathlib import Path

import pytest
from harness.repositories import commit, git
from worktree_work import (
    add,
    misleading_environment,  # noqa: F401
    refused,
    repo,  # noqa: F401
)

from amuxd import mounts
from amuxd.errors import InvalidArgument
from amuxd.git import GitFailed
from amuxd.git import git as asked_by_amux
from amuxd.lines import lines_of
from amuxd.workspaces import branches

ODD = "a\v\f\x1c\x1d\x1e\x85\u2028\u2029\rb"
# git takes no control characters in the names of refs.
ODD_BRANCH = "a\u00a0\u2028b"


@pytest.mark.parametrize(
    ("text", "lines"), [("", []), ("\n", [""]), ("a", ["a"]), ("a\n\nb\n", ["a", "", "b"]), (ODD, [ODD])]
)
def test_lines_end_at_line_feeds(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines


def test_what_is_mounted_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "mountinfo"
    told.write_text(
        f"21 1 0:1 / / rw - ext4 /dev/sda rw\n22 21 0:2 / /mnt/{ODD}\\040c rw - tmpfs tmpfs rw\n", newline=""
    )
    monkeypatch.setattr(mounts, "_MOUNTS", told)
    assert list(mounts.mounted()) == [(21, Path("/")), (22, Path(f"/mnt/{ODD} c"))]


def test_a_branch_of_such_a_name_is_found(repo: Path) -> None:
    git(repo, "branch", ODD_BRANCH)
    with pytest.raises(InvalidArgument, match=r"there is a branch .* already, and it has its own base"):
        add(repo, branch=ODD_BRANCH, base="main")
    assert not add(repo, branch=ODD_BRANCH).made_branch


def test_a_worktree_can_begin_from_a_branch_of_such_a_name(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", ODD_BRANCH)
    assert add(repo).base == f"refs/heads/{ODD_BRANCH}"


def test_a_commit_does_not_tell_who_made_the_branch(repo: Path) -> None:
    made = add(repo)
    commit(made.directory, "more")
    git(made.directory, "commit", "-q", "--amend", "-m", "more\u2028branch: of that")
    assert branches.has_made(made)


def test_a_stash_is_counted_once(repo: Path) -> None:
    made = add(repo)
    Path(made.directory, "file0").write_text("changed")
    git(made.directory, "stash", "push", "-q", "-m", "words\u2028On fix: more words")
    assert "1 stash" in refused(made)


def test_what_git_complains_of_is_told_whole(repo: Path) -> None:
    with pytest.raises(GitFailed, match=f"invalid reference: {ODD_BRANCH}$"):
        asked_by_amux(repo, "worktree", "add", "/nonexistent/x", ODD_BRANCH)
