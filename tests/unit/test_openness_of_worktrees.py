"""The files of a worktree are as open as their caller, their parent and what they are copies of say."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.repositories import commit, git
from worktree_work import (
    add,
    misleading_environment,  # noqa: F401
    repo,  # noqa: F401
)


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


def acl(*entries: tuple[int, int, int]) -> bytes:
    """As the kernel takes it: a version, then tag, permissions and id of each."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.usefixtures("_private")
def test_a_default_acl_says_who_may_do_what(repo: Path) -> None:
    parent = repo.parent / "worktrees"
    parent.mkdir()
    nobody, none = 65534, 0xFFFFFFFF
    handed_down = acl((1, 7, none), (2, 7, nobody), (4, 5, none), (16, 7, none), (32, 0, none))
    try:
        os.setxattr(parent, "system.posix_acl_default", handed_down)
    except OSError:
        pytest.skip("this file system has no ACLs")
    by_hand = parent / "by hand"
    by_hand.mkdir()
    made = Path(add(repo, umask=0o022).directory)
    access = os.getxattr(by_hand, "system.posix_acl_access")
    for directory in (made.parent, made):
        assert os.getxattr(directory, "system.posix_acl_access") == access
        assert os.getxattr(directory, "system.posix_acl_default") == handed_down
