"""A worktree that is removed is moved aside first, where nobody finds it by its path any more."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed, git
from amuxd.records import Workspace
from amuxd.workspaces.hidden import BEING_REMOVED, lock_of
from amuxd.workspaces.standing import git_directory_of, submodule_directories, worktrees

# In the directory that it was in, so that nothing has to be copied, and relative links out of it lead on.
_ASIDE = ".amux-removing-"
# It was looked at there, and has nothing in it that is to be kept.
_DOOMED = ".amux-removed-"


def place_of(workspace: Workspace) -> Path:
    return Path(workspace.directory).with_name(f"{_ASIDE}{workspace.id}")


def _doomed(workspace: Workspace) -> Path:
    return Path(workspace.directory).with_name(f"{_DOOMED}{workspace.id}")


def refuse_immovable(workspace: Workspace, own: Path | None) -> None:
    """Before anything is: git empties what it keeps of a worktree before it finds out that it may not."""
    places = [Path(workspace.directory).parent]
    if own is not None:
        places += [own.parent, *(Path(at) for at, _, _ in os.walk(own))]
    for place in places:
        if not os.access(place, os.W_OK | os.X_OK):
            raise WorkspaceDirty(f"{workspace.directory} is not removed: {place} cannot be written to")


@contextlib.contextmanager
def moved(workspace: Workspace, own: Path, force: bool) -> Iterator[Path]:
    """Where it is meanwhile. It is put back unless all goes well."""
    directory, there = Path(workspace.directory), place_of(workspace)
    _keep_known(workspace, own, force)
    try:
        directory.rename(there)
        _point_submodules(own, directory, there)
        yield there
    except BaseException:
        _put_back(workspace, own)
        raise


def doom(workspace: Workspace) -> None:
    """From now on it is deleted, whatever becomes of amuxd."""
    place_of(workspace).rename(_doomed(workspace))


def forget(workspace: Workspace) -> None:
    """git knows no more of one whose directory is not there."""
    if os.path.lexists(workspace.directory):
        # git would delete it.
        raise WorkspaceDirty(f"{workspace.directory} is there again")
    if workspace.directory in worktrees(workspace.repository):
        # Twice: also if it is locked.
        git(workspace.repository, "worktree", "remove", "--force", "--force", workspace.directory)


def delete(workspace: Workspace) -> list[str]:
    """What is left of it all the same."""
    doomed = _doomed(workspace)
    shutil.rmtree(doomed, ignore_errors=True)
    return [f"{doomed}, of which something cannot be deleted"] if os.path.lexists(doomed) else []


def seen_in(parent: str, workspaces: Sequence[Workspace]) -> dict[str, bool]:
    """The ids of those that are there, and whether an amuxd was removing it when it ended."""
    try:
        names = set(os.listdir(parent))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return {}
    seen = {}
    for workspace in workspaces:
        was_being_removed = not names.isdisjoint((place_of(workspace).name, _doomed(workspace).name))
        if was_being_removed or Path(workspace.directory).name in names:
            seen[workspace.id] = was_being_removed
    return seen


def recover(workspace: Workspace) -> None:
    """After a crash in a removal: it is back, or what was to be deleted is."""
    if os.path.lexists(_doomed(workspace)):
        if os.path.lexists(workspace.directory):
            _unlock(workspace)
        else:
            # Else nobody could tell what was in it; where git is out of reach it takes force then.
            with contextlib.suppress(GitFailed):
                forget(workspace)
        delete(workspace)
    there = place_of(workspace)
    if os.path.lexists(there):
        try:
            own = git_directory_of(workspace.directory, workspace.repository)
            if own is None:
                raise GitFailed([], -1, f"{workspace.repository} knows of no such worktree")
            _put_back(workspace, own)
        except (GitFailed, OSError) as error:
            raise WorkspaceDirty(f"what was in {workspace.directory} is in {there} still: {error}") from error


def _keep_known(workspace: Workspace, own: Path, force: bool) -> None:
    """Else whoever prunes what is missing takes its index and its submodules away meanwhile."""
    was_locked = lock_of(own) is not None
    try:
        git(workspace.repository, "worktree", "lock", "--reason", BEING_REMOVED, workspace.directory)
    except GitFailed as error:
        if not was_locked and lock_of(own) == "":
            # The disk was full before the reason was written.
            _unlock(workspace)
        if not force and lock_of(own) != BEING_REMOVED:
            raise WorkspaceDirty(f"git does not remove {workspace.directory}: {error}") from error


def _put_back(workspace: Workspace, own: Path) -> None:
    directory, there = Path(workspace.directory), place_of(workspace)
    for place in (there, _doomed(workspace)):
        if os.path.lexists(place):
            _point_submodules(own, there, directory)
            try:
                place.rename(directory)
            except OSError as error:
                raise WorkspaceDirty(
                    f"{directory} has been made anew; what was in it is in {place}: {error.strerror}"
                ) from error
    if lock_of(own) == BEING_REMOVED:
        _unlock(workspace)


def _unlock(workspace: Workspace) -> None:
    # A lock that stays is no hindrance to amux.
    with contextlib.suppress(GitFailed):
        git(workspace.repository, "worktree", "unlock", workspace.directory)


def _point_submodules(own: Path, before: Path, after: Path) -> None:
    """git keeps the place of each submodule's files beside its commits."""
    old, new = (
        Path(os.path.realpath(before.parent), before.name),
        Path(os.path.realpath(after.parent), after.name),
    )
    for submodule in submodule_directories(own / "modules"):
        for config in (submodule / "config", submodule / "config.worktree"):
            value = _worktree_in(config)
            target = Path(os.path.realpath(submodule / value))
            if value and target.is_relative_to(old):
                goal = new / target.relative_to(old)
                named = (
                    str(goal)
                    if Path(value).is_absolute()
                    else os.path.relpath(goal, os.path.realpath(submodule))
                )
                git(submodule.parent, "config", "--file", str(config), "core.worktree", named)


def _worktree_in(config: Path) -> str:
    if not config.is_file():
        return ""
    try:
        return git(config.parent.parent, "config", "--file", str(config), "core.worktree").removesuffix("\n")
    except GitFailed as error:
        if error.code != 1:
            raise
        return ""
