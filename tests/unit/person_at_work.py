"""What a person does in the worktrees of one repository, and how that can be told from what amuxd does."""

import contextlib
import functools
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from harness.repositories import commit, git, repository
from hypothesis import strategies as st

from amuxd.errors import WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import worktrees

INDEX = st.integers(0, 2)
# git ignores the whole of both, and one is filled by tools.
CACHE = "cache"
DATA = "data"
_UNDER_WAY = re.compile(r"rebas|merging|unmerged|cherry-pick|revert|bisect", re.IGNORECASE)


Method = TypeVar("Method", bound=Callable[..., None])
# Its name, and what it is told.
Step = tuple[str, dict[str, Any]]


def doing(weight: int = 1, **told: st.SearchStrategy[Any]) -> Callable[[Method], Method]:
    """Something that may happen, and how often it does."""

    def marked(method: Method) -> Method:
        step = st.tuples(st.just(method.__name__), st.fixed_dictionaries(told))
        method.steps = [step] * weight  # type: ignore[attr-defined]
        method.alone = told | {"index": st.just(0)}  # type: ignore[attr-defined]
        return method

    return marked


def steps(of: type) -> st.SearchStrategy[Step]:
    every = [step for method in vars(of).values() for step in getattr(method, "steps", [])]
    return st.sampled_from(every).flatmap(lambda step: step)


def names(of: type) -> list[str]:
    return [name for name, method in vars(of).items() if hasattr(method, "steps")]


def alone(of: type, name: str) -> st.SearchStrategy[Step]:
    """Where there is one worktree. They are few, so that hypothesis tries them all."""
    return st.tuples(st.just(name), st.fixed_dictionaries(getattr(of, name).alone))


@functools.cache
def _template() -> tempfile.TemporaryDirectory[str]:
    """Made once: what it takes is a dozen calls of git."""
    kept = tempfile.TemporaryDirectory(prefix="amux-test-")
    root = Path(kept.name)
    repo, library = repository(root / "code"), repository(root / "library")
    (repo / ".env").write_text("KEY=1")
    (repo / ".git/info/exclude").write_text(f"*.log\n/{CACHE}\n/{DATA}\n")
    git(repo, "submodule", "add", "-q", str(library), "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    for samples in root.rglob("hooks"):
        shutil.rmtree(samples)
    return kept


def _repository_with_submodule(root: Path) -> Path:
    template = _template().name
    shutil.copytree(template, root)
    repo = root / "code"
    for file in (*root.rglob("config"), repo / ".gitmodules"):
        file.write_text(file.read_text().replace(template, str(root)))
    git(repo, "commit", "-q", "-a", "--amend", "-m", "with a submodule")
    git(repo, "branch", "kept")
    return repo


class AtWork:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = _repository_with_submodule(root)
        self.workspaces: dict[str, Workspace] = {}
        self.commits: set[str] = {git(self.repo, "rev-parse", "HEAD")}
        # Those that are stashes, and the branch on which each was made.
        self.stashes: dict[str, str] = {}
        # What each changed file of a worktree has in it, by workspace.
        self.changed: dict[str, dict[str, str]] = {}
        # The same in its submodule, and commits there, with the workspace in whose submodule each was made.
        self.changed_below: dict[str, dict[str, str]] = {}
        self.commits_below: dict[str, str] = {}
        # Clones in a directory that git ignores, and the commit that is in this one alone.
        self.clones: dict[Path, str] = {}
        # Branches that the person made, and that amux was about to make.
        self.own: set[str] = {"kept"}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def pick(self, index: int) -> Workspace | None:
        usable = [w for w in self.workspaces.values() if Path(w.directory).exists()]
        return usable[index % len(usable)] if usable else None

    # Files.

    @doing(
        index=INDEX,
        name=st.sampled_from(
            ["file0", "new", "dir/new", ".env", "my.log", f"{CACHE}/plain", f"{DATA}/plain"]
        ),
    )
    def write(self, index: int, name: str) -> None:
        if workspace := self.pick(index):
            self.write_in(workspace, name)

    def write_in(self, workspace: Workspace, name: str) -> None:
        path = Path(workspace.directory) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.fresh())
        self.changed[workspace.id][name] = path.read_text()

    @doing(index=INDEX)
    def hide(self, index: int) -> None:
        """git is told not to look at it."""
        if workspace := self.pick(index):
            git(workspace.directory, "update-index", "--assume-unchanged", "file0", check=False)
            self.write_in(workspace, "file0")

    @doing(index=INDEX)
    def write_beside(self, index: int) -> None:
        """A name that differs in case alone, where git was told that such are the same."""
        if workspace := self.pick(index):
            git(self.repo, "config", "core.ignoreCase", "true")
            self.write_in(workspace, "FILE0")

    def shows_all(self, workspace: Workspace) -> None:
        """git itself would write over what it was told not to look at."""
        git(workspace.directory, "update-index", "--no-assume-unchanged", "file0", check=False)

    def learn(self, workspace: Workspace) -> None:
        """What the person committed, or threw away, is no changed file any more."""
        for name, text in [*self.changed[workspace.id].items()]:
            file = Path(workspace.directory) / name
            is_committed = git(workspace.directory, "show", f"HEAD:{name}", check=False) == text
            if is_committed or not file.exists() or file.read_text() != text:
                del self.changed[workspace.id][name]

    # Commits.

    @doing(index=INDEX, how=st.sampled_from(["on its branch", "on none", "left behind", "tagged"]))
    def commit(self, index: int, how: str) -> None:
        if workspace := self.pick(index):
            directory = workspace.directory
            self.shows_all(workspace)
            before = git(directory, "branch", "--show-current")
            if how != "on its branch":
                git(directory, "checkout", "-q", "--detach", check=False)
            self.commit_in(workspace)
            if how == "tagged":
                git(directory, "tag", self.fresh())
            if before and how in ("left behind", "tagged"):
                git(directory, "checkout", "-q", before, check=False)
            self.learn(workspace)

    def commit_in(self, workspace: Workspace) -> None:
        self.write_in(workspace, "file0")
        for words in (["add", "file0"], ["commit", "-q", "-m", "writes file0"]):
            git(workspace.directory, *words, check=False)
        self.commits.add(git(workspace.directory, "rev-parse", "HEAD"))

    @doing(index=INDEX, how=st.sampled_from(["amended", "gone back", "on another branch"]))
    def turn_away(self, index: int, how: str) -> None:
        """What was committed last is only in a reflog then, or on a branch that stays."""
        if workspace := self.pick(index):
            self.shows_all(workspace)
            words = {
                "amended": ["commit", "-q", "--amend", "--allow-empty", "-m", self.fresh()],
                "gone back": ["reset", "-q", "--keep", "HEAD~1"],
                "on another branch": ["switch", "-q", "-c", self.fresh()],
            }
            git(workspace.directory, *words[how], check=False)
            self.commits.add(git(workspace.directory, "rev-parse", "HEAD"))
            self.learn(workspace)

    @doing(index=INDEX)
    def go_back_after_a_refusal(self, index: int) -> None:
        """What a removal by force kept, which was refused then, is on the branch no more."""
        if (workspace := self.pick(index)) and self.is_on_its_branch(workspace):
            directory = workspace.directory
            self.shows_all(workspace)
            self.commit_in(workspace)
            git(directory, "checkout", "-q", "--detach", "HEAD~1", check=False)
            with contextlib.suppress(WorkspaceDirty):
                worktrees.keep_ahead(workspace, force=True)
            git(directory, "checkout", "-q", workspace.branch, check=False)
            git(directory, "reset", "-q", "--keep", "HEAD~1", check=False)
            self.learn(workspace)

    def is_on_its_branch(self, workspace: Workspace) -> bool:
        return git(workspace.directory, "branch", "--show-current") == workspace.branch

    @doing(index=INDEX)
    def stash(self, index: int) -> None:
        if workspace := self.pick(index):
            self.shows_all(workspace)
            self.write_in(workspace, "file0")
            before = git(self.repo, "stash", "list")
            git(workspace.directory, "stash", check=False)
            if git(self.repo, "stash", "list") != before:
                tip = git(self.repo, "rev-parse", "refs/stash")
                self.commits.add(tip)
                self.stashes[tip] = git(workspace.directory, "branch", "--show-current")
            self.learn(workspace)

    @doing(2, index=INDEX, merges=st.booleans())
    def finish(self, index: int, merges: bool) -> None:
        """Everything that lies about is committed, but for what tools fill."""
        if workspace := self.pick(index):
            self.shows_all(workspace)
            git(workspace.directory, "add", "--all", "--force", "--", ".", f":!{CACHE}")
            git(workspace.directory, "commit", "-q", "--allow-empty", "-m", "everything", check=False)
            self.commits.add(git(workspace.directory, "rev-parse", "HEAD"))
            self.learn(workspace)
            if merges:
                self.merge(workspace)

    def merge(self, workspace: Workspace) -> None:
        tip = git(workspace.directory, "rev-parse", "HEAD")
        git(self.repo, "merge", "-q", "-s", "ours", "--allow-unrelated-histories", "-m", "merged", tip)
        self.commits.add(git(self.repo, "rev-parse", "HEAD"))

    @doing(
        2,
        index=INDEX,
        what=st.sampled_from(["bisect", "rebase", "merge", "cherry-pick"]),
        conflicts=st.booleans(),
        settled=st.booleans(),
    )
    def leave_under_way(self, index: int, what: str, conflicts: bool, settled: bool) -> None:
        """With files that git cannot merge, or with these settled, or with none that is changed."""
        if workspace := self.pick(index):
            directory = workspace.directory
            self.shows_all(workspace)
            if conflicts or what == "merge":
                self.commits.add(commit(self.repo, "file0", self.fresh()))
            if conflicts:
                self.commit_in(workspace)
            words = {
                ("bisect", False): ["bisect", "start"],
                ("bisect", True): ["bisect", "start"],
                ("rebase", False): ["-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD"],
                ("rebase", True): ["rebase", "-q", "main"],
                ("merge", False): ["merge", "-q", "--no-commit", "--no-ff", "-s", "ours", "main"],
                ("merge", True): ["merge", "-q", "main"],
                ("cherry-pick", False): ["cherry-pick", "--allow-empty", "HEAD"],
                ("cherry-pick", True): ["cherry-pick", "main"],
            }
            git(directory, *words[what, conflicts], check=False)
            if settled:
                git(directory, "checkout", "-q", "--ours", "file0", check=False)
                git(directory, "add", "file0", check=False)
            self.learn(workspace)

    @doing(index=INDEX)
    def give_up(self, index: int) -> None:
        if workspace := self.pick(index):
            for words in (
                ["bisect", "reset"],
                *([verb, "--abort"] for verb in ("rebase", "merge", "cherry-pick")),
            ):
                git(workspace.directory, *words, check=False)
            self.learn(workspace)

    def is_under_way(self, directory: Path) -> bool:
        """A submodule whose files were taken away has no status."""
        words = ["--no-optional-locks", "status", "--untracked-files=no", "--ignore-submodules=all"]
        told = git(directory, *words, check=False).splitlines()
        return any(_UNDER_WAY.search(line) for line in told if not line.startswith("\t"))

    # Other repositories in it.

    @doing(2, index=INDEX, works=st.booleans())
    def clone(self, index: int, works: bool) -> None:
        """Somebody may work in it, and name what comes of it by a tag alone."""
        if workspace := self.pick(index):
            clone = Path(workspace.directory) / CACHE / self.fresh()
            git(self.repo, "clone", "-q", str(self.repo), str(clone))
            if works:
                git(clone, "checkout", "-q", "--detach")
                self.clones[clone] = commit(clone, "file0", self.fresh())
                git(clone, "tag", "mine")
                git(clone, "checkout", "-q", "main")
                git(clone, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")

    def in_submodule(self, index: int) -> tuple[Workspace, Path] | None:
        """Of a workspace in which it was fetched, be it now."""
        workspace = self.pick(index)
        # Who went far back has none.
        if workspace is None or not git(workspace.directory, "ls-files", "lib"):
            return None
        inner = Path(workspace.directory) / "lib"
        if not (inner / ".git").exists():
            git(workspace.directory, "submodule", "update", "-q", "--init", "lib")
        # It is not fetched where it is part of a conflict.
        return (workspace, inner) if (inner / ".git").exists() else None

    def submodule_of(self, workspace: Workspace) -> Path | None:
        """What git keeps of it, also where its files are not there any more."""
        link = Path(workspace.directory) / ".git"
        own = Path(link.read_text().split()[1], "modules/lib") if link.exists() else None
        return own if own and own.exists() else None

    @doing(index=INDEX, name=st.sampled_from(["file0", "new"]), hidden=st.booleans())
    def write_below(self, index: int, name: str, hidden: bool) -> None:
        if found := self.in_submodule(index):
            workspace, inner = found
            if hidden:
                git(inner, "update-index", "--assume-unchanged", "file0")
            (inner / name).write_text(self.fresh())
            self.changed_below[workspace.id][name] = (inner / name).read_text()

    @doing(index=INDEX, how=st.sampled_from(["stays", "left behind", "tagged", "stashed"]))
    def commit_below(self, index: int, how: str) -> None:
        """It is what is checked out then, or left behind, or at a tag alone."""
        if found := self.in_submodule(index):
            workspace, inner = found
            if how == "stashed":
                git(inner, "update-index", "--no-assume-unchanged", "file0")
                (inner / "file0").write_text(self.fresh())
                git(inner, "stash")
                self.changed_below[workspace.id].pop("file0", None)
                self.commits_below[git(inner, "rev-parse", "refs/stash")] = workspace.id
                return
            before = git(inner, "rev-parse", "HEAD")
            self.commits_below[commit(inner, "committed", self.fresh())] = workspace.id
            if how == "tagged":
                git(inner, "tag", "-a", "-m", "mine", self.fresh())
            if how != "stays":
                git(inner, "checkout", "-q", before)

    @doing(index=INDEX, what=st.sampled_from(["bisect", "merge"]))
    def leave_under_way_below(self, index: int, what: str) -> None:
        if found := self.in_submodule(index):
            _, inner = found
            git(inner, *{"bisect": ["bisect", "start"], "merge": ["cherry-pick", "HEAD"]}[what], check=False)

    @doing(index=INDEX)
    def finish_below(self, index: int) -> None:
        """What lies about there is on its remote then."""
        if found := self.in_submodule(index):
            workspace, inner = found
            git(inner, "update-index", "--no-assume-unchanged", "file0")
            git(inner, "add", "--all")
            git(inner, "commit", "-q", "--allow-empty", "-m", "everything")
            git(inner, "push", "-q", "origin", f"HEAD:refs/heads/{self.fresh()}")
            self.changed_below[workspace.id] = {}

    @doing(index=INDEX)
    def take_submodule_away(self, index: int) -> None:
        """With all that is not committed in it."""
        if found := self.in_submodule(index):
            workspace, _ = found
            git(workspace.directory, "submodule", "deinit", "-q", "--force", "lib")
            self.changed_below[workspace.id] = {}
