"""What `git status` says nothing of, and what goes with a worktree all the same."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amuxd.git import STRICTLY, GitFailed, git

_GITLINK = "160000"
_ID = re.compile(r"[0-9a-f]{40,64}")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Index:
    # Files that git was told not to look at: assumed unchanged, or outside of a sparse checkout.
    unwatched: list[str] = field(default_factory=list)
    submodules: list[str] = field(default_factory=list)


def index_of(directory: Path) -> Index:
    found = Index()
    for record in git(directory, "ls-files", "-v", "--stage", "-z").split("\0")[:-1]:
        marks, _, path = record.partition("\t")
        tag, mode, _ = marks.split(" ", 2)
        if tag.islower() or tag == "S":
            found.unwatched.append(path)
        if mode == _GITLINK:
            found.submodules.append(path)
    return found


def changed_unseen(directory: Path, index: Index, environment: Mapping[str, str]) -> list[str]:
    """Which of the files that git does not look at have been changed: a copy of its index tells."""
    present = [path for path in index.unwatched if os.path.lexists(directory / path)]
    if not present:
        return []
    own = git(directory, "rev-parse", "--path-format=absolute", "--git-path", "index").removesuffix("\n")
    with tempfile.TemporaryDirectory(prefix="amux-") as scratch:
        copy = Path(scratch, "index")
        # With its time: git mistrusts what is not older than the index, and compares the contents.
        shutil.copy2(own, copy)
        asked = {**environment, **STRICTLY, "GIT_INDEX_FILE": str(copy)}
        paths = "".join(f"{path}\0" for path in present)
        for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
            git(directory, "update-index", flag, "-z", "--stdin", input=paths, environment=asked)
        changed = git(directory, "diff", "--name-only", "--no-ext-diff", "-z", environment=asked)
    return sorted(set(present) & set(changed.split("\0")))


def repositories_below(top: Path) -> Iterator[Path]:
    """Repositories and worktrees, bare ones too; what is in those is their own."""
    for at, directories, names in os.walk(top):
        is_bare = "HEAD" in names and {"objects", "refs"} <= set(directories)
        if ".git" in directories or ".git" in names or is_bare:
            directories.clear()
            yield Path(at)


def is_spare(repository: Path, environment: Mapping[str, str]) -> bool:
    """A clone without work in it, as build tools make them."""
    if (repository / ".git").is_file():
        # The worktree of another repository, or a submodule of one.
        return False
    try:
        if git(repository, "rev-parse", "--is-bare-repository").strip() == "false":
            words = ["status", "--porcelain", "--ignore-submodules=none"]
            changed = git(repository, *words, environment={**environment, **STRICTLY})
            unseen = changed_unseen(repository, index_of(repository), environment)
            if changed or unseen or any(repositories_below_its_own(repository)):
                return False
        return commits_of_its_own(repository) == 0 and not _abandoned(repository)
    except GitFailed:
        return False


def commits_of_its_own(repository: Path) -> int:
    """What its refs lead to, and none that are of a remote; who made a tag is not written in it."""
    tips = ["HEAD", "--branches", "--tags", "--glob=refs/stash"]
    asked = "".join(f"^{commit}\n" for commit in _brought(repository))
    return int(git(repository, "rev-list", "--count", *tips, "--not", "--remotes", "--stdin", input=asked))


def _abandoned(repository: Path) -> list[str]:
    """Commits that only a reflog has; those that its remote itself has abandoned are nobody's work."""
    logged = logged_anywhere(repository)
    published = git(repository, "rev-list", "-g", "--remotes").split()
    elsewhere = [*published, *_brought(repository)]
    return known_by(repository, logged, "--remotes", *dict.fromkeys(elsewhere))


def _brought(repository: Path) -> list[str]:
    """Commits that came from elsewhere, though no branch of a remote leads to them, as to many a release."""
    own = Path(git(repository, "rev-parse", "--path-format=absolute", "--git-dir").removesuffix("\n"))
    # Where a shallow clone ends, and the tags that came with the clone.
    named = [own / "shallow"]
    if _is_as_cloned(own):
        named.append(own / "packed-refs")
    words = [line.lstrip("^").split()[:1] for file in named if file.is_file() for line in _lines(file)]
    return _present(repository, [word for found in words for word in found if _ID.fullmatch(word)])


def _is_as_cloned(git_directory: Path) -> bool:
    """git has packed no refs since: those that are packed are the remote's."""
    logs = list(git_directory.glob("logs/refs/remotes/*/HEAD"))
    packed = git_directory / "packed-refs"
    if len(logs) != 1 or not packed.is_file():
        return False
    # It is written just after these, and only once.
    (first, *more) = _lines(logs[0]) or [""]
    is_by_clone = "\tclone: from " in first and not more
    return is_by_clone and packed.stat().st_mtime_ns <= logs[0].stat().st_mtime_ns


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()


def _present(repository: Path | str, commits: Sequence[str]) -> list[str]:
    """Without those that git has cleared away."""
    asked = "".join(f"{commit}\n" for commit in commits)
    told = git(repository, "cat-file", "--batch-check=%(objectname) %(objecttype)", input=asked)
    return [line.split()[0] for line in told.splitlines() if line.endswith((" commit", " tag"))]


def repositories_below_its_own(repository: Path) -> Iterator[Path]:
    for entry in repository.iterdir():
        if entry.is_dir() and not entry.is_symlink() and entry.name != ".git":
            yield from repositories_below(entry)


def mounts_below(directory: Path) -> Iterator[Path]:
    for line in os.fsdecode(_MOUNTS.read_bytes()).splitlines():
        # Blanks and the like are written as \040.
        place = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]))
        if place != directory and place.is_relative_to(directory):
            yield place


def tips_of_its_own(directory: Path) -> list[str]:
    """Commits that refs of this one worktree lead to."""
    names = ["refs/worktree", "refs/bisect", "refs/rewritten"]
    return git(directory, "for-each-ref", "--format=%(objectname)", *names).split()


def logged(directory: Path | str, ref: str) -> list[str]:
    """The commits that its reflog names, the latest first."""
    try:
        return git(directory, "rev-list", "-g", ref, "--").split()
    except GitFailed:
        # A branch without a commit has none for git, whatever was done before it was begun.
        where = git(directory, "rev-parse", "--path-format=absolute", "--git-path", f"logs/{ref}")
        log = Path(where.removesuffix("\n"))
        commits = [line.split(" ", 2)[1] for line in _lines(log)] if log.is_file() else []
        return _present(directory, commits[::-1])


def logged_anywhere(repository: Path) -> list[str]:
    # Where no reflog is left, git asks for an input at least.
    return git(repository, "rev-list", "--no-walk", "--reflog", "--stdin", input="").split()


def known_by(repository: Path | str, tips: Sequence[str], *elsewhere: str) -> list[str]:
    """Those of the tips that nothing else leads to."""
    if not tips:
        return []
    asked = "".join(f"{tip}\n" for tip in tips)
    nowhere = set(git(repository, "rev-list", "--stdin", "--not", *elsewhere, input=asked).split())
    return [tip for tip in dict.fromkeys(tips) if tip in nowhere]
