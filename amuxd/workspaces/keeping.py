"""What would be lost with a worktree gets a name, so that git keeps it; nothing is kept by mere hope."""

import contextlib
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from amuxd.git import LONG, GitFailed, git
from amuxd.lines import lines_of
from amuxd.records import Workspace
from amuxd.workspaces import hidden, standing
from amuxd.workspaces.standing import Standing, submodule_directories

_KEPT = "refs/amux/removed"
_ELSEWHERE = ("--branches", "--remotes", "--tags", f"--glob={_KEPT}", "--glob=refs/stash")
# Of git-lfs, and of git-annex.
_FILES_OF_FILTERS = ("lfs/objects", "annex/objects")
# git config, of what there is none of.
_NOT_SET = 5
_FETCH = (
    *("-c", "protocol.version=2", "fetch", "--quiet", "--stdin", "--no-tags", "--no-prune"),
    *("--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance"),
)
# What git does not take in the name of a ref, and what these are written with.
_UNFIT = re.compile(r"[\x00-\x20\x7f~^:?*\[\\{%]|(?<![^/.])\.|\.(?=\.|/|$)|\.(?=lock(?:/|$))")


def stem(workspace: Workspace) -> str:
    return f"{_KEPT}/{workspace.id}"


def held(workspace: Workspace) -> dict[str, str]:
    """What is kept of it so far: also by a removal that was refused or killed then."""
    told = git(workspace.repository, "for-each-ref", "--format=%(objectname) %(refname)", stem(workspace))
    return {ref: name for name, ref in (line.split(" ", 1) for line in lines_of(told))}


def hold(workspace: Workspace, what: str, name: str) -> str:
    """By a ref that holds nothing else: that may be had nowhere but there."""
    so_far = held(workspace)
    refs = (f"{stem(workspace)}/{what}{f'-{number}' if number else ''}" for number in itertools.count())
    ref = next(ref for ref in refs if so_far.get(ref, name) == name)
    git(workspace.repository, "update-ref", ref, name)
    return ref


def keep(workspace: Workspace, found: Standing) -> list[str]:
    """Where it is to be had; raises GitFailed where something is to be had nowhere."""
    repository, own = workspace.repository, found.made_branch
    names = {tip: f"tip{number}" for number, tip in enumerate(found.tips)}
    names |= {standing.tip_of(repository, own): "branch", found.files.head: "head"}
    names |= {tip: f"autostash{number or ''}" for number, tip in enumerate(found.autostashes)}
    tips = [*found.tips, *found.autostashes]
    kept = []
    for tip in tips:
        if standing.only_here(repository, [tip], [own]):
            kept.append(hold(workspace, names[tip], tip))
    if kept:
        _be_sure(f"commits of {workspace.name}", _nowhere(repository, tips, own))
    kept += [hold(workspace, f"object{number}", name) for number, name in enumerate(found.objects)]
    if found.stashes:
        kept.append("the stash, which is the repository's")
    kept += _keep_abandoned(workspace, found)
    return kept + _keep_submodules(workspace, found.git_directory) if found.git_directory else kept


def _nowhere(repository: str, commits: Sequence[str], own: str) -> list[str]:
    excluded = [f"--exclude={own}"] if own else []
    return hidden.known_by(partial(git, repository), commits, *excluded, *_ELSEWHERE)


def _be_sure(what: str, missing: Sequence[str]) -> None:
    if missing:
        raise GitFailed([], -1, f"{what} cannot be kept: {missing[0]}")


def _keep_abandoned(workspace: Workspace, found: Standing) -> list[str]:
    """Commits that were amended or left lead on in a reflog, for as long as git keeps such."""
    repository, ref = workspace.repository, f"{stem(workspace)}/log"
    ask = partial(git, repository)
    own = found.git_directory
    logged = [*hidden.noted_of_its_own(own), *hidden.logged_of_its_own(own)] if own else []
    logged += hidden.logged(ask, f"refs/heads/{found.made_branch}") if found.made_branch else []
    abandoned = _nowhere(repository, logged, found.made_branch)
    if not abandoned:
        return []
    for expiry in ("reflogExpire", "reflogExpireUnreachable"):
        # git gc would clear them away after a month.
        git(repository, "config", f"gc.{_KEPT}/*.{expiry}", "never")
    head = [found.files.head] if found.files.head else []
    for commit in (*reversed(abandoned), *head):
        message = f"amux: was in the reflog of {workspace.name}"
        git(repository, "update-ref", "--create-reflog", "-m", message, ref, commit)
    _be_sure("what was amended or left", sorted(set(abandoned) - set(hidden.logged(ask, ref))))
    return [f"{ref}, whose reflog has {len(abandoned)} that were amended or left"]


def _keep_submodules(workspace: Workspace, own: Path) -> list[str]:
    modules = own / "modules"
    with_work = [(at, hidden.all_of_its_own(at)) for at in submodule_directories(modules)]
    return [
        _keep_submodule(workspace, at, str(at.relative_to(modules)), work) for at, work in with_work if work
    ]


def _keep_submodule(workspace: Workspace, submodule: Path, name: str, work: Sequence[str]) -> str:
    """As refs of the repository, else as a repository beside its own: a shallow one would make that one
    shallow as well, and one that lacks something cannot be fetched from."""
    fit = _UNFIT.sub(lambda unfit: f"%{ord(unfit[0]):02X}", name)
    goal = f"{stem(workspace)}/submodules/{fit}"
    # What git has of a file of theirs is only where it is.
    if not any((submodule / name).is_dir() for name in _FILES_OF_FILTERS):
        with contextlib.suppress(GitFailed):
            _fetch(workspace.repository, submodule, goal)
            if not hidden.known_by(partial(git, workspace.repository), work, f"--glob={goal}/*"):
                return f"{goal}/*"
    try:
        place = _copy(_place_for(workspace) / name, submodule, work)
    except OSError as error:
        raise GitFailed([], -1, f"commits of submodule {name} cannot be kept: {_why(error)}") from error
    return f"{place}, the repository of submodule {name}"


def _fetch(repository: str, submodule: Path, goal: str) -> None:
    wanted = [f"+refs/*:{goal}/*", "^refs/remotes/*"]
    with contextlib.suppress(GitFailed):
        # Where it is on a branch without a commit there is none.
        hidden.asked(submodule, "rev-parse", "--verify", "--quiet", "HEAD")
        wanted.append(f"+HEAD:{goal}/HEAD")
    wanted += [f"+{commit}:{goal}/abandoned/{commit}" for commit in hidden.abandoned(submodule)]
    # Its own files may be gone, and git would look for these.
    uploading = f"GIT_WORK_TREE={shlex.quote(str(submodule))} git-upload-pack"
    words = [*_FETCH, f"--upload-pack={uploading}", str(submodule)]
    git(repository, *words, input="".join(f"{ref}\n" for ref in wanted), deadline=LONG)


def _place_for(workspace: Workspace) -> Path:
    return standing.common_directory(workspace.repository) / "amux/removed" / workspace.id / "submodules"


def _copy(goal: Path, submodule: Path, work: Sequence[str]) -> Path:
    """git writes none of these files anew, so that links to them do."""
    for number in itertools.count():
        place = goal.with_name(f"{goal.name}-{number}") if number else goal
        if not os.path.lexists(place):
            try:
                shutil.copytree(submodule, place, symlinks=True, copy_function=_link)
                _let_go_of_its_files(place)
                _be_sure(str(place), sorted(set(work) - set(hidden.all_of_its_own(place))))
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
            return place
        # As it was kept for a removal that was refused then, or with the one that it is a submodule of.
        with contextlib.suppress(GitFailed):
            if set(work) <= set(hidden.all_of_its_own(place)):
                _let_go_of_its_files(place)
                return place
    raise AssertionError


def _why(error: OSError) -> str:
    """Of a whole tree it is a list: from where, to where, and why not."""
    why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
    return str(why)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _let_go_of_its_files(own: Path) -> None:
    for config in (own / "config", own / "config.worktree"):
        if config.is_file():
            try:
                git(own.parent, "config", "--file", str(config), "--unset-all", "core.worktree")
            except GitFailed as error:
                if error.code != _NOT_SET:
                    raise
    git(own.parent, "config", "--file", str(own / "config"), "core.bare", "true")
