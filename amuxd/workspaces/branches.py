"""The branch that amux made for a workspace: told from one of the same name, and deleted with it."""

import re

from amuxd.git import GitFailed, git
from amuxd.lines import lines_of
from amuxd.records import Workspace
from amuxd.workspaces import keeping, standing
from amuxd.workspaces.keeping import stem
from amuxd.workspaces.standing import has_ref

_IN_FULL = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.abbrev", "GIT_CONFIG_VALUE_0": "no"}
_WAS = re.compile(r"\(was ([0-9a-f]+)\)\.$", re.MULTILINE)


def mark(workspace: Workspace) -> str:
    """For its reflog, which goes where the branch goes: when it is renamed or deleted."""
    return f"amux: made for workspace {workspace.id}"


def has_made(workspace: Workspace) -> bool:
    """Not one that somebody else made, renamed or made anew, nor one whose reflog says no more who did."""
    words = ["log", "-g", "--no-show-signature", "--format=%gs", f"refs/heads/{workspace.branch}", "--"]
    try:
        *since, first = lines_of(git(workspace.repository, *words)) or [""]
    except GitFailed as error:
        if error.code < 0:
            raise
        return False
    return first == mark(workspace) and not any(told.startswith("branch:") for told in since)


def made(workspace: Workspace) -> str:
    """Its name, if there is one that amux made; one that amux did not make is nobody's to delete."""
    return workspace.branch if workspace.made_branch and has_made(workspace) else ""


def delete(workspace: Workspace, branch: str, force: bool) -> list[str]:
    """What is kept of it all the same: it goes only if its commits are elsewhere, also once it is gone."""
    repository = workspace.repository
    if not branch:
        is_there = workspace.made_branch and has_ref(repository, f"refs/heads/{workspace.branch}")
        return [f"branch {workspace.branch}, of which git does not say that amux made it"] if is_there else []
    tip = standing.tip_of(repository, branch)
    if not tip:
        return []
    kept_before = keeping.held(workspace)
    # A commit may have come in after the look, through another worktree say.
    try:
        if not force and standing.unpushed(repository, [tip], "", branch):
            return [f"branch {branch}, which has got more commits meanwhile"]
        held = keeping.hold(workspace, "branch", tip)
    except GitFailed as error:
        return [f"branch {branch} ({error})"]
    try:
        # Of one that stands for another branch git tells the name of that.
        said = _WAS.findall(git(repository, "branch", "-D", branch, environment=_IN_FULL))
        tip = next(iter(said), tip)
    except GitFailed as error:
        if held not in kept_before:
            git(repository, "update-ref", "-d", held)
        return [f"branch {branch} ({error})"]
    # Who deletes another branch at this moment has it held as well before he looks: one of both keeps it.
    elsewhere = ["--branches", "--remotes", "--tags", f"--exclude={held}", f"--glob={stem(workspace)}/*"]
    try:
        if int(git(repository, "rev-list", "--count", tip, "--not", *elsewhere)):
            if held in kept_before:
                return [keeping.hold(workspace, "branch", tip)]
            git(repository, "update-ref", held, tip)
            return [held]
        if held not in kept_before:
            git(repository, "update-ref", "-d", held)
    except GitFailed:
        # Nobody can tell whether it is elsewhere: what holds it stays.
        return [held]
    return []
