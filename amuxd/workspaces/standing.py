"""How a worktree stands: what is in it that is nowhere else."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from amuxd.git import STRICTLY, GitFailed, git
from amuxd.lines import lines_of
from amuxd.mounts import mounted
from amuxd.workspaces import hidden

_NOTHING_MORE: Mapping[str, str] = {}
_DETACHED = "(detached)"
_UNBORN = "(initial)"

Told = TypeVar("Told")


@dataclass(frozen=True)
class Files:
    """What `git status` tells of a worktree."""

    head: str = ""
    branch: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    uncommitted: list[str] = field(default_factory=list)
    untracked: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    # Those that are ignored as a whole, each with a slash at its end.
    ignored_directories: list[str] = field(default_factory=list)
    # Those of them that are no work: a tool makes them again.
    made_again: list[str] = field(default_factory=list)
    # Brought along, changed since, and ignored: git tells nothing of that.
    changed_copies: list[str] = field(default_factory=list)
    missing_filters: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Standing:
    files: Files
    # Where its own commits are: HEAD, the branch that was made for it, and refs of this worktree alone.
    tips: list[str] = field(default_factory=list)
    # What is no commit, and has a name in this worktree alone.
    objects: list[str] = field(default_factory=list)
    # What git put away when a rebase or a merge began, and has not put back.
    autostashes: list[str] = field(default_factory=list)
    # Worktrees elsewhere that are those of its submodules.
    leaning: list[str] = field(default_factory=list)
    unpushed: int = 0
    # Of these those that go with it: what is on a branch that stays does not.
    going: int = 0
    stashes: int = 0
    operation: str = ""
    # By a person, who did not want it to go.
    lock: str = ""
    submodules: dict[str, int] = field(default_factory=dict)
    # What is under way in each.
    submodule_operations: dict[str, str] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)
    # Where git keeps what belongs to this worktree alone; none where it knows of none.
    git_directory: Path | None = None
    # The branch that goes with it, for amux made it.
    made_branch: str = ""
    is_here: bool = True
    # A directory that is not there, and a worktree to git all the same: it may be moved or unmounted.
    out_of_sight: str = ""


def files_of(
    directory: Path | str,
    environment: Mapping[str, str] = _NOTHING_MORE,
    whole: bool = False,
    one_of_many: bool = False,
) -> Files:
    """As git shows it or, for a removal, the whole of it with what git ignores: that is told by file, and by
    directory where it is the directory that is ignored."""
    missing: list[str] = []
    printed = git(
        directory,
        # Threads of its own would only take the processors from the others.
        *(["-c", "core.preloadIndex=false"] if one_of_many else []),
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=none",
        *(["--ignored=matching"] if whole else []),
        environment={**environment, **STRICTLY} if whole else environment,
        missing=missing,
    )
    return read_status(printed, missing)


def read_status(printed: str, missing_filters: Sequence[str] = ()) -> Files:
    head = branch = named = upstream = ""
    ahead = behind = 0
    uncommitted, untracked, ignored = [], [], []
    records = iter(printed.split("\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            match key:
                case "branch.oid":
                    head = "" if value == _UNBORN else value
                case "branch.head":
                    branch = "" if value == _DETACHED else value
                case "branch.upstream":
                    named = value
                case "branch.ab":
                    # One that is gone, as once it is merged, is named as well, and compared with nothing.
                    upstream = named
                    plus, minus = value.split()
                    ahead, behind = int(plus), -int(minus)
        elif kind == "?":
            untracked.append(rest)
        elif kind == "!":
            ignored.append(rest)
        elif kind in ("1", "2", "u"):
            # The path is the last of so many fields; that of a renamed file is followed by the old one.
            uncommitted.append(rest.split(" ", {"1": 7, "2": 8, "u": 9}[kind])[-1])
            if kind == "2":
                next(records)
    return Files(
        *(head, branch, upstream, ahead, behind, uncommitted, untracked, ignored),
        missing_filters=list(missing_filters),
    )


def examine(
    directory: Path, found: Path | None, repository: str, made_branch: str, environment: Mapping[str, str]
) -> Standing:
    """All of it; raises GitFailed where git cannot tell."""
    own = refuse_other(directory, found, repository)
    inside = _everything_in(directory, own, directory, environment)
    files = inside.files
    whole = [name for name in files.ignored if name.endswith("/") and hidden.holds_files(directory / name)]
    files = replace(
        files,
        ignored=[name for name in files.ignored if not name.endswith("/")],
        ignored_directories=whole,
        made_again=[name for name in whole if hidden.is_made_again(directory / name)],
    )
    others = {Path(path) for path in worktrees(repository)} - {directory}
    nested = [*inside.nested, *(path for path in others if path.is_relative_to(directory))]
    nested += hidden.mounts_below(directory)
    return replace(
        _kept_by_git(own, repository, files, made_branch),
        nested=sorted({str(path) for path in nested}),
    )


@hidden.told_as_by_git()
def of_given(directory: str, environment: Mapping[str, str]) -> Standing:
    """Of a directory that is not amux's to remove; raises GitFailed where git knows nothing of it."""
    files, own = files_of(directory, environment), hidden.git_directory(Path(directory))
    stashes = _stashes(directory, {files.branch} if files.branch else set(), detached=not files.branch)
    return Standing(files, stashes=stashes, operation=hidden.operation_in(own), git_directory=own)


@hidden.told_as_by_git()
def refuse_other(directory: Path, own: Path | None, repository: str) -> Path:
    """Without its .git, or with that of another, git would tell of another worktree instead."""
    if own is None:
        raise GitFailed([], -1, f"{directory} is no worktree of {repository}")
    mark = directory / ".git"
    if any(place == directory for _, place in mounted()) and not _is_of(directory, own):
        raise GitFailed([], -1, f"what is mounted at {directory} is not the worktree")
    if not mark.is_file() and not mark.is_symlink():
        # What git would write there makes no worktree of a directory that came in the place of one.
        way_out = repairing(repository) if any(directory.iterdir()) else "put the worktree back"
        raise GitFailed([], -1, f"{mark} is gone: {way_out}")
    found = hidden.git_directory(directory)
    if not _is_same(found, own):
        is_sibling = _is_same(found.parent, own.parent)
        way_out = "move each worktree back to its place" if is_sibling else repairing(repository)
        raise GitFailed([], -1, f"{mark} does not lead to {own}: {way_out}")
    return own


def refuse_elsewhere(directory: Path) -> None:
    if not hidden.is_top(directory):
        raise GitFailed([], -1, f"by the settings there its files are not in {directory} (core.worktree)")


def repairing(repository: str, *moved: str) -> str:
    return f"{shlex.join(['git', '-C', repository, 'worktree', 'repair', *moved])} may mend that"


def _is_of(directory: Path, own: Path) -> bool:
    return (directory / ".git").is_file() and _is_same(hidden.git_directory(directory), own)


def _is_same(one: Path, other: Path) -> bool:
    return one.is_dir() and other.is_dir() and one.samefile(other)


def examine_from_afar(directory: str, own: Path | None, repository: str, made_branch: str) -> Standing:
    """What is left of one whose directory is not there."""
    if own is None:
        return replace(_kept_by_git(None, repository, Files(), made_branch), is_here=False)
    head = worktrees(repository).get(directory, "")
    try:
        branch = hidden.asked(own, "symbolic-ref", "--quiet", "HEAD").strip().removeprefix("refs/heads/")
    except GitFailed:
        branch = ""
    staged = ["diff-index", "--cached", "--name-only", "--ignore-submodules=none", "-z", head]
    # Of a branch without a commit everything is new.
    names = hidden.asked(own, *(staged if head else ["ls-files", "--cached", "-z"])).split("\0")[:-1]
    has_index = (own / "index").exists()
    files = Files(head=head, branch=branch, uncommitted=names if has_index else [])
    found = _kept_by_git(own, repository, files, made_branch)
    return replace(found, is_here=False, out_of_sight=directory)


@hidden.told_as_by_git()
def git_directory_of(directory: str, repository: str) -> Path | None:
    """Where git keeps what belongs to that worktree alone, whatever lies in its directory by now."""
    unread: list[OSError] = []
    own = git_directories(common_directory(repository), unread).get(directory)
    if own is None and unread:
        # It may be that one.
        raise unread[0]
    return own


@hidden.told_as_by_git()
def git_directories(common: Path, unread: list[OSError] | None = None) -> dict[str, Path]:
    """Of each worktree, by its directory; in unread why those that cannot be read are left out."""
    found: dict[str, Path] = {}
    for linked in hidden.linked_worktrees(common):
        try:
            # Some write it as seen from here.
            place = os.path.join(linked, hidden.place_of_worktree(linked))  # noqa: PTH118
        except OSError as error:
            if unread is not None:
                unread.append(error)
        else:
            found.setdefault(os.path.normpath(place).removesuffix("/.git"), linked)
    return found


def _kept_by_git(own: Path | None, repository: str, files: Files, made_branch: str) -> Standing:
    """What goes with a worktree though it lies elsewhere, and is there though the directory is not."""
    branches = {name for name in (files.branch, made_branch) if name}
    tips = [files.head, tip_of(repository, made_branch), *(hidden.tips_of_its_own(own) if own else [])]
    tips = [tip for tip in dict.fromkeys(tips) if tip]
    modules = own / "modules" if own else Path()
    submodules = {str(at.relative_to(modules)): at for at in submodule_directories(modules)} if own else {}
    leaning = [link for at in submodules.values() for link in hidden.worktrees_of(at)]
    at_stake = unpushed(repository, tips, files.branch, made_branch)
    return Standing(
        files,
        tips,
        objects=hidden.objects_of_its_own(own) if own else [],
        autostashes=hidden.autostashes(own) if own else [],
        leaning=leaning,
        unpushed=at_stake,
        going=only_here(repository, tips, {made_branch}) if at_stake else 0,
        stashes=_stashes(repository, branches, detached=bool(own) and not files.branch),
        operation=hidden.operation_in(own) if own else "",
        lock=hidden.lock_by_a_person(own) if own else "",
        submodules=_told(hidden.commits_of_its_own, submodules),
        submodule_operations=_told(hidden.operation_in, submodules),
        git_directory=own,
        made_branch=made_branch,
    )


@dataclass(frozen=True)
class _Inside:
    files: Files
    # As git told it, without what it tells only when it is asked otherwise.
    told: Files
    nested: list[Path]
    index: hidden.Index


def _everything_in(directory: Path, own: Path, top: Path, environment: Mapping[str, str]) -> _Inside:
    """Its files with those in its submodules, the repositories that lie in it, and its index."""
    refuse_elsewhere(directory)
    told, index = files_of(directory, environment, whole=True), hidden.index_of(directory)
    uncommitted = [*told.uncommitted, *hidden.changed_unseen(directory, index, environment)]
    untracked, ignored = list(told.untracked), list(told.ignored)
    nested = [
        found
        for found in hidden.repositories_below(directory, index.submodules)
        if not hidden.is_spare(found, top, environment)
    ]
    for name in index.submodules:
        inner = directory / name
        if (inner / ".git").is_dir():
            # Its commits lie in it, and not with those of the worktree.
            nested.append(inner)
        elif (inner / ".git").is_file():
            repository = hidden.git_directory(inner)
            if not repository.resolve().is_relative_to((own / "modules").resolve()):
                # The worktree of a repository elsewhere, which nobody asks for its commits.
                nested.append(inner)
                continue
            below = _everything_in(inner, repository, top, environment)
            # These are told as a change of the submodule itself, unless its own settings hide them.
            seen = {*below.told.uncommitted, *below.told.untracked} if name in told.uncommitted else set()
            uncommitted += [f"{name}/{path}" for path in below.files.uncommitted if path not in seen]
            untracked += [f"{name}/{path}" for path in below.files.untracked if path not in seen]
            ignored += [f"{name}/{path}" for path in below.files.ignored]
            nested += below.nested
        elif inner.is_dir() and not inner.is_symlink():
            # git expects nothing there before it is fetched, and does not look.
            untracked += [f"{name}/{path}" for path in hidden.entries_with_files(inner)]
    files = replace(told, uncommitted=uncommitted, untracked=untracked, ignored=ignored)
    return _Inside(files, told, nested, index)


def unpushed(repository: str, tips: Sequence[str], branch: str, made_branch: str) -> int:
    """Commits that nothing but this worktree and its branch leads to."""
    # A branch that stays loses nothing; where there are remotes, work that is on none of them is still told.
    own = {made_branch, branch} if git(repository, "remote").strip() else {made_branch}
    return only_here(repository, tips, own)


def only_here(repository: str, tips: Sequence[str], own: Iterable[str]) -> int:
    """How many commits lead to these that no remote, no tag and no branch but its own leads to."""
    if not tips:
        return 0
    excluded = [f"--exclude={branch}" for branch in sorted(own) if branch]
    elsewhere = ["--not", *excluded, "--branches", "--remotes", "--tags"]
    return int(git(repository, "rev-list", "--count", *tips, *elsewhere))


def tip_of(repository: str, branch: str) -> str:
    if not branch or not has_ref(repository, f"refs/heads/{branch}"):
        return ""
    return git(repository, "rev-parse", f"refs/heads/{branch}").strip()


def ahead_behind(directory: Path | str, base: str) -> tuple[int, int]:
    """Against what it began from, where there is no upstream to compare with."""
    try:
        behind, ahead = git(
            directory, "rev-list", "--left-right", "--count", "--end-of-options", f"{base}...HEAD"
        ).split()
    except GitFailed:
        return 0, 0
    return int(ahead), int(behind)


def commit_of(repository: str, name: str) -> str:
    return git(repository, "rev-parse", "--verify", "--end-of-options", name + "^{commit}").strip()


def _stashes(repository: str, branches: set[str], detached: bool) -> int:
    """Stashes belong to the repository; what git says in each tells which branch it was made on."""
    marks = {f"WIP on {name}:" for name in branches} | {f"On {name}:" for name in branches}
    if detached:
        marks |= {"WIP on (no branch):", "On (no branch):"}
    if not has_ref(repository, "refs/stash"):
        return 0
    # Whoever stores one by hand names it in the reflog alone, and so does a rebase that cannot put it back.
    told = lines_of(git(repository, "stash", "list", "--format=%gs%x00%s"))
    return sum(any(words.startswith(tuple(marks)) for words in line.split("\0")) for line in told)


def has_ref(repository: str, ref: str) -> bool:
    try:
        git(repository, "show-ref", "--verify", "--quiet", ref)
    except GitFailed as error:
        if error.code != 1:
            raise
        return False
    return True


def submodule_directories(modules: Path) -> Iterator[Path]:
    """The repositories of submodules: they are deleted with the worktree that they were checked out in."""
    if not modules.is_dir():
        return
    for entry in sorted(modules.iterdir()):
        if not entry.is_dir():
            continue
        # Also a damaged one, of which git can tell nothing.
        if (entry / "objects").is_dir() and any((entry / name).exists() for name in ("HEAD", "refs")):
            yield entry
            yield from submodule_directories(entry / "modules")
        else:
            yield from submodule_directories(entry)


def _told(ask: Callable[[Path], Told], submodules: Mapping[str, Path]) -> dict[str, Told]:
    """Of those of which there is something to tell."""
    return {name: told for name, directory in submodules.items() if (told := ask(directory))}


def common_directory(repository: str) -> Path:
    """The same for all that is one repository to git: its subdirectories, its worktrees, links to it."""
    asked = ["rev-parse", "--path-format=absolute", "--git-common-dir"]
    return Path(git(repository, *asked).removesuffix("\n"))


def worktrees(repository: str) -> dict[str, str]:
    """The worktrees that the repository knows of, and the commit that each is at."""
    found: dict[str, str] = {}
    path = ""
    for line in git(repository, "worktree", "list", "--porcelain", "-z").split("\0"):
        key, _, value = line.partition(" ")
        if key == "worktree":
            path = value
            found[path] = ""
        elif key == "HEAD" and set(value) != {"0"}:
            found[path] = value
    return found
