"""A repository that is not where it was: of its worktrees nothing is guessed, and nothing thrown away."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.repositories import git, repository
from workspace_fixtures import (
    repo,  # noqa: F401
    workspace_directory,
)


@pytest.fixture
def moved(amux: Amux, repo: Path, tmp_path: Path) -> Path:
    for name in ("clean", "fix"):
        amux.cli("ws", "add", name, cwd=repo)
    return repo.rename(tmp_path / "moved")


def branches(repo: Path) -> list[str]:
    return git(repo, "branch", "--format=%(refname:short)").split()


@pytest.mark.parametrize("is_repaired", [False, True])
def test_it_is_told_with_what_to_do(amux: Amux, repo: Path, moved: Path, is_repaired: bool) -> None:
    if is_repaired:
        git(moved, "worktree", "repair")
    directory = workspace_directory(amux, "fix")
    assert f"Problem:     its repository {repo} does not exist" in amux.cli("ws", "show", "fix").stdout
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert refused.returncode == 4
    why = f"cannot change to '{repo}': No such file or directory"
    assert refused.stderr == (
        f"amux: git cannot tell what is in {directory}: {why}; "
        f"put {repo} back; --force forgets the workspace, and leaves {directory} as it is\n"
    )
    assert (
        f"kept {directory} and what git keeps for it, for git cannot tell"
        in amux.cli("ws", "rm", "--force", "fix").stdout
    )
    moved.rename(repo)
    git(repo, "worktree", "repair")
    assert branches(repo) == ["clean", "fix", "main"]
    assert git(directory, "status", "--porcelain") == ""
    assert amux.cli("ws", "rm", "clean").stdout == "removed clean\n"


def test_another_repository_that_has_it_in_its_tree_is_not_taken_for_it(
    amux: Amux, repo: Path, moved: Path
) -> None:
    directory = workspace_directory(amux, "fix")
    shutil.rmtree(moved)
    (directory / ".git").unlink()
    git(directory.parent.parent, "init", "-q")
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert refused.returncode == 4
    assert f"put {repo} back" in refused.stderr
    assert (directory / "file0").exists()


def test_a_worktree_that_another_repository_made_there_is_not_taken_for_its_own(
    amux: Amux, repo: Path, moved: Path, tmp_path: Path
) -> None:
    directory = workspace_directory(amux, "fix")
    shutil.rmtree(moved)
    shutil.rmtree(directory)
    another = repository(tmp_path / "another")
    git(another, "worktree", "add", "-q", "-b", "theirs", str(directory))
    assert "theirs" not in amux.cli("ws", "show", "fix").stdout
    assert amux.cli("ws", "rm", "fix", check=False).returncode == 4
    amux.cli("ws", "rm", "--force", "fix")
    assert git(directory, "status", "--porcelain") == ""
