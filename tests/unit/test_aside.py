"""A worktree that is removed is moved aside first: found by nobody, put back or deleted whatever happens."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import commit, git, repository

from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.git import git as real
from amuxd.records import Workspace
from amuxd.workspaces import aside, hidden, planning, standing, worktrees
from amuxd.workspaces.planning import Wish
from amuxd.workspaces.worktrees import Removed

ALLOW = ("-c", "protocol.file.allow=always")


class Crash(BaseException):
    """amuxd is killed at this point."""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    (repo / ".git/info/exclude").write_text("*.env\n")
    library = repository(tmp_path / "library")
    git(repo, *ALLOW, "submodule", "add", "-q", str(library), "deep/lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    return repo


@pytest.fixture(params=[False, True], ids=["plain", "submodule"])
def made(repo: Path, request: pytest.FixtureRequest) -> Workspace:
    wish = Wish(str(repo))
    planned = planning.planned(Workspace("abc123", "fix", "", 1), wish, repo.parent / "trees")
    made = worktrees.make(planned, wish)
    if request.param:
        git(made.directory, *ALLOW, "submodule", "update", "-q", "--init")
    return made


def inside(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in Path(workspace.directory).parent.iterdir())


def is_as_it_was(workspace: Workspace) -> bool:
    """To git, in its submodules too, and nothing of the removal is left."""
    listed = git(workspace.repository, "worktree", "list", "--porcelain")
    whole = git(workspace.directory, "status", "--porcelain", "--ignore-submodules=none")
    below = git(workspace.directory, "submodule", "foreach", "-q", "git status --porcelain")
    found = standing.worktrees(workspace.repository)
    is_known = workspace.directory in found and "locked" not in listed and "prunable" not in listed
    return is_known and not (whole or below) and inside(workspace) == ["fix"]


def at(monkeypatch: pytest.MonkeyPatch, moment: str, work: Callable[[], object]) -> None:
    """Just after it was moved, or when git is told that it is to go."""
    if moment == "moved":
        moved = aside.moved

        @contextlib.contextmanager
        def then(*arguments: Any) -> Iterator[Path]:
            with moved(*arguments) as there:
                work()
                yield there

        monkeypatch.setattr(aside, "moved", then)
    else:

        def first(directory: object, *arguments: str, **options: Any) -> str:
            if arguments[:2] == ("worktree", "remove"):
                work()
            return real(directory, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(aside, "git", first)


def test_after_the_last_look_nobody_finds_it(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Path(made.directory) / "late.env"
    refused: list[OSError] = []

    def come_late() -> None:
        try:
            late.write_text("work")
        except FileNotFoundError as error:
            refused.append(error)

    at(monkeypatch, "forgotten", come_late)
    assert worktrees.remove(made, force=False) == Removed([], [])
    assert refused
    assert inside(made) == []


def test_who_works_in_it_meanwhile_keeps_it(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process whose working directory it is, and while somebody clears away what git misses."""

    def work() -> None:
        Path("late.env").write_text("work")
        git(made.repository, "worktree", "prune")

    at(monkeypatch, "moved", work)
    told = r"fix has 1 file that git ignores \(late.env\)"
    with contextlib.chdir(made.directory), pytest.raises(WorkspaceDirty, match=told):
        worktrees.remove(made, force=False)
    assert (Path(made.directory) / "late.env").read_text() == "work"
    assert is_as_it_was(made)


def test_a_worktree_that_is_made_in_it_meanwhile_keeps_it(
    made: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = f"{made.directory}/nested"
    look = worktrees.look

    def looking(workspace: Workspace, there: str = "") -> Any:
        found = look(workspace, there)
        if not there:
            git(made.repository, "worktree", "add", "-q", "--detach", nested)
        return found

    monkeypatch.setattr(worktrees, "look", looking)
    with pytest.raises(WorkspaceDirty, match=f"mount in it, {nested}"):
        worktrees.remove(made, force=True)
    assert git(nested, "status", "--porcelain") == ""
    assert inside(made) == ["fix"]


def test_by_force_what_is_named_is_what_is_deleted(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, "moved", lambda: (aside.place_of(made) / "late").write_text("work"))
    assert worktrees.remove(made, force=True).lost == ["1 untracked file (late)"]
    assert inside(made) == []


@pytest.mark.parametrize("moment", ["moved", "forgotten"])
def test_a_crash(made: Workspace, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    def crash() -> None:
        raise Crash

    at(monkeypatch, moment, crash)
    with monkeypatch.context() as killed:
        killed.setattr(aside, "_put_back", lambda *_: None)
        with pytest.raises(Crash):
            worktrees.remove(made, force=False)
    monkeypatch.undo()
    assert not Path(made.directory).exists()
    assert aside.seen_in(str(Path(made.directory).parent), [made]) == {"abc123": True}
    aside.recover(made)
    if moment == "moved":
        assert is_as_it_was(made)
    seen = {"abc123": False} if moment == "moved" else {}
    assert aside.seen_in(str(Path(made.directory).parent), [made]) == seen
    assert worktrees.remove(made, force=False) == Removed([], [])
    assert inside(made) == []
    assert git(made.repository, "branch", "--list", "fix") == ""


def test_a_crash_after_it_was_put_back(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is left, and is amux's own."""
    git(made.repository, "worktree", "lock", "--reason", hidden.BEING_REMOVED, made.directory)
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_one_that_cannot_be_moved_stays(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", refuse)
    for force in (False, True):
        with pytest.raises(WorkspaceDirty, match="fix is not removed: Device or resource busy"):
            worktrees.remove(made, force)
    assert is_as_it_was(made)


def test_one_that_git_does_not_forget_is_put_back(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise GitFailed([], 128, "no space left")

    at(monkeypatch, "forgotten", refuse)
    with pytest.raises(WorkspaceDirty, match="fix: no space left"):
        worktrees.remove(made, force=False)
    assert is_as_it_was(made)


def test_another_in_its_place_is_not_written_over(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, there = Path(made.directory), aside.place_of(made)

    def work() -> None:
        (there / "late.env").write_text("work")
        directory.mkdir()
        (directory / "other").write_text("theirs")

    at(monkeypatch, "moved", work)
    for force in (False, True):
        with pytest.raises(WorkspaceDirty, match=f"made anew; what was in it is in {there}"):
            worktrees.remove(made, force)
    assert (directory / "other").read_text() == "theirs"
    shutil.rmtree(directory)
    monkeypatch.undo()
    with pytest.raises(WorkspaceDirty, match=r"late\.env"):
        worktrees.remove(made, force=False)
    assert is_as_it_was(made)


def test_a_repository_that_cannot_be_asked_is_waited_for(made: Workspace) -> None:
    there, hidden = aside.place_of(made), Path(f"{made.repository}.away")
    Path(made.directory).rename(there)
    Path(made.repository).rename(hidden)
    with pytest.raises(WorkspaceDirty, match=f"is in {there} still"):
        aside.recover(made)
    hidden.rename(made.repository)
    aside.recover(made)
    assert is_as_it_was(made)


def test_what_cannot_be_deleted_is_told(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    (told,) = worktrees.remove(made, force=False).kept
    (left,) = inside(made)
    assert told == f"{Path(made.directory).parent / left}, of which something cannot be deleted"


def test_a_lock_of_somebody_else_stays(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    git(made.repository, "worktree", "lock", "--reason", "on a stick", made.directory)
    at(monkeypatch, "moved", lambda: commit(aside.place_of(made), "late"))
    look = worktrees.look

    def refuse(workspace: Workspace, there: str = "") -> Any:
        if there:
            raise GitFailed([], 128, "not now")
        return look(workspace)

    monkeypatch.setattr(worktrees, "look", refuse)
    with pytest.raises(WorkspaceDirty, match="not now"):
        worktrees.remove(made, force=True)
    assert "locked on a stick" in git(made.repository, "worktree", "list", "--porcelain")


@pytest.mark.parametrize("made", [True], indirect=True, ids=["submodule"])
@pytest.mark.parametrize("absolute", [False, True])
def test_wherever_a_submodule_says_where_its_files_are(made: Workspace, absolute: bool) -> None:
    """git's sparse checkout writes that into another file."""
    own = hidden.git_directory(Path(made.directory))
    submodule = own / "modules/deep/lib"
    place = f"{made.directory}/deep/lib"
    named = place if absolute else os.path.relpath(place, submodule)
    git(submodule.parent, "config", "--file", str(submodule / "config"), "--unset", "core.worktree")
    git(submodule.parent, "config", "--file", str(submodule / "config"), "extensions.worktreeConfig", "true")
    git(submodule.parent, "config", "--file", str(submodule / "config.worktree"), "core.worktree", named)
    before = (submodule / "config.worktree").read_text()
    (Path(made.directory) / "deep/lib/new").write_text("work")
    with contextlib.suppress(Crash), aside.moved(made, own, force=False) as there:
        assert git(there / "deep/lib", "status", "--porcelain") == "?? new"
        raise Crash
    assert (submodule / "config.worktree").read_text() == before
    assert git(made.directory, "status", "--porcelain") == "M deep/lib"
