"""What worktree is to be made: its place, its branch and what that begins from, or why it cannot be."""

import contextlib
import os
import re
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from amuxd.errors import Internal, InvalidArgument
from amuxd.git import GitFailed, git
from amuxd.helpers import INHERITED
from amuxd.lines import lines_of
from amuxd.records import Workspace
from amuxd.workspaces import standing
from amuxd.workspaces.standing import worktrees

_LONGEST = 180
_HEADS = "refs/heads/"
_REMOTES = "refs/remotes/"
# Of git check-ref-format: git does not allow the name.
_NOT_ALLOWED = 1
# git's names for a commit, which it takes for that where a branch is so called.
_NO_BRANCHES = ("@", "HEAD")
_IN_NO_REPOSITORY = "not a git repository (or any"


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


def common_directory(repository: str) -> Path:
    try:
        return standing.common_directory(repository)
    except GitFailed as error:
        raise InvalidArgument(str(error)) from error


def repository_around(directory: str) -> Path:
    """Its common directory, for a person who is there and wants a worktree."""
    try:
        return common_directory(directory)
    except InvalidArgument as error:
        if not str(error).startswith(_IN_NO_REPOSITORY):
            raise
        raise InvalidArgument(
            f"{directory} is in no git repository: amux ws add --repo DIR names one, and --path DIR takes a "
            "directory as it is"
        ) from error


def planned(workspace: Workspace, wish: Wish, parent: Path, common: Path | None = None) -> Workspace:
    """What is going to be made, or InvalidArgument before anything is."""
    if wish.branch.startswith(_HEADS):
        # git would put that behind another refs/heads/.
        short = wish.branch.removeprefix(_HEADS)
        raise InvalidArgument(f"{wish.branch} is a ref: --branch {short} is its branch")
    common = common or repository_around(wish.repository)
    repository = repository_of(common)
    branch = wish.branch or _branch_for(workspace)
    with ThreadPoolExecutor(3, "plan") as asking:
        checked = asking.submit(_check_branch, wish.repository, branch)
        refs = asking.submit(_refs_of, str(repository), branch)
        registered = asking.submit(worktrees, str(repository))
    try:
        checked.result()
        (exists, remotes), listed = refs.result(), registered.result()
        if "/" in branch and not exists and not wish.base:
            _refuse_name_of_remotes(str(repository), branch)
    except GitFailed as error:
        raise Internal(f"git cannot tell what is in {repository}: {error}") from error
    if exists and not wish.branch:
        raise InvalidArgument(
            f"there is a branch {branch} already: --branch {branch} takes it, --branch NEW makes another"
        )
    if exists and wish.base:
        raise InvalidArgument(f"there is a branch {branch} already, and it has its own base")
    # Where a branch of that name is on a remote, it is that one that is wanted.
    base = wish.base or ("HEAD" if exists or not remotes else _one_of(remotes, str(repository), branch, wish))
    # As git lists it, whatever link leads there.
    below = Path(os.path.realpath(_below(parent, repository)))
    plan = replace(
        workspace,
        directory=str(_place(below, workspace, listed)),
        repository=str(repository),
        branch=branch,
        made_branch=not exists,
        base=_lasting(wish.repository, base),
        being_made=True,
    )
    require_text("repository", plan.repository)
    require_text("directory", plan.directory)
    require_text("branch", plan.branch)
    require_text("base", plan.base, "; --base takes its commit as well")
    return plan


def require_text(what: str, name: str, way_out: str = "") -> None:
    """Names on disk and in git are any bytes, and who asks for them on D-Bus can be told of text alone."""
    shown = name.encode(errors="replace").decode()
    if shown != name:
        raise InvalidArgument(f"its {what} {shown} is not UTF-8, and D-Bus can tell of no other{way_out}")


def repository_of(common: Path) -> Path:
    return common.parent if common.name == ".git" else common


def _below(parent: Path, repository: Path) -> Path:
    return parent / repository.name.removesuffix(".git")


def looked_at(workspace: Workspace, parent: Path, common: Path) -> list[Path]:
    """Where planned() looks, and waits where nothing answers: each lies in the one before."""
    below = _below(parent, repository_of(common))
    return [parent, below, _wanted_place(below, workspace)]


def _place(parent: Path, workspace: Workspace, registered: Container[str]) -> Path:
    place = _wanted_place(parent, workspace)
    # Where nobody can tell whether it is there, nothing can be made there.
    taken = os.path.lexists(place) or str(place) in registered
    return Path(place_of_its_own(place, workspace)) if taken else place


def _wanted_place(parent: Path, workspace: Workspace) -> Path:
    name = _short(re.sub(r"[/\0]", "-", workspace.name))
    # Neither hidden nor one of the two names that every directory has, nor what git makes no worktree of.
    name = name.lstrip(".-")
    return parent / (workspace.id if name in ("", "@") else name)


def place_of_its_own(place: Path | str, workspace: Workspace) -> str:
    return f"{place}-{workspace.id}"


def _branch_for(workspace: Workspace) -> str:
    """The name, as far as git takes it for that of a branch."""
    words = re.sub(r"[\s~^:?*\[\\\x00-\x20\x7f]+|\.\.+|@\{|//+", "-", workspace.name).strip("-/")
    parts = [re.sub(r"\.lock$", "", part.strip(".")) for part in words.removeprefix(_HEADS).split("/")]
    branch = _short("/".join(part for part in parts if part).lstrip("-"))
    return f"amux-{workspace.id}" if branch in ("", *_NO_BRANCHES) else branch


def _check_branch(repository: str, branch: str) -> None:
    is_allowed = not branch.startswith("-") and branch not in _NO_BRANCHES
    try:
        git(repository, "check-ref-format", _HEADS + branch)
    except GitFailed as error:
        if error.code != _NOT_ALLOWED:
            raise
        is_allowed = False
    if not is_allowed:
        raise InvalidArgument(f"{branch!r} is no name for a branch")


def _short(name: str) -> str:
    """As long as file systems take it, in whole characters."""
    return name.encode()[:_LONGEST].decode(errors="ignore")


def _refs_of(repository: str, branch: str) -> tuple[bool, list[str]]:
    """Whether there is a branch of that name, and which remotes have one."""
    local, remote = f"{_HEADS}{branch}", f"{_REMOTES}*/{branch}"
    found = lines_of(git(repository, "for-each-ref", "--format=%(refname)", local, remote))
    return local in found, [ref for ref in found if ref.startswith(_REMOTES)]


def _refuse_name_of_remotes(repository: str, branch: str) -> None:
    """git would take that for either of both from then on."""
    for remote in lines_of(git(repository, "remote")):
        short = branch.removeprefix(f"{remote}/")
        if short not in ("", branch, *_NO_BRANCHES) and standing.has_ref(repository, f"{_REMOTES}{branch}"):
            raise InvalidArgument(
                f"{branch} is a branch of the remote {remote}: --branch {short} takes it, "
                f"--branch NEW --base {branch} begins another there"
            )


def _one_of(remotes: Sequence[str], repository: str, branch: str, wish: Wish) -> str:
    """As git itself chooses where more than one has it."""
    if len(remotes) == 1:
        return remotes[0]
    with contextlib.suppress(GitFailed):
        told = git(repository, "config", "checkout.defaultRemote", environment=wish.environment)
        preferred = told.removesuffix("\n")
        if (ref := f"{_REMOTES}{preferred}/{branch}") in remotes:
            return ref
    names = [ref.removeprefix(_REMOTES) for ref in remotes]
    raise InvalidArgument(
        f"{', '.join(names[:-1])} and {names[-1]} are there: amux ws add --base {names[0]} takes "
        "that one, --base HEAD begins where you are"
    )


def _lasting(repository: str, base: str) -> str:
    """The full name of a branch, so that what it began from can be told later; else the commit."""
    try:
        asked = ["rev-parse", "--revs-only", base, "--symbolic-full-name", base]
        # With a dash it would be taken for an option.
        found = [] if base.startswith("-") else lines_of(git(repository, *asked))
        if any(line.startswith("^") for line in found):
            # What a range leaves out.
            raise InvalidArgument(f"{base!r} is not one commit")
        if len(found) == 2 and found[1].startswith("refs/"):
            return found[1]
        return standing.commit_of(repository, base)
    except GitFailed as error:
        if base == "HEAD":
            raise InvalidArgument(
                f"{repository} has no commit yet, and a worktree begins from one"
            ) from error
        raise InvalidArgument(f"there is no commit {base!r} in {repository}") from error
