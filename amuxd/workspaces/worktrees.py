"""Worktrees made and taken away: git does it, and nothing goes that is nowhere else."""

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from amuxd.errors import InvalidArgument, WorkspaceDirty
from amuxd.git import INHERITED, LONG, STRICTLY, GitFailed, git, programs_in
from amuxd.records import Workspace
from amuxd.workspaces import copies, directories, hidden, standing
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.standing import Standing, has_ref, lost, submodule_directories, worktrees

KEPT = "refs/amux/removed"
_ABANDONED = "refs/amux/abandoned"
# What git itself writes into the lock of a worktree that it is just making.
_BEING_CHECKED_OUT = "initializing"
_LONGEST = 180


@dataclass(frozen=True)
class Wish:
    """What the caller wants a worktree of."""

    repository: str
    branch: str = ""
    base: str = ""
    copy: Sequence[str] = ()
    # For the programs that git calls to check files out.
    environment: Mapping[str, str] = field(default_factory=dict)
    # The caller's, for whom these files are.
    umask: int = INHERITED


@dataclass(frozen=True)
class Removed:
    """What became of what was in it: thrown away, and where the commits can be had back."""

    lost: list[str]
    kept: list[str]


def common_directory(repository: str) -> Path:
    """The same for all that is one repository to git: its subdirectories, its worktrees, links to it."""
    return Path(_asked(repository, "rev-parse", "--path-format=absolute", "--git-common-dir"))


def planned(workspace: Workspace, wish: Wish, parent: Path, common: Path | None = None) -> Workspace:
    """What is going to be made, or InvalidArgument before anything is."""
    common = common or common_directory(wish.repository)
    repository = common.parent if common.name == ".git" else common
    branch = wish.branch or _branch_for(workspace)
    _asked(wish.repository, "check-ref-format", "--branch", branch)
    exists, remotes = _refs_of(str(repository), branch)
    if exists and not wish.branch:
        raise InvalidArgument(
            f"there is a branch {branch} already: --branch {branch} takes it, --branch NEW makes another"
        )
    if exists and wish.base:
        raise InvalidArgument(f"there is a branch {branch} already, and it has its own base")
    # Where a branch of that name is on a remote, it is that one that is wanted.
    base = wish.base or (remotes[0] if len(remotes) == 1 and not exists else "HEAD")
    below = parent / repository.name.removesuffix(".git")
    return replace(
        workspace,
        directory=str(_place(below, workspace, worktrees(str(repository)))),
        repository=str(repository),
        branch=branch,
        made_branch=not exists,
        base=_lasting(wish.repository, base),
        being_made=True,
    )


def make(workspace: Workspace, wish: Wish) -> Workspace:
    """What was planned; where it cannot be made nothing is left of it."""
    directory = Path(workspace.directory)
    try:
        for missing in [place for place in directory.parents if not place.exists()][::-1]:
            with contextlib.suppress(FileExistsError):
                _make_directory(missing, wish.umask)
    except OSError as error:
        raise InvalidArgument(f"{directory.parent} cannot be made: {error.strerror}") from error
    try:
        with contextlib.ExitStack() as undoing:
            if workspace.made_branch:
                _make_branch(workspace, wish.umask)
                undoing.callback(_delete_branch, workspace)
                _follow_remote(workspace, wish.umask)
            # Whatever lies there is somebody else's, and git would take one that is empty.
            _make_directory(directory, wish.umask)
            undoing.callback(_undo_worktree, workspace)
            words = ["worktree", "add", workspace.directory, workspace.branch]
            git(
                workspace.repository,
                *words,
                deadline=LONG,
                environment=wish.environment,
                umask=wish.umask,
            )
            copied = copies.bring(_source(wish.repository), directory, wish.copy) if wish.copy else {}
            undoing.pop_all()
    except FileExistsError as error:
        raise InvalidArgument(f"{workspace.name} could not be made: {error.filename} is there") from error
    except (GitFailed, OSError) as error:
        raise InvalidArgument(f"{workspace.name} could not be made: {error}") from error
    return replace(workspace, copied=copied, being_made=False)


def _make_directory(directory: Path, umask: int) -> None:
    directory.mkdir()
    if umask != INHERITED:
        mode = stat.S_IMODE(directory.stat().st_mode)
        directory.chmod(mode & ~0o777 | 0o777 & ~umask)


def _make_branch(workspace: Workspace, umask: int = INHERITED) -> None:
    """Fails where there is one by now; its reflog says who made it, also after a crash."""
    ref, commit, must_not_exist = f"refs/heads/{workspace.branch}", f"{workspace.base}^{{commit}}", ""
    mark = ["--create-reflog", "-m", _mark(workspace)]
    git(workspace.repository, "update-ref", *mark, ref, commit, must_not_exist, umask=umask)


def _follow_remote(workspace: Workspace, umask: int) -> None:
    if workspace.base.startswith("refs/remotes/"):
        upstream = f"--set-upstream-to={workspace.base}"
        git(workspace.repository, "branch", "--quiet", upstream, workspace.branch, umask=umask)


def _mark(workspace: Workspace) -> str:
    return f"amux: made for workspace {workspace.id}"


def _has_made_branch(workspace: Workspace) -> bool:
    """Not one that somebody else made, or made anew, between the plan and its making."""
    words = ["log", "-g", "--no-show-signature", "--format=%gs", f"refs/heads/{workspace.branch}", "--"]
    try:
        *since, first = git(workspace.repository, *words).splitlines() or [""]
    except GitFailed:
        return False
    return first == _mark(workspace) and not any(told.startswith("branch:") for told in since)


def _undo_worktree(workspace: Workspace) -> None:
    if workspace.directory in worktrees(workspace.repository):
        with contextlib.suppress(GitFailed):
            git(workspace.repository, "worktree", "remove", "--force", "--force", workspace.directory)
    # git had not begun.
    with contextlib.suppress(OSError):
        Path(workspace.directory).rmdir()


def recovered(workspace: Workspace) -> bool:
    """A crash came while it was made, whenever that was: it is undone, or kept if there is work in it."""
    if workspace.made_branch and not _has_made_branch(workspace):
        # The branch comes first: what bears these names is not of amux's making.
        return False
    directory = Path(workspace.directory)
    is_there = workspace.directory in worktrees(workspace.repository) and directory.exists()
    if is_there and not _is_half_made(directory, workspace) and lost(look(workspace)):
        return True
    # What is on its branch and nowhere else stays all the same.
    _undo_worktree(workspace)
    _delete_branch(workspace)
    return False


def _is_half_made(directory: Path, workspace: Workspace) -> bool:
    """git was killed while it checked the files out: some are missing, and no other is there."""
    lock = Path(_asked(str(directory), "rev-parse", "--path-format=absolute", "--git-path", "locked"))
    if not lock.exists() or lock.read_text().strip() != _BEING_CHECKED_OUT:
        return False
    with tempfile.TemporaryDirectory(prefix="amux-") as scratch:
        # Its own index is written last.
        whole = {**programs_in(workspace.search_path), "GIT_INDEX_FILE": f"{scratch}/index"}
        git(directory, "read-tree", "HEAD", environment=whole)
        asked = ["--porcelain", "-z", "--untracked-files=all", "--ignored"]
        found = git(directory, "status", *asked, environment=whole).split("\0")[:-1]
    return all(record.startswith(" D ") for record in found)


def look(workspace: Workspace) -> Standing:
    """How it stands; copies that nobody has changed since are nobody's work."""
    directory = Path(workspace.directory)
    made = workspace.branch if workspace.made_branch else ""
    presence = directories.look(workspace.directory, None)
    if presence is Presence.UNKNOWN:
        raise GitFailed([], -1, f"{directory} is out of reach")
    if presence is Presence.GONE:
        return _look_from_afar(workspace, made)
    found = standing.examine(directory, workspace.repository, made, programs_in(workspace.search_path))
    own = copies.untracked(directory, workspace.copied)
    return replace(found, files=copies.without(directory, found.files, own))


def _look_from_afar(workspace: Workspace, made: str) -> Standing:
    """What git keeps of a worktree whose directory is not there; that may have been moved."""
    repository = workspace.repository
    head = worktrees(repository).get(workspace.directory, "")
    files, operation = standing.Files(head=head), ""
    if own := _git_directory_of_missing(workspace):
        operation = standing.operation_in(own)
        if head and (own / "index").exists():
            staged = git(repository, f"--git-dir={own}", "diff-index", "--cached", "--name-only", "-z", head)
            files = replace(files, uncommitted=staged.split("\0")[:-1])
    tips = [tip for tip in (head, standing.tip_of(repository, made)) if tip]
    unpushed = standing.unpushed(repository, tips, workspace.branch, made)
    return Standing(files, tips, unpushed=unpushed, operation=operation)


def _git_directory_of_missing(workspace: Workspace) -> Path | None:
    common = common_directory(workspace.repository)
    for link in common.glob("worktrees/*/gitdir"):
        if os.fsdecode(link.read_bytes()).rstrip("\n") == f"{workspace.directory}/.git":
            return link.parent
    return None


def remove(workspace: Workspace, force: bool, with_ignored: bool = False) -> Removed:
    """Raises WorkspaceDirty where that would lose something, unless it is forced."""
    found = _looked_at(workspace, force, with_ignored)
    if isinstance(found, GitFailed):
        return Removed([], [f"{workspace.directory} itself, for git cannot tell what is in it ({found})"])
    losses = lost(found)
    kept = _keep(workspace, found)
    _take_away(workspace, found, force, with_ignored)
    if left := _delete_branch(workspace, force):
        kept.append(left)
    return Removed(losses, kept)


def would_lose(workspace: Workspace, force: bool, with_ignored: bool = False) -> list[str]:
    """What remove() would throw away, or what it would raise."""
    found = _looked_at(workspace, force, with_ignored)
    return [] if isinstance(found, GitFailed) else lost(found)


def _looked_at(workspace: Workspace, force: bool, with_ignored: bool) -> Standing | GitFailed:
    """How it stands before it is removed; where git cannot tell and it is forced, its directory stays."""
    try:
        found = look(workspace)
    except GitFailed as error:
        if force:
            return error
        raise WorkspaceDirty(f"git cannot tell what is in {workspace.directory}: {error}") from error
    losses = lost(found, with_ignored=not with_ignored)
    if losses and not force:
        _refuse(workspace, found, losses)
    if found.nested:
        raise WorkspaceDirty(f"{workspace.name} has {_listed(losses)}: take that away first")
    return found


def _refuse(workspace: Workspace, found: Standing, losses: list[str]) -> NoReturn:
    hint = "" if lost(found, with_ignored=False) else "; --ignored takes these along"
    if told := standing.without_filters(found.files):
        hint = f"; {told}"
    raise WorkspaceDirty(f"{workspace.name} has {_listed(losses)}{hint}")


def _take_away(workspace: Workspace, found: Standing, force: bool, with_ignored: bool) -> None:
    if workspace.directory not in worktrees(workspace.repository):
        return
    directory = Path(workspace.directory)
    is_there = directory.exists()
    if is_there and not force:
        # git looks again at some of this only: not at what it ignores, nor at commits on no branch.
        _looked_at(workspace, force, with_ignored)
    # It refuses those with submodules.
    options = ["--force"] if found.has_submodules or not is_there else []
    # Twice: also one that was locked.
    options = ["--force", "--force"] if force else options
    changed = set(found.files.untracked)
    try:
        own = copies.untracked(directory, workspace.copied) if is_there else {}
        # git refuses if something has come in since.
        with copies.aside(directory, {name: own[name] for name in own if name not in changed}):
            words = ["worktree", "remove", *options, workspace.directory]
            around = {**programs_in(workspace.search_path), **STRICTLY}
            git(workspace.repository, *words, deadline=LONG, environment=around)
    except GitFailed as error:
        raise WorkspaceDirty(f"git does not remove {workspace.directory}: {error}") from error
    except (copies.Changed, OSError) as error:
        raise WorkspaceDirty(f"{workspace.directory} is not removed: {error}") from error


def _git_directory(directory: Path) -> Path:
    return Path(_asked(str(directory), "rev-parse", "--path-format=absolute", "--git-dir"))


def _keep(workspace: Workspace, found: Standing) -> list[str]:
    """Names for what would otherwise have none, so that git keeps it."""
    repository, stem = workspace.repository, f"{KEPT}/{workspace.id}"
    kept = []
    own = workspace.branch if workspace.made_branch else ""
    names = {tip: f"tip{number}" for number, tip in enumerate(found.tips)}
    names |= {standing.tip_of(repository, own): "branch", found.files.head: "head"}
    for tip in found.tips:
        if standing.only_here(repository, [tip], [own]):
            git(repository, "update-ref", f"{stem}/{names[tip]}", tip)
            kept.append(f"{stem}/{names[tip]}")
    if found.stashes:
        kept.append("the stash, which is the repository's")
    directory = Path(workspace.directory)
    if not directory.exists():
        return kept
    kept += _keep_abandoned(workspace, found, own)
    modules = _git_directory(directory) / "modules"
    for submodule in submodule_directories(modules):
        name = str(submodule.relative_to(modules))
        if _name_abandoned(submodule) or name in found.submodules:
            fetched = [f"+HEAD:{stem}/submodules/{name}/HEAD"]
            fetched += [f"+refs/heads/*:{stem}/submodules/{name}/heads/*"]
            fetched += [f"+refs/tags/*:{stem}/submodules/{name}/tags/*"]
            fetched += [f"+{_ABANDONED}/*:{stem}/submodules/{name}/abandoned/*"]
            git(repository, "fetch", "--quiet", "--no-tags", str(submodule), *fetched, deadline=LONG)
            kept.append(f"{stem}/submodules/{name}")
    return kept


def _keep_abandoned(workspace: Workspace, found: Standing, own: str) -> list[str]:
    """Commits that were amended or left lead on in a reflog, for as long as git keeps such."""
    repository, ref = workspace.repository, f"{KEPT}/{workspace.id}/log"
    logged = hidden.logged(workspace.directory, "HEAD")
    logged += hidden.logged(repository, f"refs/heads/{own}") if own else []
    elsewhere = [f"--exclude={own}"] if own else []
    elsewhere += ["--branches", "--remotes", "--tags", f"--glob={KEPT}", "--glob=refs/stash"]
    abandoned = hidden.known_by(repository, logged, *elsewhere)
    if not abandoned:
        return []
    head = [found.files.head] if found.files.head else []
    for commit in (*reversed(abandoned), *head):
        message = f"amux: was in the reflog of {workspace.name}"
        git(repository, "update-ref", "--create-reflog", "-m", message, ref, commit)
    return [f"{ref}, whose reflog has {len(abandoned)} that were amended or left"]


def _name_abandoned(submodule: Path) -> list[str]:
    """The same in a submodule, whose own reflog goes with it."""
    logged = hidden.logged_anywhere(submodule)
    abandoned = hidden.known_by(submodule, logged, "HEAD", "--branches", "--remotes", "--tags")
    for commit in abandoned:
        git(submodule, "update-ref", f"{_ABANDONED}/{commit}", commit)
    return abandoned


def _delete_branch(workspace: Workspace, force: bool = False) -> str:
    """A branch that amux did not make is never deleted; why one of its own was left, if it was."""
    ref = f"refs/heads/{workspace.branch}"
    if not workspace.made_branch or not has_ref(workspace.repository, ref):
        return ""
    try:
        # A commit may have come in after the look, through another worktree say.
        if not force and _tip_is_only_here(workspace):
            return f"branch {workspace.branch}, which has got more commits meanwhile"
        git(workspace.repository, "branch", "--quiet", "-D", workspace.branch)
    except GitFailed as error:
        return f"branch {workspace.branch} ({error})"
    return ""


def _tip_is_only_here(workspace: Workspace) -> bool:
    tip = standing.tip_of(workspace.repository, workspace.branch)
    return standing.unpushed(workspace.repository, [tip], "", workspace.branch) > 0


def _source(repository: str) -> Path | None:
    """Where the caller's own files are; a bare repository has none."""
    try:
        return Path(_asked(repository, "rev-parse", "--show-toplevel"))
    except InvalidArgument:
        return None


def _place(parent: Path, workspace: Workspace, registered: Container[str]) -> Path:
    name = _short(re.sub(r"[/\0]", "-", workspace.name))
    # Neither hidden nor one of the two names that every directory has.
    name = name.lstrip(".-") or workspace.id
    place = parent / name
    taken = place.exists() or str(place) in registered
    return Path(place_of_its_own(place, workspace)) if taken else place


def place_of_its_own(place: Path | str, workspace: Workspace) -> str:
    return f"{place}-{workspace.id}"


def _branch_for(workspace: Workspace) -> str:
    """The name, as far as git takes it for that of a branch."""
    words = re.sub(r"[\s~^:?*\[\\\x00-\x20\x7f]+|\.\.+|@\{|//+", "-", workspace.name)
    parts = [re.sub(r"\.lock$", "", part.strip(".")) for part in words.strip("-/").split("/")]
    return _short("/".join(part for part in parts if part).lstrip("-")) or f"amux-{workspace.id}"


def _short(name: str) -> str:
    """As long as file systems take it, in whole characters."""
    return name.encode()[:_LONGEST].decode(errors="ignore")


def _refs_of(repository: str, branch: str) -> tuple[bool, list[str]]:
    """Whether there is a branch of that name, and which remotes have one."""
    local, remote = f"refs/heads/{branch}", f"refs/remotes/*/{branch}"
    found = git(repository, "for-each-ref", "--format=%(refname)", local, remote).splitlines()
    return local in found, [ref for ref in found if ref.startswith("refs/remotes/")]


def _lasting(repository: str, base: str) -> str:
    """The full name of a branch, so that what it began from can be told later; else the commit."""
    try:
        # It would be taken for an option.
        name = "" if base.startswith("-") else git(repository, "rev-parse", "--symbolic-full-name", base)
        if name.startswith("refs/"):
            return name.strip()
        return git(repository, "rev-parse", "--verify", "--end-of-options", base + "^{commit}").strip()
    except GitFailed as error:
        if base == "HEAD":
            raise InvalidArgument(
                f"{repository} has no commit yet, and a worktree begins from one"
            ) from error
        raise InvalidArgument(f"there is no commit {base!r} in {repository}") from error


def _asked(repository: str, *arguments: str) -> str:
    try:
        return git(repository, *arguments).removesuffix("\n")
    except GitFailed as error:
        raise InvalidArgument(str(error)) from error


def _listed(losses: list[str]) -> str:
    return losses[0] if len(losses) == 1 else f"{', '.join(losses[:-1])} and {losses[-1]}"
