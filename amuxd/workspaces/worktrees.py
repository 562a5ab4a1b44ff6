"""Worktrees made and taken away: git does it, and nothing goes that is nowhere else."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from amuxd.errors import Internal, InvalidArgument, WorkspaceDirty
from amuxd.git import CHECKOUT, GitFailed, git, programs_in
from amuxd.helpers import INHERITED, Stopping
from amuxd.records import Workspace
from amuxd.workspaces import aside, branches, copies, directories, half_made, keeping, standing
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.hidden import told_as_by_git
from amuxd.workspaces.losses import lost, never_lost, thrown_away, without_filters
from amuxd.workspaces.planning import Wish
from amuxd.workspaces.standing import Standing, worktrees

_WORKERS = "checkout.workers"
# What git says of a branch that another worktree has; where it says anything else nothing was asked wrongly.
_IN_USE = re.compile("is already (checked out|used by worktree) at")
# git config's exit code; any other is that of a failure.
_NOT_SET = 1


@dataclass(frozen=True)
class Removed:
    """What became of what was in it: thrown away, and where the commits can be had back."""

    lost: list[str]
    kept: list[str]


class NotTakenBack(Internal):
    """It could not be made, and what was made of it is there all the same."""


@dataclass(frozen=True)
class Stays:
    """What a removal by force leaves as it is, and why."""

    told: str


def make(workspace: Workspace, wish: Wish) -> Workspace:
    """What was planned; where it cannot be made nothing is left of it, or NotTakenBack says so."""
    directory = Path(workspace.directory)
    left = ""

    def undo() -> None:
        nonlocal left
        try:
            _undo_worktree(workspace)
        except GitFailed as error:
            left = f"; {directory} is left, for it could not be taken back ({error})"

    def undo_branch() -> None:
        # It says who made what is left.
        if not left:
            branches.delete(workspace, workspace.branch, force=False)

    try:
        with contextlib.ExitStack() as undoing:
            _make_parents(directory, wish.umask, undoing)
            if workspace.made_branch:
                _make_branch(workspace, wish.umask)
                undoing.callback(undo_branch)
                _follow_remote(workspace, wish.umask)
            # Whatever lies there is somebody else's, and git would take one that is empty.
            _make_directory(directory, wish.umask)
            undoing.callback(undo)
            hook_failure = _check_out(workspace, wish)
            source = _source(wish.repository) if wish.copy else None
            copied = copies.bring(source, directory, wish.copy) if source else {}
            undoing.pop_all()
    except (GitFailed, Stopping, OSError) as error:
        why = f"{workspace.name} could not be made: {_why(error)}{left}"
        if left:
            raise NotTakenBack(why) from error
        is_taken = isinstance(error, FileExistsError) or _IN_USE.search(why)
        raise (InvalidArgument if is_taken else Internal)(why) from error
    copied_from = str(source) if copied else ""
    return replace(
        workspace, copied=copied, copied_from=copied_from, hook_failure=hook_failure, being_made=False
    )


def _why(error: Exception) -> str:
    if isinstance(error, FileExistsError):
        return f"{error.filename} is there"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _check_out(workspace: Workspace, wish: Wish) -> str:
    """Why its post-checkout hook failed: git runs that last, and the worktree stays all the same."""
    try:
        git(
            workspace.repository,
            *half_made.words_to_git(workspace),
            deadline=CHECKOUT,
            environment={**wish.environment, **_all_processors(workspace.repository, wish.environment)},
            umask=wish.umask,
            hooks=True,
        )
    except GitFailed as error:
        is_known = workspace.directory in worktrees(workspace.repository)
        if not is_known or half_made.is_being_checked_out(Path(workspace.directory)):
            raise
        how = f"failed with code {error.code}" if error.code > 0 else "was ended"
        return f"its post-checkout hook {how}{f': {error.said}' if error.said else ''}"
    return ""


def _all_processors(repository: str, environment: Mapping[str, str]) -> dict[str, str]:
    """git itself takes one, unless its user, whose environment this is, has said otherwise."""
    try:
        git(repository, "config", _WORKERS, environment=environment)
    except GitFailed as error:
        if error.code == _NOT_SET:
            return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": _WORKERS, "GIT_CONFIG_VALUE_0": "0"}
    return {}


def _make_parents(directory: Path, umask: int, undoing: contextlib.ExitStack) -> None:
    try:
        for missing in [place for place in directory.parents if not place.exists()][::-1]:
            with contextlib.suppress(FileExistsError):
                _make_directory(missing, umask)
                undoing.callback(_remove_if_empty, missing)
    except OSError as error:
        raise Internal(f"{directory.parent} cannot be made: {error.strerror}") from error


def _make_directory(directory: Path, umask: int) -> None:
    directory.mkdir()
    if umask != INHERITED and not _hands_down(directory):
        mode = stat.S_IMODE(directory.stat().st_mode)
        directory.chmod(mode & ~0o777 | 0o777 & ~umask)


def _hands_down(directory: Path) -> bool:
    """Whether its parent's default ACL, and no umask, says who may do what in it."""
    try:
        return bool(os.getxattr(directory, "system.posix_acl_default"))
    except OSError:
        return False


def _make_branch(workspace: Workspace, umask: int = INHERITED) -> None:
    """Fails where there is one by now; its reflog says who made it, also after a crash."""
    ref, commit, must_not_exist = f"refs/heads/{workspace.branch}", f"{workspace.base}^{{commit}}", ""
    mark = ["--create-reflog", "-m", branches.mark(workspace)]
    git(workspace.repository, "update-ref", *mark, ref, commit, must_not_exist, umask=umask)


def _follow_remote(workspace: Workspace, umask: int) -> None:
    if workspace.base.startswith("refs/remotes/"):
        upstream = f"--set-upstream-to={workspace.base}"
        git(workspace.repository, "branch", "--quiet", upstream, workspace.branch, umask=umask)


def _undo_worktree(workspace: Workspace) -> None:
    """What took long to write takes long to delete."""
    directory = Path(workspace.directory)
    if workspace.directory in worktrees(workspace.repository):
        words = ["worktree", "remove", "--force", "--force", workspace.directory]
        git(workspace.repository, *words, deadline=CHECKOUT)
    # git had not begun.
    _remove_if_empty(directory)
    if (directory / ".git").is_file():
        # git knows nothing of it from where it could not delete a file on.
        raise GitFailed([], -1, f"something in {directory} cannot be deleted")


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def recovered(workspace: Workspace) -> bool:
    """A crash came while it was made, whenever that was: it is undone, or kept if there is work in it."""
    if half_made.is_git_at_work(workspace):
        raise WorkspaceDirty("git is still making it")
    if workspace.made_branch and not branches.has_made(workspace):
        # The branch comes first: what bears these names is not of amux's making.
        return False
    directory = Path(workspace.directory)
    if workspace.directory in worktrees(workspace.repository):
        if not directory.exists():
            # It was made before git knew of it, and may be moved or unmounted since.
            raise WorkspaceDirty(f"{directory} is not there, and git lists it as a worktree")
        if not half_made.is_half_made(directory, workspace):
            return _is_worked_in(workspace)
    # What is on its branch and nowhere else stays all the same.
    _undo_worktree(workspace)
    branches.delete(workspace, branches.made(workspace), force=False)
    return False


def _is_worked_in(workspace: Workspace) -> bool:
    """Also where that is a directory which git ignores; what nobody has touched is taken away."""
    if thrown_away(look(workspace)):
        return True
    try:
        remove(workspace, force=False)
    except WorkspaceDirty:
        return True
    return False


@told_as_by_git()
def look(workspace: Workspace, there: str = "") -> Standing:
    """How it stands, perhaps moved; copies that nobody has changed since are nobody's work."""
    place, repository = there or workspace.directory, workspace.repository
    directory = Path(place)
    presence = directories.look(place, None)
    if presence is Presence.UNKNOWN:
        raise GitFailed([], -1, f"{directory} is out of reach")
    own, made = standing.git_directory_of(workspace.directory, repository), branches.made(workspace)
    if presence is Presence.GONE:
        return standing.examine_from_afar(place, own, repository, made)
    found = standing.examine(directory, own, repository, made, programs_in(workspace.search_path))
    return replace(found, files=copies.left_out(workspace, directory, found.files))


def remove(workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
    """Raises WorkspaceDirty where that would lose something, unless it is forced."""
    removed = take_away(workspace, force, with_ignored)
    return replace(removed, kept=[*removed.kept, *aside.delete(workspace)])


def take_away(workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
    """As remove(), but that its files are deleted later, by aside.delete()."""
    aside.recover(workspace)
    found = _looked_at(workspace, force, with_ignored)
    if isinstance(found, Stays):
        return Removed([], [found.told])
    try:
        if found.is_here and found.git_directory:
            with aside.moved(workspace, found.git_directory, force) as there:
                found = _look_aside(workspace, there)
                _refuse_losses(workspace, found, force, with_ignored)
                kept = keeping.keep(workspace, found)
                aside.doom(workspace)
                aside.forget(workspace)
        else:
            kept = keeping.keep(workspace, found)
            aside.forget(workspace)
        kept += _delete_branch(workspace, found.made_branch, force)
    except GitFailed as error:
        raise _not_removed(workspace, error) from error
    except OSError as error:
        raise WorkspaceDirty(f"{workspace.directory} is not removed: {error.strerror}") from error
    return Removed(thrown_away(found), kept)


def _delete_branch(workspace: Workspace, branch: str, force: bool) -> list[str]:
    """The worktree is gone by then: what goes wrong here keeps nothing of it."""
    try:
        return branches.delete(workspace, branch, force)
    except GitFailed as error:
        return [f"branch {workspace.branch} ({error})"]


def would_lose(workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
    """What remove() would throw away, or leave where it is, or what it would raise."""
    found = _looked_at(workspace, force, with_ignored)
    return Removed([], [found.told]) if isinstance(found, Stays) else Removed(thrown_away(found), [])


def keep_ahead(workspace: Workspace, force: bool, with_ignored: bool = False) -> None:
    """Raises what remove() would, before anything is done for it that cannot be taken back."""
    found = _looked_at(workspace, force, with_ignored)
    if isinstance(found, Standing):
        try:
            with told_as_by_git():
                keeping.keep(workspace, found)
        except GitFailed as error:
            raise _not_removed(workspace, error) from error


def _not_removed(workspace: Workspace, error: GitFailed) -> WorkspaceDirty:
    return WorkspaceDirty(f"git does not remove {workspace.directory}: {error}")


def _looked_at(workspace: Workspace, force: bool, with_ignored: bool) -> Standing | Stays:
    """How it stands before it is removed; what git knows too little of stays, and is forgotten by force."""
    directory = workspace.directory
    presence = directories.look(directory, None)
    if os.path.islink(directory):  # noqa: PTH114
        link = f"a link to {Path(directory).readlink()}"
        if force:
            return Stays(f"{directory} itself, which is {link}, and what git keeps for it")
        raise WorkspaceDirty(f"{directory} is {link}: put the worktree itself there")
    try:
        if presence is Presence.PRESENT and directory not in worktrees(workspace.repository):
            # It says so where git lists none that it cannot read.
            standing.git_directory_of(directory, workspace.repository)
            if force:
                return Stays(f"{directory} itself, which git does not list")
            raise WorkspaceDirty(
                f"{directory} is there, and git lists no such worktree of {workspace.repository}: "
                f"{standing.repairing(workspace.repository, directory)}, or move it away"
            )
        found = look(workspace)
    except GitFailed as error:
        if not force:
            way_out = _way_out(workspace) if error.code > 0 else ""
            raise WorkspaceDirty(f"git cannot tell what is in {directory}: {error}{way_out}") from error
        if presence is Presence.GONE:
            return Stays(f"what git keeps for {directory}, for it cannot tell what that is ({error})")
        return Stays(f"{directory} and what git keeps for it, for git cannot tell what is in it ({error})")
    _refuse_losses(workspace, found, force, with_ignored)
    if found.is_here:
        aside.refuse_immovable(workspace, found.git_directory)
    return found


def _way_out(workspace: Workspace) -> str:
    repository = workspace.repository
    if os.path.lexists(repository):
        return ""
    return (
        f"; put {repository} back; --force forgets the workspace, and leaves {workspace.directory} as it is"
    )


def _refuse_losses(workspace: Workspace, found: Standing, force: bool, with_ignored: bool) -> None:
    losses = lost(found, with_ignored=not with_ignored)
    if not force and (losses or found.out_of_sight):
        raise WorkspaceDirty("; ".join(_reasons(workspace, found, losses)))
    if stays := never_lost(found):
        raise WorkspaceDirty(f"{workspace.name} has {_listed(stays)}: take that away first")


def _reasons(workspace: Workspace, found: Standing, losses: list[str]) -> Iterator[str]:
    if losses:
        yield f"{workspace.name} has {_listed(losses)}"
    if found.out_of_sight:
        yield (
            f"{workspace.directory} is not there, and nobody can tell what work is in it: put it back, "
            "mount it, or run git worktree repair in it where it is now; --force forgets it"
        )
    elif told := without_filters(found.files):
        yield told
    elif not lost(found, with_ignored=False):
        yield "--ignored takes these along"


def _look_aside(workspace: Workspace, there: Path) -> Standing:
    """Where nobody else comes by its path any more; git lists under that what lies in it."""
    if there.is_symlink():
        raise GitFailed([], -1, f"it is a link to {there.readlink()}")
    found = look(workspace, str(there))
    directory = Path(workspace.directory)
    nested = {str(directory / Path(path).relative_to(there)) for path in found.nested}
    others = {path for path in worktrees(workspace.repository) if path != workspace.directory}
    return replace(found, nested=sorted(nested | {p for p in others if Path(p).is_relative_to(directory)}))


def _source(repository: str) -> Path | None:
    """Where the caller's own files are; a bare repository has none."""
    try:
        return Path(git(repository, "rev-parse", "--show-toplevel").removesuffix("\n"))
    except GitFailed:
        return None


def _listed(losses: list[str]) -> str:
    return losses[0] if len(losses) == 1 else f"{', '.join(losses[:-1])} and {losses[-1]}"
