"""Whatever is done with workspaces, no commit and no changed file becomes unreachable without --force."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import commit, git, repository

from amuxd.errors import InvalidArgument, WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import aside, branches, standing, worktrees
from amuxd.workspaces.worktrees import Wish


class Crash(BaseException):
    """amuxd is killed at this point."""


class Life:
    """One repository, a few workspaces, and a person who works in them; amuxd is killed now and then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = repository(self.root / "code")
        (self.repo / ".env").write_text("KEY=1")
        (self.repo / ".git/info/exclude").write_text("*.log\n/cache\n")
        git(self.repo, "submodule", "add", "-q", str(repository(self.root / "library")), "lib")
        git(self.repo, "commit", "-q", "-m", "with a submodule")
        self.workspaces: dict[str, Workspace] = {}
        self.commits: set[str] = {git(self.repo, "rev-parse", "HEAD")}
        # What each changed file of a worktree has in it, by workspace.
        self.changed: dict[str, dict[str, str]] = {}
        # The same in its submodule, and commits there, with the workspace in whose submodule each was made.
        self.changed_below: dict[str, dict[str, str]] = {}
        self.commits_below: dict[str, str] = {}
        # Clones in a directory that git ignores, and the commit that is in this one alone.
        self.clones: dict[Path, str] = {}
        # Branches that the person made, and that amux was about to make.
        self.own: set[str] = set()
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def pick(self, index: int) -> Workspace | None:
        usable = [w for w in self.workspaces.values() if Path(w.directory).exists()]
        if not usable:
            return None
        # git itself would write over what it was told not to look at.
        git(usable[index % len(usable)].directory, "update-index", "--no-assume-unchanged", "file0")
        return usable[index % len(usable)]

    def add(self, crashes: bool = False, branch: str = "", copies: bool = False) -> None:
        key = self.fresh()
        if branch == "kept" and not standing.has_ref(str(self.repo), "refs/heads/kept"):
            git(self.repo, "branch", "kept")
        named = f"{branch}{self.count}" if branch == "new" else branch
        wish = Wish(str(self.repo), named, copy=[".env"] if copies else [])
        try:
            planned = worktrees.planned(Workspace(key, key, "", 1), wish, self.root / "worktrees")
            made = worktrees.make(planned, wish)
        except InvalidArgument:
            return
        if crashes:
            assert not worktrees.recovered(planned)
            return
        self.workspaces[key] = made
        self.changed[key] = {}
        self.changed_below[key] = {}

    def take_the_branch_of_an_add(self, crashes: bool) -> None:
        """The person makes it just before amux does, or just after amuxd was killed."""
        key = self.fresh()
        wish = Wish(str(self.repo))
        planned = worktrees.planned(Workspace(key, key, "", 1), wish, self.root / "worktrees")
        git(self.repo, "branch", planned.branch)
        self.own.add(planned.branch)
        if crashes:
            assert not worktrees.recovered(planned)
            return
        with pytest.raises(InvalidArgument):
            worktrees.make(planned, wish)

    def add_two_at_once(self, crashes: bool) -> None:
        """Both want the same directory, and one has worked in it before the other comes."""
        stem = self.fresh()
        wish = Wish(str(self.repo))
        first, second = (
            worktrees.planned(Workspace(f"{stem}{key}", name, "", 1), wish, self.root / "worktrees")
            for key, name in (("a", f"{stem}/x"), ("b", f"{stem}-x"))
        )
        made = self.workspaces[first.id] = worktrees.make(first, wish)
        new = Path(made.directory) / "new"
        new.write_text(stem)
        self.changed[first.id] = {"new": stem}
        self.changed_below[first.id] = {}
        if crashes:
            assert not worktrees.recovered(second)
            return
        with pytest.raises(InvalidArgument):
            worktrees.make(second, wish)

    def dirty(self, index: int, name: str) -> None:
        if workspace := self.pick(index):
            path = Path(workspace.directory) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.fresh())
            self.changed[workspace.id][name] = path.read_text()

    def commit(self, index: int, detached: bool) -> None:
        if workspace := self.pick(index):
            if detached:
                git(workspace.directory, "checkout", "-q", "--detach")
            self.commits.add(commit(workspace.directory, "file0", self.fresh()))
            self.changed[workspace.id].pop("file0", None)

    def switch(self, index: int) -> None:
        if workspace := self.pick(index):
            git(workspace.directory, "switch", "-q", "-c", self.fresh(), check=False)

    def amend(self, index: int) -> None:
        if workspace := self.pick(index):
            git(workspace.directory, "commit", "-q", "--amend", "--allow-empty", "-m", self.fresh())
            self.commits.add(git(workspace.directory, "rev-parse", "HEAD"))

    def go_back(self, index: int) -> None:
        """What was committed last is only in the reflog then."""
        if workspace := self.pick(index):
            git(workspace.directory, "reset", "-q", "--keep", "HEAD~1", check=False)

    def leave(self, index: int) -> None:
        """A commit on no branch, and away from it."""
        if workspace := self.pick(index):
            before = git(workspace.directory, "branch", "--show-current")
            self.commit(index, detached=True)
            if before:
                git(workspace.directory, "checkout", "-q", before, check=False)

    def tag(self, index: int) -> None:
        """A commit that no branch leads to is given a name."""
        if workspace := self.pick(index):
            before = git(workspace.directory, "branch", "--show-current")
            self.commit(index, detached=True)
            git(workspace.directory, "tag", self.fresh())
            if before:
                git(workspace.directory, "checkout", "-q", before, check=False)

    def clone(self, index: int, works: bool) -> None:
        """Somebody may work in it, and name what comes of it by a tag alone."""
        if workspace := self.pick(index):
            clone = Path(workspace.directory) / "cache" / self.fresh()
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
        return workspace, inner

    def dirty_below(self, index: int, name: str) -> None:
        if found := self.in_submodule(index):
            workspace, inner = found
            (inner / name).write_text(self.fresh())
            self.changed_below[workspace.id][name] = (inner / name).read_text()

    def commit_below(self, index: int, how: str) -> None:
        """It is what is checked out then, or left behind, or at a tag alone."""
        if found := self.in_submodule(index):
            workspace, inner = found
            before = git(inner, "rev-parse", "HEAD")
            tip = commit(inner, "committed", self.fresh())
            self.commits_below[tip] = workspace.id
            if how == "tagged":
                git(inner, "tag", "-a", "-m", "mine", self.fresh())
            if how != "stays":
                git(inner, "checkout", "-q", before)

    def finish_below(self, index: int) -> None:
        """What lies about there is on its remote then."""
        if found := self.in_submodule(index):
            workspace, inner = found
            git(inner, "add", "--all")
            git(inner, "commit", "-q", "--allow-empty", "-m", "everything")
            git(inner, "push", "-q", "origin", f"HEAD:refs/heads/{self.fresh()}")
            self.changed_below[workspace.id] = {}

    def stash_below(self, index: int) -> None:
        if found := self.in_submodule(index):
            workspace, inner = found
            (inner / "file0").write_text(self.fresh())
            git(inner, "stash")
            self.changed_below[workspace.id].pop("file0", None)
            self.commits_below[git(inner, "rev-parse", "refs/stash")] = workspace.id

    def hide(self, index: int) -> None:
        if workspace := self.pick(index):
            git(workspace.directory, "update-index", "--assume-unchanged", "file0")
            (Path(workspace.directory) / "file0").write_text(self.fresh())
            self.changed[workspace.id]["file0"] = (Path(workspace.directory) / "file0").read_text()

    def stash(self, index: int) -> None:
        if workspace := self.pick(index):
            before = git(self.repo, "stash", "list")
            git(workspace.directory, "stash", check=False)
            if git(self.repo, "stash", "list") != before:
                self.commits.add(git(self.repo, "rev-parse", "refs/stash"))
                changed = self.changed[workspace.id]
                for name in [
                    n for n in changed if git(self.repo, "show", f"stash:{n}", check=False) == changed[n]
                ]:
                    del changed[name]

    def finish(self, index: int) -> None:
        """Everything that lies about is committed."""
        if workspace := self.pick(index):
            git(workspace.directory, "add", "--all", "--force", "--", ".", ":!cache")
            git(workspace.directory, "commit", "-q", "--allow-empty", "-m", "everything")
            self.commits.add(git(workspace.directory, "rev-parse", "HEAD"))
            self.changed[workspace.id] = {}

    def merge(self, index: int) -> None:
        if workspace := self.pick(index):
            tip = git(workspace.directory, "rev-parse", "HEAD")
            git(self.repo, "merge", "-q", "-s", "ours", "--allow-unrelated-histories", "-m", "merged", tip)
            self.commits.add(git(self.repo, "rev-parse", "HEAD"))

    def remove(self, index: int, crash: str) -> None:
        keys = sorted(self.workspaces)
        if not keys:
            return
        workspace = self.workspaces[keys[index % len(keys)]]
        with pytest.MonkeyPatch.context() as patch:
            if crash == "taken away":
                patch.setattr(aside, "moved", _crashing)
            elif crash == "branch":
                patch.setattr(branches, "delete", _crashing)
            elif crash == "forgotten":
                patch.setattr(aside, "forget", _crashing)
                patch.setattr(aside, "_put_back", lambda *_: None)
            elif crash:
                patch.setattr(worktrees, crash, _crashing)
                patch.setattr(aside, "_put_back", lambda *_: None)
            try:
                worktrees.remove(workspace, force=False)
            except WorkspaceDirty:
                assert Path(workspace.directory).exists() or not crash
                return
            except Crash:
                patch.undo()
                aside.recover(workspace)
                if Path(workspace.directory).exists():
                    return
                self.changed[workspace.id] = self.only_if_lost(workspace)
                return
        self.only_if_lost(workspace)
        del self.workspaces[workspace.id]

    def only_if_lost(self, workspace: Workspace) -> dict[str, str]:
        """It is gone, so nothing that was changed in it may have been left in it."""
        assert self.changed[workspace.id] == self.changed_below[workspace.id] == {}
        return {}

    def remove_moved(self, index: int, force: bool) -> None:
        """Nobody can tell what is in it; by force that stays there, and what git keeps of it goes."""
        if workspace := self.pick(index):
            directory, elsewhere = Path(workspace.directory), self.root / self.fresh()
            directory.rename(elsewhere)
            with pytest.raises(WorkspaceDirty):
                worktrees.remove(workspace, force=False)
            if not force:
                elsewhere.rename(directory)
                return
            worktrees.remove(workspace, force=True)
            moved = [clone for clone in self.clones if clone.is_relative_to(directory)]
            for clone in moved:
                self.clones[elsewhere / clone.relative_to(directory)] = self.clones.pop(clone)
            self.changed[workspace.id] = self.changed_below[workspace.id] = {}
            del self.workspaces[workspace.id]

    def rename_branch(self, index: int) -> None:
        """And another has its name then, which is the person's."""
        workspace = self.pick(index)
        if workspace and (branch := git(workspace.directory, "branch", "--show-current")):
            git(workspace.directory, "branch", "-m", branch, self.fresh())
            git(self.repo, "branch", branch, "main")
            self.own.add(branch)

    def every_commit_is_reachable(self) -> None:
        listed = git(self.repo, "worktree", "list", "--porcelain").splitlines()
        tips = [line.split()[1] for line in listed if line.startswith("HEAD ")]
        stashes = git(self.repo, "log", "-g", "--format=%H", "refs/stash", check=False).split()
        # git keeps what a reflog leads to as well.
        reachable = set(git(self.repo, "rev-list", "--all", "--reflog", *tips, *stashes).split())
        assert self.commits <= reachable

    def every_changed_file_is_there(self) -> None:
        for key, files in self.changed.items():
            for name, text in files.items():
                assert (Path(self.workspaces[key].directory) / name).read_text() == text

        for key, files in self.changed_below.items():
            for name, text in files.items():
                assert (Path(self.workspaces[key].directory) / "lib" / name).read_text() == text

    def every_commit_of_a_submodule_is_reachable(self) -> None:
        # What is pushed is the remote's.
        places = (self.repo, self.root / "library")
        kept = {tip for place in places for tip in git(place, "rev-list", "--all").split()}
        for tip, key in self.commits_below.items():
            inner = Path(self.workspaces[key].directory) / "lib/.git" if key in self.workspaces else None
            if inner is None or not inner.exists():
                assert tip in kept
            else:
                assert tip in git(inner.parent, "rev-list", "--all", "--reflog", "HEAD").split()

    def every_clone_with_work_is_there(self) -> None:
        for clone, tip in self.clones.items():
            assert git(clone, "rev-parse", "mine") == tip

    def every_branch_of_the_person_is_there(self) -> None:
        assert self.own <= set(git(self.repo, "branch", "--format=%(refname:short)").split())


def _crashing(*_: object, **__: object) -> None:
    raise Crash


DOINGS: dict[str, Callable[[Life, random.Random], None]] = {
    "add": lambda life, chance: life.add(copies=chance.random() < 0.3),
    "add to a branch": lambda life, chance: life.add(branch=chance.choice(["kept", "new"])),
    "add and crash": lambda life, _: life.add(crashes=True),
    "add and find the branch made": lambda life, chance: life.take_the_branch_of_an_add(
        crashes=chance.random() < 0.5
    ),
    "add two at once": lambda life, chance: life.add_two_at_once(crashes=chance.random() < 0.5),
    "dirty": lambda life, chance: life.dirty(
        chance.randrange(4), chance.choice(["file0", "new", "dir/new", ".env", "my.log"])
    ),
    "commit": lambda life, chance: life.commit(chance.randrange(4), detached=chance.random() < 0.3),
    "switch": lambda life, chance: life.switch(chance.randrange(4)),
    "amend": lambda life, chance: life.amend(chance.randrange(4)),
    "go back": lambda life, chance: life.go_back(chance.randrange(4)),
    "leave": lambda life, chance: life.leave(chance.randrange(4)),
    "tag": lambda life, chance: life.tag(chance.randrange(4)),
    "clone": lambda life, chance: life.clone(chance.randrange(4), works=chance.random() < 0.3),
    "hide": lambda life, chance: life.hide(chance.randrange(4)),
    "dirty below": lambda life, chance: life.dirty_below(
        chance.randrange(4), chance.choice(["file0", "new"])
    ),
    "commit below": lambda life, chance: life.commit_below(
        chance.randrange(4), chance.choice(["stays", "left", "tagged"])
    ),
    "finish below": lambda life, chance: life.finish_below(chance.randrange(4)),
    "stash below": lambda life, chance: life.stash_below(chance.randrange(4)),
    "stash": lambda life, chance: life.stash(chance.randrange(4)),
    "finish": lambda life, chance: life.finish(chance.randrange(4)),
    "merge": lambda life, chance: life.merge(chance.randrange(4)),
    "rename a branch": lambda life, chance: life.rename_branch(chance.randrange(4)),
    "remove what was moved": lambda life, chance: life.remove_moved(
        chance.randrange(4), force=chance.random() < 0.5
    ),
    "remove": lambda life, chance: life.remove(chance.randrange(4), ""),
    "remove and crash": lambda life, chance: life.remove(
        chance.randrange(4), chance.choice(["taken away", "branch", "_look_aside", "forgotten"])
    ),
}
WEIGHTS = [4, 2, 1, 1, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 4, 3, 1, 3, 9, 3]


@pytest.mark.parametrize("seed", range(40))
def test_never_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    life = Life(tmp_path)
    done = []
    for doing in chance.choices(list(DOINGS), WEIGHTS, k=60):
        done.append(doing)
        DOINGS[doing](life, chance)
        life.every_commit_is_reachable()
        life.every_changed_file_is_there()
        life.every_commit_of_a_submodule_is_reachable()
        life.every_clone_with_work_is_there()
        life.every_branch_of_the_person_is_there()
    # Where there is no work nothing is in the way.
    life.add()
    assert worktrees.remove([*life.workspaces.values()][-1], force=False).lost == [], done
