"""Whether what stands in the place of a worktree is that worktree, however its repository is laid out."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import git, repository
from worktree_work import (
    add,
    misleading_environment,  # noqa: F401
    repo,  # noqa: F401
    with_submodule,
)

from amuxd.records import Workspace
from amuxd.workspaces.marks import why_another


def plain(repo: Path) -> Path:
    return repo


def bare(repo: Path) -> Path:
    git(repo.parent, "clone", "-q", "--bare", str(repo), "bare.git")
    return repo.parent / "bare.git"


def separate(repo: Path) -> Path:
    git(repo.parent, "clone", "-q", f"--separate-git-dir={repo.parent}/apart", str(repo), "separate")
    return repo.parent / "separate"


def submodule(repo: Path) -> Path:
    with_submodule(repo)
    return repo / "lib"


def worktree(repo: Path) -> Path:
    git(repo, "worktree", "add", "-q", str(repo.parent / "outer"))
    return repo.parent / "outer"


def link(repo: Path) -> Path:
    (there := repo.parent / "link").symlink_to(repo)
    return there


def why(made: Workspace) -> str:
    return why_another(made.directory, made.repository)


@pytest.mark.parametrize("lay_out", [plain, bare, separate, submodule, worktree, link])
def test_it_is_that_of_a_repository_of_any_kind(repo: Path, lay_out: Callable[[Path], Path]) -> None:
    assert why(add(lay_out(repo))) == ""


def test_it_is_that_also_where_the_repository_was_changed_since(repo: Path) -> None:
    made = add(repo)
    git(repo, "init", "-q", f"--separate-git-dir={repo.parent}/apart")
    assert why(made) == ""


def test_paths_may_be_relative(repo: Path) -> None:
    made = add(repo)
    own = Path(git(made.directory, "rev-parse", "--absolute-git-dir"))
    Path(made.directory, ".git").write_text("gitdir: ../../../code/.git/worktrees/fix\n")
    (own / "gitdir").write_text("../../../../worktrees/code/fix/.git\n")
    git(made.directory, "status")
    assert why(made) == ""


def test_where_git_refuses_to_work_it_is_no_other(repo: Path) -> None:
    made = add(repo)
    mark = Path(made.directory, ".git")
    for text in ("gitdir: /nonexistent\n", f"gitdir: {repo.parent}\n", "rubbish"):
        mark.write_text(text)
        assert why(made) == ""
    shutil.rmtree(made.directory)
    assert why(made) == ""


def test_a_mark_that_leads_to_a_whole_repository(repo: Path) -> None:
    made = add(repo)
    mark = Path(made.directory, ".git")
    other = repository(repo.parent / "other") / ".git"
    told = f"{mark} leads to another repository, %s: put the worktree's own back"
    mark.write_text(f"gitdir: {other}\n")
    assert why(made) == told % other
    mark.unlink()
    mark.symlink_to(repo / ".git")
    assert why(made) == told % (repo / ".git")
