"""Worktrees, and what git keeps of them, that amuxd may not look into: nobody can tell what is in them."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ends_fixtures import drop_in
from harness.daemon import Amux
from harness.repositories import git
from workspace_fixtures import (
    repo,  # noqa: F401
    workspace_directory,
)

AS_A_USER = "[Service]\nCapabilityBoundingSet=~CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH\n"
# By which of them it is known: the worktree's own directory, or the one that git keeps for it.
CLOSED = {
    ".": ".git",
    "./.git": ".git",
    "./sub": "sub",
    "git": "gitdir",
    "git/gitdir": "gitdir",
    "git/modules": "modules",
}


@pytest.fixture
def as_a_user(amux: Amux) -> Iterator[Amux]:
    with drop_in(amux, AS_A_USER):
        yield amux


@pytest.mark.parametrize("closed", CLOSED)
def test_it_is_told_and_nothing_is_lost(as_a_user: Amux, repo: Path, closed: str) -> None:
    amux = as_a_user
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    own = repo / ".git/worktrees/fix"
    (directory / "sub").mkdir()
    (directory / "sub/new").write_text("work")
    (own / "modules").mkdir()
    base, _, below = closed.partition("/")
    top = directory if base == "." else own
    place = top / below
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        problem = next(
            line
            for line in amux.cli("ws", "show", "fix").stdout.splitlines()
            if line.startswith("Problem:") and f"{top / CLOSED[closed]}" in line
        )
        assert "Permission denied" in problem
        [listed] = json.loads(amux.cli("ws", "ls", "--json").stdout)
        assert listed["name"] == "fix"
        if CLOSED[closed] == "gitdir":
            shown = json.loads(amux.cli("ws", "show", "fix", "--json").stdout)
            assert (listed["problem"], listed["error"]) == (shown["problem"], shown["error"])
        refused = amux.cli("ws", "rm", "fix", check=False)
        assert refused.returncode == 4
        assert refused.stderr.startswith(f"amux: git cannot tell what is in {directory}: ")
        assert "Permission denied" in refused.stderr
        removed = amux.cli("ws", "rm", "--force", "fix").stdout
        assert f"  kept {directory} and what git keeps for it, for git cannot tell what is in it (" in removed
    finally:
        place.chmod(mode)
    assert git(directory, "status", "--porcelain", "--untracked-files=all") == "?? sub/new"
    assert git(repo, "branch", "--format=%(refname:short)").split() == ["fix", "main"]


def test_what_is_abandoned_in_a_log_that_is_closed_is_not_thrown_away(as_a_user: Amux, repo: Path) -> None:
    amux = as_a_user
    amux.cli("ws", "add", "fix", cwd=repo)
    logs = repo / ".git/worktrees/fix/logs"
    logs.chmod(0)
    try:
        for how in ((), ("--force",)):
            refused = amux.cli("ws", "rm", *how, "fix", check=False)
            assert refused.returncode == 4
            assert f"{logs} cannot be looked into: Permission denied" in refused.stderr
    finally:
        logs.chmod(0o755)
    assert git(workspace_directory(amux, "fix"), "status", "--porcelain") == ""
    assert amux.cli("ws", "rm", "fix").stdout == "removed fix\n"


@pytest.mark.parametrize(("name", "mode"), [("logs", 0), ("logs", 0o333), ("logs", 0o555), ("ORIG_HEAD", 0)])
def test_nobody_is_ended_for_a_removal_that_is_refused_then(
    as_a_user: Amux, repo: Path, name: str, mode: int
) -> None:
    amux = as_a_user
    amux.cli("ws", "add", "fix", cwd=repo)
    session = amux.create(["sleep", "1000"], workspace="fix")
    closed = repo / ".git/worktrees/fix" / name
    was = closed.stat().st_mode
    closed.chmod(mode)
    try:
        refused = amux.cli("ws", "rm", "--force", "fix", check=False)
    finally:
        closed.chmod(was)
    assert refused.returncode == 4
    assert str(closed) in refused.stderr
    assert session.state == "running"


@pytest.mark.parametrize("closed", [".git/worktrees", ".git/worktrees/fix", ".git/worktrees/fix/logs"])
@pytest.mark.parametrize("how", [(), ("--force",)])
def test_what_git_may_not_write_to_is_found_out_before_anything_is_done(
    as_a_user: Amux, repo: Path, closed: str, how: tuple[str, ...]
) -> None:
    amux = as_a_user
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    place = repo / closed
    mode = place.stat().st_mode
    place.chmod(0o555)
    try:
        refused = amux.cli("ws", "rm", *how, "fix", check=False)
    finally:
        place.chmod(mode)
    assert (refused.returncode, refused.stderr) == (
        4,
        f"amux: {directory} is not removed: {place} cannot be written to\n",
    )
    assert git(directory, "status", "--porcelain", "--branch") == "## fix"
    amux.cli("ws", "rm", "fix")
    assert not directory.exists()
