"""What `git status` says nothing of, and what goes with a worktree all the same."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from amuxd.git import STRICTLY, GitFailed, git
from amuxd.helpers import Stopping
from amuxd.lines import lines_of
from amuxd.mounts import mounted

_GITLINK = "160000"
# git config's exit code; any other is that of a failure.
_NOT_SET = 1
_ID = re.compile(r"[0-9a-f]{40,64}")
_CLONED = re.compile(r"> ([0-9]+) [-+][0-9]+\tclone: from ")
# A fetch makes those of remotes, and only what is pushed or merged there is in them.
_REFS_OF_ITS_OWN = ("--exclude=refs/remotes/*", "--all")
_REFS_OF_A_WORKTREE = ("refs/worktree/", "refs/bisect/", "refs/rewritten/")
# Of these the first is told, for one makes the marks of another; what is not here leaves no more than changes
# to be committed and a message, as merge --squash does.
_OPERATIONS = {
    "rebase-merge": "a rebase",
    "rebase-apply/applying": "an am session",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    # Between two commits of several, when neither head is there.
    "sequencer": "a cherry-pick or revert",
}
# These can be under way beside any other.
_OPERATIONS_BESIDE = {"BISECT_LOG": "a bisect", "NOTES_MERGE_PARTIAL": "a notes merge"}

# What programs that build, fetch and test make in a repository.
_MADE_AGAIN = {
    *("node_modules", "bower_components", ".next", ".nuxt", ".parcel-cache", ".svelte-kit", ".turbo"),
    *("__pycache__", ".venv", "venv", ".tox", ".nox", ".eggs", "htmlcov"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    *("target", "build", "dist", ".gradle", ".terraform", "cache", ".cache"),
}
_AUTOSTASHES = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")

# What git and amux write into the lock of a worktree that they are just making or removing.
BEING_CHECKED_OUT = "initializing"
BEING_REMOVED = "amux removes it"

Ask = Callable[..., str]


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


def repositories_below(top: Path, submodules: Collection[str] = ()) -> Iterator[Path]:
    """Repositories and worktrees, bare ones too; what is in those, and in its submodules, is their own."""
    own = {str(top / name) for name in submodules}
    for at, directories, names in os.walk(top, onerror=not_looked_into):
        has_git = ".git" in directories or ".git" in names
        if at == str(top) and has_git:
            directories[:] = [name for name in directories if name != ".git"]
        elif has_git or ("HEAD" in names and {"objects", "refs"} <= set(directories)):
            if has_git and at in own:
                directories.clear()
            elif has_git or not _is_tracked(top, Path(at, "HEAD")):
                directories.clear()
                yield Path(at)


def not_looked_into(error: OSError) -> None:
    # What is deleted meanwhile is no work any more.
    if not isinstance(error, FileNotFoundError):
        raise GitFailed([], -1, f"{error.filename} cannot be looked into: {error.strerror}")


@contextlib.contextmanager
def told_as_by_git() -> Iterator[None]:
    """What amux may not look at is what git cannot tell."""
    try:
        yield
    except Stopping as error:
        raise GitFailed([], -1, str(error)) from None
    except OSError as error:
        what = error.filename or "something in it"
        raise GitFailed([], -1, f"{what} cannot be looked at: {error.strerror}") from error


def _is_tracked(directory: Path, file: Path) -> bool:
    """Then git tells of what is beside it as of other files."""
    return bool(git(directory, "ls-files", "-z", "--", f":(literal){file.relative_to(directory)}"))


def entries_with_files(directory: Path) -> list[str]:
    """A directory as git writes it, with a slash."""
    found = []
    for entry in sorted(directory.iterdir()):
        if entry.is_symlink() or not entry.is_dir():
            found.append(entry.name)
        elif holds_files(entry):
            found.append(f"{entry.name}/")
    return found


def holds_files(directory: Path) -> bool:
    return any(files_in(directory))


def files_in(directory: Path) -> Iterator[Path]:
    for at, directories, files in os.walk(directory, onerror=not_looked_into):
        # A link to a directory is counted among the directories.
        links = (name for name in directories if Path(at, name).is_symlink())
        yield from (Path(at, name) for name in (*files, *links))


def is_made_again(directory: Path) -> bool:
    """Whether a tool fills it, and not a person: by its mark, or by a name that is used for nothing else."""
    if directory.name in _MADE_AGAIN or directory.name.endswith(".egg-info"):
        return True
    return any((directory / mark).is_file() for mark in ("CACHEDIR.TAG", "pyvenv.cfg"))


def is_spare(repository: Path, top: Path, environment: Mapping[str, str]) -> bool:
    """A clone without work in it, as build tools make them, of what does not go with the same worktree."""
    mark = repository / ".git"
    if mark.is_file():
        # The worktree of another repository, or a submodule of one.
        return False
    has_files = os.path.lexists(mark)
    try:
        own = git_directory(repository)
        if not own.samefile(mark if has_files else repository):
            # git takes a damaged one for none, and tells of what it lies in.
            return False
        if has_files:
            if not is_top(repository):
                return False
            # Whatever the user has configured to be shown.
            words = ["status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none"]
            changed = git(repository, *words, environment={**environment, **STRICTLY})
            unseen = changed_unseen(repository, index_of(repository), environment)
            if changed or unseen or any(repositories_below(repository)):
                return False
        if any(_goes_with(top.resolve(), remote) for remote in _remotes_on_disk(own)):
            return False
        has_more = any((own / name).is_dir() for name in ("modules", "worktrees")) or operation_in(own)
        return not has_more and commits_of_its_own(own) == 0 and not abandoned(own)
    except (GitFailed, OSError):
        return False


def _goes_with(top: Path, remote: Path) -> bool:
    """What the worktree itself has is in its repository."""
    return remote.is_relative_to(top) and remote not in (top, top / ".git")


def _remotes_on_disk(own: Path) -> list[Path]:
    try:
        told = asked(own, "config", "--null", "--get-regexp", r"^remote\..*\.url$")
    except GitFailed as error:
        if error.code != _NOT_SET:
            raise
        return []
    urls = [record.partition("\n")[2].removeprefix("file://") for record in told.split("\0")[:-1]]
    # As seen from its files, or from itself where it has none.
    here = own.parent if own.name == ".git" else own
    return [place.resolve() for url in urls if (place := here / url).is_dir()]


def asked(own: Path, *arguments: str, input: str | None = None) -> str:
    """What git says of that git directory, though the files that belong to it are not there any more."""
    alone = {"GIT_DIR": str(own), "GIT_WORK_TREE": str(own)}
    return git(own, *arguments, input=input, environment=alone)


def commits_of_its_own(own: Path) -> int:
    """What its refs lead to, and none that are of a remote; who made a tag is not written in it."""
    return len(_not_brought(own, []))


def all_of_its_own(own: Path) -> list[str]:
    """With what only its reflogs lead to."""
    return _not_brought(own, abandoned(own))


def _not_brought(own: Path, more: Sequence[str]) -> list[str]:
    given = "".join([*(f"{commit}\n" for commit in more), *(f"^{commit}\n" for commit in _brought(own))])
    return asked(own, "rev-list", *_REFS_OF_ITS_OWN, "--not", "--remotes", "--stdin", input=given).split()


def abandoned(own: Path) -> list[str]:
    """Commits that no ref leads to; those that its remote itself has abandoned are nobody's work."""
    published = asked(own, "rev-list", "-g", "--remotes").split()
    elsewhere = dict.fromkeys([*published, *_brought(own)])
    left = [*logged_anywhere(own), *autostashes(own)]
    return known_by(partial(asked, own), left, "--remotes", *elsewhere)


def _brought(own: Path) -> list[str]:
    """Commits that came from elsewhere, though no branch of a remote leads to them, as to many a release."""
    # Where a shallow clone ends, and the tags that came with the clone.
    named = [own / "shallow"]
    if _is_as_cloned(own):
        named.append(own / "packed-refs")
    words = [line.lstrip("^").split()[:1] for file in named if file.is_file() for line in _lines(file)]
    return _present(partial(asked, own), [word for found in words for word in found if _ID.fullmatch(word)])


def _is_as_cloned(git_directory: Path) -> bool:
    """git has packed no refs since: those that are packed are the remote's."""
    logs = list(git_directory.glob("logs/refs/remotes/*/HEAD"))
    packed = git_directory / "packed-refs"
    if len(logs) != 1 or not packed.is_file():
        return False
    # It is written just after these, and only once.
    (first, *more) = _lines(logs[0]) or [""]
    cloned = _CLONED.search(first)
    if cloned is None or more or packed.stat().st_mtime_ns > logs[0].stat().st_mtime_ns:
        return False
    refs = [line.partition(" ")[2] for line in _lines(packed) if not line.startswith(("#", "^"))]
    if not all(ref.startswith(("refs/remotes/", "refs/tags/")) for ref in refs):
        return False
    # What clears up packs every branch, and writes anew what was logged; the time in it stays, which may be a
    # moment early.
    has_branch = any(files_in(git_directory / "refs/heads"))
    return has_branch or packed.stat().st_mtime < int(cloned[1]) + 2


def _lines(file: Path) -> list[str]:
    return lines_of(file.read_bytes().decode(errors="replace"))


def _present(ask: Ask, commits: Sequence[str]) -> list[str]:
    """Without those that git has cleared away."""
    given = "".join(f"{commit}\n" for commit in commits)
    told = ask("cat-file", "--batch-check=%(objectname) %(objecttype)", input=given)
    return [line.split()[0] for line in lines_of(told) if line.endswith((" commit", " tag"))]


def operation_in(git_directory: Path) -> str:
    def under_way(operations: Mapping[str, str]) -> list[str]:
        return [what for name, what in operations.items() if (git_directory / name).exists()]

    return " and ".join(under_way(_OPERATIONS)[:1] + under_way(_OPERATIONS_BESIDE))


def lock_of(own: Path) -> str | None:
    """The reason that it was locked for, which may be empty."""
    file = own / "locked"
    return file.read_bytes().decode(errors="replace").strip() if file.is_file() else None


def lock_by_a_person(own: Path) -> str:
    reason = lock_of(own)
    if reason in (None, BEING_CHECKED_OUT, BEING_REMOVED):
        return ""
    return f"a lock by git worktree lock{f' ({reason})' if reason else ''}"


def mounts_below(directory: Path) -> list[Path]:
    return [place for _, place in mounted() if place != directory and place.is_relative_to(directory)]


def git_directory(directory: Path) -> Path:
    """Of the repository, worktree or submodule that git finds there."""
    return Path(git(directory, "rev-parse", "--path-format=absolute", "--git-dir").removesuffix("\n"))


def is_top(directory: Path) -> bool:
    """Whether the files that git tells of are those in it: its settings may lead git elsewhere."""
    top = Path(git(directory, "rev-parse", "--show-toplevel").removesuffix("\n"))
    return top.is_dir() and top.samefile(directory)


def worktrees_of(own: Path) -> list[str]:
    """Those that lie elsewhere, and have their index and their commits in it."""
    # git works on in one whose place is not written down any more.
    places = [(linked, place_of_worktree(linked)) for linked in linked_worktrees(own)]
    return [place.removesuffix("/.git") or str(linked) for linked, place in places]


def linked_worktrees(own: Path) -> list[Path]:
    """Where it keeps what belongs to each of its worktrees."""
    try:
        return sorted((own / "worktrees").iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def place_of_worktree(linked: Path) -> str:
    """That of its .git, as it is written there; empty where git takes it for none."""
    try:
        return os.fsdecode((linked / "gitdir").read_bytes()).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def autostashes(own: Path) -> list[str]:
    """What is changed while a rebase or a merge is under way, and is in no list of stashes."""
    kept = [own / name for name in _AUTOSTASHES if (own / name).is_file()]
    return _present(partial(asked, own), [word for file in kept for word in _lines(file)])


def tips_of_its_own(own: Path) -> list[str]:
    """Commits that refs of this one worktree lead to."""
    return asked(own, "for-each-ref", "--format=%(objectname)", *_REFS_OF_A_WORKTREE).split()


def objects_of_its_own(own: Path) -> list[str]:
    """Files, directories and tags that only refs of this one worktree name, which no count of commits has."""
    told = asked(own, "for-each-ref", "--format=%(objecttype) %(objectname)", *_REFS_OF_A_WORKTREE)
    named = [line.split() for line in lines_of(told)]
    return [name for kind, name in named if kind != "commit" and not _is_named_elsewhere(own, name)]


def _is_named_elsewhere(own: Path, name: str) -> bool:
    told = asked(own, "for-each-ref", "--format=%(objectname) %(refname)", f"--points-at={name}")
    # Those that a tag leads to are told as well.
    refs = [line.split(" ")[1] for line in lines_of(told) if line.startswith(name)]
    # What amux kept for a removal that was refused then is to be kept again.
    return any(not ref.startswith((*_REFS_OF_A_WORKTREE, "refs/amux/")) for ref in refs)


def logged_of_its_own(own: Path) -> list[str]:
    """The commits that the reflogs of this one worktree name."""
    return [
        commit
        for log in sorted(files_in(own / "logs"))
        for commit in logged(partial(asked, own), str(log.relative_to(own / "logs")))
    ]


def noted_of_its_own(own: Path) -> list[str]:
    """The commits that ORIG_HEAD, FETCH_HEAD and the like of this one worktree name, perhaps alone."""
    words = [line.partition("\t")[0].strip() for file in sorted(own.glob("*_HEAD")) for line in _lines(file)]
    return _present(partial(asked, own), [word for word in words if _ID.fullmatch(word)])


def logged(ask: Ask, ref: str) -> list[str]:
    """The commits that its reflog names, the latest first."""
    try:
        return ask("rev-list", "-g", ref, "--").split()
    except GitFailed:
        # A branch without a commit has none for git, whatever was done before it was begun.
        where = ask("rev-parse", "--path-format=absolute", "--git-path", f"logs/{ref}")
        log = Path(where.removesuffix("\n"))
        commits = [line.split(" ", 2)[1] for line in _lines(log)] if log.is_file() else []
        return _present(ask, commits[::-1])


def logged_anywhere(own: Path) -> list[str]:
    # Where no reflog is left, git asks for an input at least.
    return asked(own, "rev-list", "--no-walk", "--reflog", "--stdin", input="").split()


def known_by(ask: Ask, tips: Sequence[str], *elsewhere: str) -> list[str]:
    """Those of the tips that nothing else leads to."""
    if not tips:
        return []
    given = "".join(f"{tip}\n" for tip in tips)
    nowhere = set(ask("rev-list", "--stdin", "--not", *elsewhere, input=given).split())
    return [tip for tip in dict.fromkeys(tips) if tip in nowhere]
