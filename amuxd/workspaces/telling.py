"""What is told of how workspaces stand: several are looked at side by side."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import standing, worktrees
from amuxd.workspaces.standing import Files, Standing


@dataclass(frozen=True)
class Told:
    """What git says of a workspace, or why it cannot say."""

    standing: Standing | None = None
    error: str = ""
    is_whole: bool = False


class Teller:
    def __init__(self) -> None:
        # git waits for the disk as much as it computes.
        self._pool = ThreadPoolExecutor(max(8, 2 * (os.cpu_count() or 1)), "git")

    async def all(self, workspaces: Sequence[Workspace]) -> list[Told]:
        """Branch and files of each, by one question to git."""
        loop = asyncio.get_running_loop()
        answers = (loop.run_in_executor(self._pool, _files, workspace) for workspace in workspaces)
        return await asyncio.gather(*answers)

    async def one(self, workspace: Workspace) -> Told:
        """Everything of one."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _everything, workspace)


def _files(workspace: Workspace) -> Told:
    if not workspace.repository:
        return Told()
    try:
        return Told(Standing(standing.files_of(workspace.directory)))
    except GitFailed as error:
        return Told(error=_why(workspace, error))


def _everything(workspace: Workspace) -> Told:
    try:
        if not workspace.repository:
            return Told(Standing(standing.files_of(workspace.directory)))
        found = worktrees.look(workspace)
        files = found.files
        if files.head and not files.upstream and Path(workspace.directory).exists():
            ahead, behind = standing.ahead_behind(workspace.directory, workspace.base)
            files = replace(files, ahead=ahead, behind=behind)
        gone = "" if Path(workspace.directory).exists() else f"{workspace.directory} does not exist"
        return Told(replace(found, files=files), error=gone, is_whole=True)
    except GitFailed as error:
        return Told(error=_why(workspace, error) if workspace.repository else "")


def _why(workspace: Workspace, error: GitFailed) -> str:
    missing = not Path(workspace.directory).exists()
    return f"{workspace.directory} does not exist" if missing else str(error)


def described(told: Told) -> dict[str, tuple[str, object]]:
    """As a D-Bus dictionary: each value with its type."""
    values: dict[str, tuple[str, object]] = {"error": ("s", told.error)} if told.error else {}
    if told.standing is None:
        return values
    files: Files = told.standing.files
    values |= {
        "branch": ("s", files.branch),
        "head": ("s", files.head),
        "upstream": ("s", files.upstream),
        "ahead": ("u", files.ahead),
        "behind": ("u", files.behind),
        "uncommitted": ("as", [_sendable(name) for name in files.uncommitted]),
        "untracked": ("as", [_sendable(name) for name in files.untracked]),
    }
    if told.is_whole:
        values |= {
            "unpushed": ("u", told.standing.unpushed),
            "ignored": ("as", [_sendable(name) for name in files.ignored]),
            "stashes": ("u", told.standing.stashes),
            "operation": ("s", told.standing.operation),
            "lost": ("as", [_sendable(words) for words in standing.lost(told.standing)]),
        }
    return values


def _sendable(name: str) -> str:
    """File names need not be text."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
