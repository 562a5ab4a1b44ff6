"""What is told of how workspaces stand: several are looked at side by side."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from amuxd.git import GitFailed, programs_in
from amuxd.records import Workspace
from amuxd.workspaces import standing, worktrees
from amuxd.workspaces.directories import Presence, look_at_all, look_in_time
from amuxd.workspaces.ledger import UnreadableWorkspace
from amuxd.workspaces.standing import Files, Standing

PROCESSORS = os.cpu_count() or 1

Result = TypeVar("Result")


@dataclass(frozen=True)
class Told:
    """What git says of a workspace, or why it cannot say."""

    standing: Standing | None = None
    error: str = ""
    # The error in a word or two.
    problem: str = ""
    is_whole: bool = False
    # Of its directory, by one look that nothing depends on.
    presence: Presence = Presence.UNKNOWN


def not_readable(workspace: UnreadableWorkspace) -> Told:
    return Told(error=f"{workspace.problem}: {workspace.why}", problem=workspace.problem)


class Teller:
    def __init__(self) -> None:
        # Whoever asks for one is not held up by those in a list that do not answer.
        self._pool = ThreadPoolExecutor(max(8, 2 * PROCESSORS), "git")

    async def all(self, workspaces: Sequence[Workspace]) -> list[Told]:
        """Branch and files of each, by one question to git."""
        looks = await look_at_all([workspace.directory for workspace in workspaces])
        found: dict[str, Told] = {}
        # Of all threads together: which takes the next one is not decided by the loop, which may be busy.
        to_be_asked = iter(list(zip(workspaces, looks, strict=True)))

        def ask_in_turn() -> None:
            for workspace, presence in to_be_asked:
                found[workspace.id] = _asked(_files, workspace, presence)

        # One more than compute: another is about to begin where one ends.
        threads = min(len(workspaces), PROCESSORS + 1)
        await asyncio.gather(*(self._in_thread(ask_in_turn) for _ in range(threads)))
        return await asyncio.gather(
            *(
                _explained(workspace, presence, found[workspace.id])
                for workspace, presence in zip(workspaces, looks, strict=True)
            )
        )

    async def one(self, workspace: Workspace) -> Told:
        """Everything of one."""
        presence = await look_in_time(workspace.directory, None)
        told = await self._in_thread(_asked, _everything, workspace, presence)
        return await _explained(workspace, presence, told)

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)


def _asked(ask: Callable[[Workspace, Presence], Told], workspace: Workspace, presence: Presence) -> Told:
    """What does not answer holds up none of those that ask."""
    if presence is Presence.UNKNOWN:
        return Told(error=f"{workspace.directory} is out of reach", problem="out of reach")
    try:
        return ask(workspace, presence)
    except GitFailed as error:
        return Told(error=str(error), problem="unknown")


async def _explained(workspace: Workspace, presence: Presence, told: Told) -> Told:
    told = replace(told, presence=presence)
    if presence is Presence.GONE:
        return replace(told, error=f"{workspace.directory} does not exist", problem="missing")
    if (
        presence is Presence.PRESENT
        and told.error
        and workspace.repository
        and await look_in_time(workspace.repository, None) is Presence.GONE
    ):
        why = f"its repository {workspace.repository} does not exist"
        return replace(told, error=why, problem="no repository")
    return told


def _files(workspace: Workspace, presence: Presence) -> Told:
    if not workspace.repository or presence is Presence.GONE:
        return Told()
    return _told(_files_of(workspace, one_of_many=True))


def _files_of(workspace: Workspace, one_of_many: bool = False) -> Standing:
    programs = programs_in(workspace.search_path)
    return Standing(standing.files_of(workspace.directory, programs, one_of_many=one_of_many))


def _told(found: Standing, is_whole: bool = False) -> Told:
    return Told(found, error=standing.without_filters(found.files), is_whole=is_whole)


def _everything(workspace: Workspace, presence: Presence) -> Told:
    if not workspace.repository:
        # A directory that was given need not be one that git knows.
        with contextlib.suppress(GitFailed):
            return _told(standing.of_given(workspace.directory, programs_in(workspace.search_path)))
        return Told()
    found = worktrees.look(workspace)
    files = found.files
    if files.head and not files.upstream and presence is Presence.PRESENT:
        ahead, behind = standing.ahead_behind(workspace.directory, workspace.base)
        files = replace(files, ahead=ahead, behind=behind)
    return _told(replace(found, files=files), is_whole=True)


def described(told: Told) -> dict[str, tuple[str, object]]:
    """As a D-Bus dictionary: each value with its type."""
    values: dict[str, tuple[str, object]] = {}
    if told.error:
        values["error"] = ("s", told.error)
    if told.problem:
        values["problem"] = ("s", told.problem)
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
    if told.is_whole or told.standing.git_directory:
        values |= {
            "stashes": ("u", told.standing.stashes),
            "operation": ("s", told.standing.operation),
        }
    if told.is_whole:
        values |= {
            "unpushed": ("u", told.standing.unpushed),
            "ignored": ("as", [_sendable(name) for name in files.ignored]),
            "ignored_directories": ("as", [_sendable(name) for name in files.ignored_directories]),
            "lost": ("as", [_sendable(words) for words in standing.thrown_away(told.standing)]),
        }
    return values


def _sendable(name: str) -> str:
    """File names need not be text."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
