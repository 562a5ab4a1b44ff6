"""What is told of how workspaces stand: several are looked at side by side."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from amuxd.git import GitFailed, programs_in
from amuxd.records import Workspace
from amuxd.workspaces import standing, worktrees
from amuxd.workspaces.directories import Presence, look_at_all
from amuxd.workspaces.hidden import told_as_by_git
from amuxd.workspaces.in_common import InCommon, against_base
from amuxd.workspaces.ledger import UnreadableWorkspace
from amuxd.workspaces.losses import thrown_away, without_filters
from amuxd.workspaces.standing import Files, Standing

PROCESSORS = os.cpu_count() or 1
# Where git does not answer, and how many are asked about other worktrees meanwhile.
_HELD_UP = 1.0
_MOST_AT_ONCE = 16
# A message on the bus has an end, and who lists counts these.
_NAMED_IN_LIST, _NAMED = 1000, 20_000


@dataclass(frozen=True)
class Told:
    """What git says of a workspace, or why it cannot say."""

    standing: Standing | None = None
    error: str = ""
    # The error in a word or two.
    problem: str = ""
    is_whole: bool = False
    presence: Presence = Presence.UNKNOWN


def not_readable(workspace: UnreadableWorkspace) -> Told:
    return Told(error=f"{workspace.problem}: {workspace.why}", problem=workspace.problem)


class Teller:
    def __init__(self, watched: Mapping[str, Presence]) -> None:
        # By those who watch the directories, for the workspaces that somebody works in.
        self._watched = watched
        # Whoever asks for one is not held up by those in a list that do not answer.
        self._one = ThreadPoolExecutor(max(8, 2 * PROCESSORS), "git")
        self._lists = ThreadPoolExecutor(2 * _MOST_AT_ONCE, "git for lists")

    async def all(self, workspaces: Sequence[Workspace]) -> list[Told]:
        """Branch and files of each, by one question to git."""
        looks = await self._look(workspaces)
        ask = partial(_files, InCommon())
        told: dict[str, Told] = {}
        # Of all threads together: which takes the next one is not decided by the loop, which may be busy.
        to_be_asked = iter(list(zip(workspaces, looks, strict=True)))

        def ask_in_turn() -> None:
            for workspace, look in to_be_asked:
                told[workspace.id] = _asked(ask, workspace, look)

        def begin() -> "asyncio.Future[None]":
            return asyncio.get_running_loop().run_in_executor(self._lists, ask_in_turn)

        # More than compute at the same time would be in each other's way.
        asking = {begin() for _ in range(min(len(workspaces), PROCESSORS))}
        begun, known = len(asking), 0
        while asking:
            done, asking = await asyncio.wait(asking, timeout=_HELD_UP)
            for thread in done:
                thread.result()
            is_held_up = not done and len(told) == known
            if is_held_up and begun < min(len(workspaces), _MOST_AT_ONCE):
                asking.add(begin())
                begun += 1
            known = len(told)
        return [told[workspace.id] for workspace in workspaces]

    async def one(self, workspace: Workspace) -> Told:
        """Everything of one."""
        [look] = await self._look([workspace])
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._one, _asked, _everything, workspace, look)

    async def _look(self, workspaces: Sequence[Workspace]) -> list["_Look"]:
        directories = [workspace.directory for workspace in workspaces]
        repositories = [workspace.repository or workspace.directory for workspace in workspaces]
        seen = dict(zip(places := [*directories, *repositories], await look_at_all(places), strict=True))
        return [
            _Look(self._known(workspace, seen[directory]), seen[repository])
            for workspace, directory, repository in zip(workspaces, directories, repositories, strict=True)
        ]

    def _known(self, workspace: Workspace, seen: Presence) -> Presence:
        """Who watches it knows what is mounted over it, and seen in its place; else the newer word counts."""
        return Presence.UNKNOWN if self._watched.get(workspace.id) is Presence.UNKNOWN else seen


class _Look(NamedTuple):
    directory: Presence
    # That of the directory where there is none.
    repository: Presence


def _asked(ask: Callable[[Workspace, Presence], Told], workspace: Workspace, look: _Look) -> Told:
    """What does not answer holds up none of those that ask."""
    told = _said(ask, workspace, look)
    if look.directory is Presence.GONE:
        told = replace(told, error=f"{workspace.directory} does not exist", problem="missing")
    elif told.error and look.repository is Presence.GONE:
        why = f"its repository {workspace.repository} does not exist"
        told = replace(told, error=why, problem="no repository")
    return replace(told, presence=look.directory)


def _said(ask: Callable[[Workspace, Presence], Told], workspace: Workspace, look: _Look) -> Told:
    if look.directory is Presence.UNKNOWN:
        return Told(error=f"{workspace.directory} is out of reach", problem="out of reach")
    if look.repository is Presence.UNKNOWN:
        return Told(error=f"its repository {workspace.repository} is out of reach", problem="out of reach")
    try:
        with told_as_by_git():
            return ask(workspace, look.directory)
    except GitFailed as error:
        return Told(error=str(error), problem="unknown")


def _files(common: InCommon, workspace: Workspace, presence: Presence) -> Told:
    if presence is Presence.GONE:
        return Told()
    if not workspace.repository:
        # A directory that was given need not be one that git knows.
        with contextlib.suppress(GitFailed):
            return _told(Standing(common.files_of_given(workspace)))
        return Told()
    return _told(Standing(common.files_of(workspace)))


def _told(found: Standing, is_whole: bool = False) -> Told:
    return Told(found, error=without_filters(found.files), is_whole=is_whole)


def _everything(workspace: Workspace, presence: Presence) -> Told:
    if not workspace.repository:
        # A directory that was given need not be one that git knows.
        with contextlib.suppress(GitFailed):
            return _told(standing.of_given(workspace.directory, programs_in(workspace.search_path)))
        return Told()
    found = worktrees.look(workspace)
    if presence is Presence.PRESENT:
        found = replace(found, files=against_base(found.files, workspace))
    return _told(found, is_whole=True)


def described(told: Told) -> dict[str, tuple[str, object]]:
    """As a D-Bus dictionary: each value with its type."""
    values: dict[str, tuple[str, object]] = {"presence": ("s", told.presence.value)}
    if told.error:
        values["error"] = ("s", told.error)
    if told.problem:
        values["problem"] = ("s", told.problem)
    if told.standing is None:
        return values
    files: Files = told.standing.files
    most = _NAMED if told.is_whole else _NAMED_IN_LIST
    values |= {
        "branch": ("s", files.branch),
        "head": ("s", files.head),
        "upstream": ("s", files.upstream),
        "ahead": ("u", files.ahead),
        "behind": ("u", files.behind),
        "uncommitted": ("as", _sendable(files.uncommitted[:most])),
        "uncommitted_count": ("u", len(files.uncommitted)),
        "untracked": ("as", _sendable(files.untracked[:most])),
        "untracked_count": ("u", len(files.untracked)),
    }
    if told.is_whole or told.standing.git_directory:
        values |= {
            "stashes": ("u", told.standing.stashes),
            "operation": ("s", told.standing.operation),
        }
    if told.is_whole:
        values |= {
            "unpushed": ("u", told.standing.unpushed),
            "ignored": ("as", _sendable(files.ignored[:most])),
            "changed_copies": ("as", _sendable(files.changed_copies[:most])),
            "ignored_directories": ("as", _sendable(files.ignored_directories[:most])),
            "lost": ("as", _sendable(thrown_away(told.standing))),
        }
    return values


def _sendable(names: Sequence[str]) -> list[str]:
    """File names need not be text."""
    return [name.encode(errors="surrogateescape").decode(errors="replace") for name in names]
