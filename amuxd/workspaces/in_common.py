"""Git is asked about many worktrees: what they have in common is found once."""

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from amuxd.git import ORDINARY, GitFailed, Surroundings, programs_in
from amuxd.records import Workspace
from amuxd.workspaces import copies, standing
from amuxd.workspaces.standing import Files

Key = TypeVar("Key")
Found = TypeVar("Found")

# The setting core.worktree, however it is written.
_WORKTREE = re.compile(rb"\bworktree\b", re.IGNORECASE)
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCHES = ("refs/heads/", "refs/remotes/")
_LONGEST = 2**14


class InCommon:
    """For one list; any thread may ask."""

    def __init__(self) -> None:
        self._surroundings = _Once(_surroundings)
        self._books = _Once(_Books)
        self._bases = _Once(_base)

    def files_of(self, workspace: Workspace) -> Files:
        """Raises GitFailed."""
        self._books(workspace.repository).refuse_other(workspace.directory)
        files = standing.files_of(
            workspace.directory, self._surroundings(workspace.search_path), one_of_many=True
        )
        if workspace.copied and files.untracked:
            files = copies.left_out(workspace, Path(workspace.directory), files)
        if files.head == self._bases((workspace.repository, workspace.base)):
            return files
        return against_base(files, workspace)

    def files_of_given(self, workspace: Workspace) -> Files:
        """Raises GitFailed also where there is no repository."""
        surroundings = self._surroundings(workspace.search_path)
        return standing.files_of(workspace.directory, surroundings, one_of_many=True)


def against_base(files: Files, workspace: Workspace) -> Files:
    """What is ahead and behind where there is no upstream to compare with."""
    if files.upstream or not files.head:
        return files
    ahead, behind = standing.ahead_behind(workspace.directory, workspace.base)
    return replace(files, ahead=ahead, behind=behind)


class _Once(Generic[Key, Found]):
    """Found for the first that asks, while the others wait for it: as long as for git, and no longer."""

    def __init__(self, find: Callable[[Key], Found]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._answers: dict[Key, Future[Found]] = {}

    def __call__(self, key: Key) -> Found:
        with self._lock:
            answer = self._answers.get(key)
            if answer is None:
                answer = self._answers[key] = Future()
                self._begin(key, answer)
        try:
            return answer.result(ORDINARY)
        except TimeoutError:
            raise GitFailed([], -1, f"the repository did not answer within {ORDINARY:.0f} s") from None

    def _begin(self, key: Key, answer: "Future[Found]") -> None:
        try:
            # What does not answer holds up this thread alone.
            threading.Thread(target=self._answer, args=(key, answer), daemon=True).start()
        except RuntimeError as error:
            answer.set_exception(GitFailed([], -1, f"git could not be asked: {error}"))

    def _answer(self, key: Key, answer: Future[Found]) -> None:
        try:
            answer.set_result(self._find(key))
        except BaseException as error:
            answer.set_exception(error)


class _Books:
    """What a repository has written down of its worktrees."""

    def __init__(self, repository: str) -> None:
        common = _common_directory(repository)
        self._repository = repository
        self._unread: list[OSError] = []
        self._own = standing.git_directories(common, self._unread)
        self._may_lead_elsewhere = bool(_WORKTREE.search(_settings(common / "config")))

    def refuse_other(self, directory: str) -> None:
        """Raises GitFailed where git would tell of something else."""
        own = self._own.get(directory)
        if own is None and self._unread:
            # It may be that one.
            raise self._unread[0]
        if own is None or self._may_lead_elsewhere or not _is_as_git_made_it(directory, own):
            standing.refuse_other(Path(directory), own, self._repository)
            standing.refuse_elsewhere(Path(directory))


# What git has written in the ordinary way is read; about whatever else there may be, git is asked.


def _common_directory(repository: str) -> Path:
    usual = Path(os.path.realpath(repository), ".git")
    return usual if _read(f"{usual}/HEAD") else standing.common_directory(repository)


def _settings(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _is_as_git_made_it(directory: str, own: Path) -> bool:
    leads_there = _read(f"{directory}/.git") == os.fsencode(f"gitdir: {own}\n")
    return leads_there and not os.path.lexists(f"{own}/config.worktree")


def _base(asked: tuple[str, str]) -> str:
    """The commit; empty where it is there no more."""
    repository, base = asked
    written = _read(f"{repository}/.git/{base}").decode(errors="replace").strip()
    if base.startswith(_BRANCHES) and _ID.fullmatch(written):
        return written
    try:
        return standing.commit_of(repository, base)
    except GitFailed:
        return ""


def _read(file: str) -> bytes:
    """Empty where there is none."""
    try:
        # What is no file may keep waiting whoever opens it.
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(opened, _LONGEST)
    except OSError:
        return b""
    finally:
        os.close(opened)


def _surroundings(search_path: str) -> Surroundings:
    return Surroundings(programs_in(search_path))
