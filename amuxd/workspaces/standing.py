"""How a worktree stands: what is in it that is nowhere else."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amuxd.git import GitFailed, git

_OPERATIONS = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
}
_DETACHED = "(detached)"
_UNBORN = "(initial)"


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


@dataclass(frozen=True)
class Standing:
    files: Files
    unpushed: int = 0
    stashes: int = 0
    operation: str = ""
    submodules: dict[str, int] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)


def lost(standing: Standing) -> list[str]:
    """What a removal would throw away, each in a few words."""
    uncommitted, untracked = standing.files.uncommitted, standing.files.untracked
    found = [
        _counted(len(uncommitted), "file", "files", " with uncommitted changes" + _examples(uncommitted)),
        _counted(len(untracked), "untracked file", "untracked files", _examples(untracked)),
        _counted(standing.unpushed, "commit", "commits", " on no other branch and no remote"),
        _counted(standing.stashes, "stash", "stashes"),
        f"{standing.operation} under way" if standing.operation else "",
        *(
            _counted(commits, "commit", "commits", f" in submodule {name} on no remote")
            for name, commits in standing.submodules.items()
        ),
        *(f"another repository or worktree in it, {path}" for path in standing.nested),
    ]
    return [words for words in found if words]


def _counted(number: int, one: str, several: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else several}{more}" if number else ""


def _examples(names: list[str]) -> str:
    return f" ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


def files_of(directory: Path | str) -> Files:
    printed = git(
        directory,
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=none",
    )
    return read_status(printed)


def read_status(printed: str) -> Files:
    head = branch = upstream = ""
    ahead = behind = 0
    uncommitted, untracked = [], []
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
                    upstream = value
                case "branch.ab":
                    plus, minus = value.split()
                    ahead, behind = int(plus), -int(minus)
        elif kind == "?":
            untracked.append(rest)
        elif kind in ("1", "2", "u"):
            # The path is the last of so many fields; that of a renamed file is followed by the old one.
            uncommitted.append(rest.split(" ", {"1": 7, "2": 8, "u": 9}[kind])[-1])
            if kind == "2":
                next(records)
    return Files(head, branch, upstream, ahead, behind, uncommitted, untracked)


def examine(directory: Path, repository: str, made_branch: str) -> Standing:
    """All of it; raises GitFailed where git cannot tell."""
    files = files_of(directory)
    own, common = (
        Path(line)
        for line in git(
            directory, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"
        ).splitlines()
    )
    if own == common:
        raise GitFailed(["rev-parse"], -1, f"{directory} is no worktree of {repository}")
    branches = {name for name in (files.branch, made_branch) if name}
    return Standing(
        files,
        unpushed=unpushed(repository, files.head, files.branch, made_branch),
        stashes=_stashes(repository, branches, detached=not files.branch),
        operation=next((what for name, what in _OPERATIONS.items() if (own / name).exists()), ""),
        submodules=dict(_submodules(own / "modules")),
        nested=_nested(directory, repository),
    )


def unpushed(repository: str, head: str, branch: str, made_branch: str) -> int:
    """Commits that nothing but this worktree and its branch leads to."""
    tips = [tip for tip in (head, tip_of(repository, made_branch)) if tip]
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


def _stashes(repository: str, branches: set[str], detached: bool) -> int:
    """Stashes belong to the repository; what git says in each tells which branch it was made on."""
    marks = {f"WIP on {name}:" for name in branches} | {f"On {name}:" for name in branches}
    if detached:
        marks |= {"WIP on (no branch):", "On (no branch):"}
    if not has_ref(repository, "refs/stash"):
        return 0
    subjects = git(repository, "stash", "list", "--format=%gs").splitlines()
    return sum(subject.startswith(tuple(marks)) for subject in subjects)


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
        if (entry / "HEAD").is_file() and (entry / "objects").is_dir():
            yield entry
            yield from submodule_directories(entry / "modules")
        else:
            yield from submodule_directories(entry)


def _submodules(modules: Path) -> Iterator[tuple[str, int]]:
    for directory in submodule_directories(modules):
        tips = ["HEAD", "--branches"]
        if has_ref(str(directory), "refs/stash"):
            tips.append("refs/stash")
        commits = int(git(directory, "rev-list", "--count", *tips, "--not", "--remotes"))
        if commits:
            yield str(directory.relative_to(modules)), commits


def _nested(directory: Path, repository: str) -> list[str]:
    """Worktrees and repositories that git does not count as untracked, because they are ignored."""
    found = [path for path in worktrees(repository) if Path(path).is_relative_to(directory)]
    found = [path for path in found if Path(path) != directory]
    ignored = git(
        directory, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    ).split("\0")
    for path in ignored:
        if path.endswith("/") and (directory / path / ".git").exists():
            found.append(str(directory / path))
    return sorted({path.rstrip("/") for path in found})


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
