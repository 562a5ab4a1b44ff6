"""Worktrees on a file system of their own: while it is not mounted, and while it cannot be written to."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.repositories import git
from workspace_fixtures import (
    configure,
    repo,  # noqa: F401
    run_in,
)


@pytest.fixture
def top(amux: Amux) -> Path:
    """Where the machine's own mounts can be, and worktrees are."""
    top = amux.machine.temporary / "trees"
    shutil.rmtree(top, ignore_errors=True)
    (top / "code").mkdir(parents=True)
    configure(amux, f'[workspaces]\ndirectory = "{top}"\n')
    return top


@contextmanager
def mounted(amux: Amux, disk: Path, place: Path) -> Iterator[None]:
    amux.machine.run(["mount", "--bind", disk, place])
    try:
        yield
    finally:
        amux.machine.run(["umount", place])


@contextmanager
def read_only(amux: Amux, place: Path) -> Iterator[None]:
    with mounted(amux, place, place):
        amux.machine.run(["mount", "-o", "remount,bind,ro", place])
        yield


def known_to_git(repo: Path) -> tuple[str, str]:
    return git(repo, "for-each-ref"), git(repo, "worktree", "list", "--porcelain")


def test_what_is_on_a_file_system_that_is_not_mounted_is_not_given_up(
    amux: Amux, repo: Path, top: Path
) -> None:
    disk, directory = amux.machine.temporary / "mounted-later", top / "code/fix"
    shutil.rmtree(disk, ignore_errors=True)
    disk.mkdir()
    with mounted(amux, disk, top):
        amux.cli("ws", "add", "fix", cwd=repo)
    (disk / "code/fix/new").write_text("work")
    for how in ((), ("--ignored",)):
        refused = amux.cli("ws", "rm", *how, "fix", check=False)
        assert (refused.returncode, refused.stdout, refused.stderr) == (
            4,
            "",
            f"amux: {directory} is not there, and nobody can tell what work is in it: put it back, mount it, "
            "or run git worktree repair in it where it is now; --force forgets it\n",
        )
    lost = f"what git keeps for {directory}, which is not there"
    assert f"Lost by rm:  {lost}\n" in amux.cli("ws", "show", "fix").stdout
    with mounted(amux, disk, top):
        refused = amux.cli("ws", "rm", "fix", check=False)
        assert refused.stderr == "amux: fix has 1 untracked file (new)\n"
        assert amux.machine.run(["git", "-C", directory, "status", "--short"]).stdout == "?? new\n"
    removed = amux.cli("ws", "rm", "--force", "fix").stdout
    assert removed == f"fix: throwing away {lost}\nremoved fix\n"
    assert (disk / "code/fix/new").read_text() == "work"


def test_a_parent_that_cannot_be_written_to(amux: Amux, repo: Path, top: Path) -> None:
    parent = top / "code"
    amux.cli("ws", "add", "fix", cwd=repo)
    session = run_in(amux, "fix", name="one")
    before = known_to_git(repo)
    with read_only(amux, parent):
        refused = amux.cli("ws", "add", "new", cwd=repo, check=False)
        told = f"amux: new could not be made: {parent}/new: Read-only file system\n"
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", told)
        refused = amux.cli("ws", "rm", "--force", "fix", check=False)
        told = f"amux: {parent}/fix is not removed: {parent} cannot be written to\n"
        assert (refused.returncode, refused.stdout, refused.stderr) == (4, "", told)
        assert session.state == "running"
        session.stop()
        refused = amux.cli("ws", "rm", "fix", check=False)
        assert (refused.returncode, refused.stdout, refused.stderr) == (4, "", told)
    assert known_to_git(repo) == before
    assert [file for name in ("*.lock", "locked") for file in (repo / ".git").rglob(name)] == []
    assert [path.name for path in parent.iterdir()] == ["fix"]
    assert len(amux.cli("ws", "ls").stdout.splitlines()) == 2
    assert amux.cli("ws", "add", "new", cwd=repo).stdout == f"added new: {parent}/new\n"
    assert amux.cli("ws", "rm", "fix", "new").stdout == "removed fix\nremoved new\n"
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
