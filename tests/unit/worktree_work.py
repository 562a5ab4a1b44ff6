"""Worktrees that amux makes of a real repository, and the work that is in them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, git, repository

from amuxd.errors import WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import aside, planning, worktrees
from amuxd.workspaces.planning import Wish
from amuxd.workspaces.worktrees import Removed

ALLOW = ("-c", "protocol.file.allow=always")
# What a removal says then of clones in it.
CACHE = ["1 ignored directory (cache)"]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    return repository(tmp_path / "code", files=2)


@pytest.fixture(autouse=True)
def misleading_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the modules that import it: none of this may reach the git that amux calls."""
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("GIT_DIR", "/nonexistent/git")


def show_no_untracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[status]\n\tshowUntrackedFiles = no\n")
    monkeypatch.setenv("HOME", str(tmp_path))


def planned(where: Path, name: str = "fix", key: str = "abc123", **wish: Any) -> Workspace:
    return planning.planned(Workspace(key, name, "", 1), Wish(str(where), **wish), where.parent / "worktrees")


def add(where: Path, name: str = "fix", key: str = "abc123", **wish: Any) -> Workspace:
    plan = planned(where, name, key, **wish)
    assert plan.being_made
    return worktrees.make(plan, Wish(str(where), **wish))


def refused(workspace: Workspace, **how: Any) -> str:
    with pytest.raises(WorkspaceDirty) as caught:
        worktrees.remove(workspace, **{"force": False, **how})
    assert Path(workspace.directory).exists()
    return str(caught.value)


def refusal(workspace: Workspace, **how: Any) -> str:
    """Why it is refused, without saying of which workspace."""
    return refused(workspace, **how).removeprefix(f"{workspace.name} has ")


def out_of_sight(workspace: Workspace) -> str:
    """What is said of one whose directory is not there."""
    return (
        f"{workspace.directory} is not there, and nobody can tell what work is in it: put it back, mount it, "
        "or run git worktree repair in it where it is now; --force forgets it"
    )


def removed(workspace: Workspace) -> bool:
    assert worktrees.remove(workspace, force=False) == Removed([], [])
    return not Path(workspace.directory).exists()


def branches(where: Path) -> set[str]:
    return set(git(where, "branch", "--format=%(refname:short)").split())


def exclude(repo: Path, *patterns: str) -> None:
    (repo / ".git/info/exclude").write_text("".join(f"{pattern}\n" for pattern in patterns))


def objects(where: Path) -> set[str]:
    """What git would not throw away, now or at its next clearing up."""
    return set(git(where, "rev-list", "--all", "--reflog").split())


def with_submodule(repo: Path, name: str = "lib", url: str = "") -> Path:
    """The library that it is of."""
    library = repository(repo.parent / "library", files=2)
    git(repo, *ALLOW, "submodule", "add", "-q", url or str(library), name)
    git(repo, "commit", "-q", "-m", "with a submodule")
    return library


def update(made: Workspace, name: str = "lib", *how: str) -> Path:
    git(made.directory, *ALLOW, "submodule", "update", "-q", "--init", *how)
    return Path(made.directory) / name


def released_on_no_branch(upstream: Path) -> None:
    git(upstream, "checkout", "-q", "--detach")
    commit(upstream, "release")
    git(upstream, "tag", "-a", "-m", "a release", "v1")
    git(upstream, "checkout", "-q", "main")


def just_before_it_is_moved(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    moved = aside.moved

    def late(*arguments: Any) -> AbstractContextManager[Path]:
        work()
        return moved(*arguments)

    monkeypatch.setattr(aside, "moved", late)
