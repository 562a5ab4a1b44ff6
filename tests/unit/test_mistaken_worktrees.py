"""What git finds in the directory of a worktree need not be that worktree's."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import commit, git
from worktree_work import (
    ALLOW,
    add,
    exclude,
    objects,
    refusal,
    refused,
    repo,  # noqa: F401
    update,
    with_submodule,
)

from amuxd.errors import WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import aside, planning, worktrees


def without_its_mark(_outer: Workspace, made: Workspace) -> None:
    (Path(made.directory) / ".git").unlink()


def with_the_mark_of_another(outer: Workspace, made: Workspace) -> None:
    shutil.copy2(Path(outer.directory) / ".git", Path(made.directory) / ".git")


def with_a_mark_that_leads_nowhere(_outer: Workspace, made: Workspace) -> None:
    (Path(made.directory) / ".git").write_text("gitdir: /nonexistent\n")


@pytest.mark.parametrize(
    "mistaken", [without_its_mark, with_the_mark_of_another, with_a_mark_that_leads_nowhere]
)
def test_one_that_lies_in_another_and_is_taken_for_it(
    repo: Path, mistaken: Callable[[Workspace, Workspace], None]
) -> None:
    exclude(repo, "/inner")
    outer = add(repo, "outer", "bbb222")
    plan = planning.planned(
        Workspace("abc123", "fix", "", 1),
        planning.Wish(str(repo)),
        Path(outer.directory) / "inner",
    )
    made = worktrees.make(plan, planning.Wish(str(repo)))
    directory = Path(made.directory)
    git(directory, "checkout", "-q", "--detach")
    commit(directory, "file1")
    (directory / "file0").write_text("changed")
    (directory / "new").write_text("x")
    mistaken(outer, made)
    before = objects(repo)
    assert "git cannot tell what is in" in refused(made)
    kept = worktrees.remove(made, force=True).kept
    assert kept[0].startswith(f"{made.directory} and what git keeps for it, for git cannot tell ")
    assert (directory / "file0").read_text() == "changed"
    assert before <= objects(repo)


def lead_elsewhere(repo: Path, directory: Path) -> None:
    """To what is as git knows it, so that nothing there is changed."""
    elsewhere = repo.parent / "elsewhere"
    shutil.copytree(directory, elsewhere, ignore=shutil.ignore_patterns(".git"))
    git(repo, "config", "extensions.worktreeConfig", "true")
    git(directory, "config", "--worktree", "core.worktree", str(elsewhere))
    assert git(directory, "status", "--porcelain") == ""


def test_one_whose_settings_lead_git_elsewhere(repo: Path) -> None:
    made = add(repo)
    directory = Path(made.directory)
    lead_elsewhere(repo, directory)
    (directory / "file0").write_text("changed")
    (directory / "new").write_text("x")
    assert refused(made).endswith(f"its files are not in {directory} (core.worktree)")
    kept = worktrees.remove(made, force=True).kept
    assert kept[0].startswith(f"{directory} and what git keeps for it, for git cannot tell what is in it")
    assert (directory / "file0").read_text() == "changed"
    git(directory, "config", "--worktree", "--unset", "core.worktree")
    assert refused(made) == "fix has 1 file with uncommitted changes (file0) and 1 untracked file (new)"


def test_a_submodule_whose_settings_lead_git_elsewhere(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    lead_elsewhere(repo, inner)
    (inner / "new").write_text("x")
    assert refused(made).endswith(f"its files are not in {inner} (core.worktree)")


def test_its_mark_goes_after_the_look(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add(repo)
    work = Path(made.directory) / "new"
    moved = aside.moved

    def late(workspace: Workspace, own: Path, force: bool) -> object:
        work.write_text("x")
        (Path(made.directory) / ".git").unlink()
        return moved(workspace, own, force)

    monkeypatch.setattr(aside, "moved", late)
    assert "worktree repair" in refused(made)
    assert work.read_text() == "x"


@pytest.mark.parametrize("force", [False, True])
def test_a_submodule_that_is_another_ones_worktree(repo: Path, force: bool) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = Path(made.directory) / "lib"
    git(repo / "lib", "worktree", "add", "-q", "--detach", "-f", str(inner))
    tip = commit(inner, "more")
    git(made.directory, "commit", "-q", "-a", "-m", "with more of it")
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert refusal(made, force=force).startswith(f"another repository, worktree or mount in it, {inner}")
    assert git(inner, "rev-parse", "HEAD") == tip


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_worktree_of_its_submodule(repo: Path, force: bool, is_moved: bool) -> None:
    with_submodule(repo)
    made = add(repo)
    elsewhere = repo.parent / "elsewhere"
    git(update(made), *ALLOW, "worktree", "add", "-q", "--detach", str(elsewhere))
    (elsewhere / "staged").write_text("x")
    git(elsewhere, "add", "staged")
    told = f"a worktree of a submodule in it, {elsewhere}"
    if is_moved:
        Path(made.directory).rename(repo.parent / "moved")
        with pytest.raises(WorkspaceDirty, match=told):
            worktrees.remove(made, force=force)
    else:
        assert told in refusal(made, force=force)
    assert git(elsewhere, "status", "--porcelain") == "A  staged"
