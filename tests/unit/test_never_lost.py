"""Whatever is done with workspaces, no commit and no changed file becomes unreachable without --force."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.repositories import git
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from mortal_amuxd import Amuxd, Killed, kill
from person_at_work import CACHE, DATA, INDEX, AtWork, Step, alone, doing, names, steps

from amuxd import git as amuxd_git
from amuxd.errors import Internal, InvalidArgument, WorkspaceDirty
from amuxd.records import Workspace
from amuxd.workspaces import worktrees
from amuxd.workspaces.making import Asked

# A removal is over after fewer, unless there is much in it that git has to be asked about.
LATEST = 90
MOMENTS = st.integers(1, LATEST)
# And what is made.
EARLIER = st.integers(1, 25)
ENOUGH = 3


class Life(AtWork):
    """One repository, a few workspaces, and a person who works in them; amuxd is killed now and then."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.amuxd = Amuxd(root / "state", root / "worktrees")
        # The sessions that live, and the workspace of each.
        self.at_work: dict[str, str] = {}
        # Those that only work there.
        self.guests: set[str] = set()
        # Where a directory is no workspace, what the person wrote into it.
        self.strays: dict[Path, str] = {}
        # Whether what was to come at some moment of a removal has come.
        self.is_met = False

    # What amuxd does.

    def knows(self, made: Workspace) -> None:
        self.workspaces[made.id] = made
        self.changed[made.id], self.changed_below[made.id] = {}, {}

    @doing(2, branch=st.sampled_from(["", "kept", "new"]), copies=st.booleans())
    def add(self, branch: str, copies: bool) -> None:
        if len(self.workspaces) < ENOUGH:
            name = self.fresh()
            self.amuxd.copies([".env"] if copies else [])
            asked = Asked(
                name, repository=str(self.repo), branch=branch + name if branch == "new" else branch
            )
            # The branch of the person may be checked out already.
            with contextlib.suppress(InvalidArgument):
                self.knows(self.amuxd.do(self.amuxd.maker.add(asked)))

    @doing(2, at=EARLIER, work=st.sampled_from(["nothing", "a branch", "a file"]), dies=st.booleans())
    def add_is_met(self, at: int, work: str, dies: bool) -> None:
        """By a person who makes the same branch, or works in that directory, and by the end of amuxd."""
        if len(self.workspaces) == ENOUGH:
            return
        asked = Asked(self.fresh(), repository=str(self.repo))
        file = self.root / "worktrees/code" / asked.name / "new"

        def then() -> None:
            if work == "a file":
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.fresh())
                self.strays[file] = file.read_text()
            elif work == "a branch":
                # amux may have made it by now.
                with contextlib.suppress(AssertionError):
                    git(self.repo, "branch", asked.name)
                    self.own.add(asked.name)
            if dies:
                raise Killed

        try:
            self.amuxd.do(self.amuxd.maker.add(asked), at, then)
        except (InvalidArgument, Internal):
            assert work != "nothing"
        except Killed:
            self.amuxd.begin()
        if work == "nothing" and asked.name not in {made.name for made in self.amuxd.workspaces.values()}:
            # Whoever asked for it asks again.
            self.amuxd.do(self.amuxd.maker.add(asked))
        for made in self.amuxd.workspaces.values():
            if made.name == asked.name:
                self.knows(made)
                if file in self.strays and file.parent == Path(made.directory):
                    self.changed[made.id]["new"] = self.strays.pop(file)

    def any(self, index: int) -> Workspace | None:
        """Also one of which nothing is left but what amuxd knows of it."""
        known = [*self.workspaces.values()]
        return known[index % len(known)] if known else None

    @doing(4, index=INDEX, with_ignored=st.booleans())
    def remove(self, index: int, with_ignored: bool) -> None:
        if workspace := self.any(index):
            self.removes(workspace, with_ignored=with_ignored)

    @doing(
        6,
        index=INDEX,
        at=MOMENTS,
        work=st.sampled_from(["nothing", "a file", "a commit", "a prune"]),
        dies=st.booleans(),
    )
    def removal_is_met(self, index: int, at: int, work: str, dies: bool) -> None:
        """By a person who works in it, as long as it is where it was, and by the end of amuxd."""
        if not (workspace := self.any(index)):
            return

        def then() -> None:
            self.is_met = True
            if Path(workspace.directory).exists():
                if work == "a file":
                    self.write_in(workspace, "new")
                elif work == "a commit":
                    self.commit_in(workspace)
                    self.learn(workspace)
            if work == "a prune":
                git(self.repo, "worktree", "prune", "--expire=now")
            if dies:
                raise Killed

        self.removes(workspace, at, then)

    def removes(
        self, workspace: Workspace, at: int = 0, then: Callable[[], None] = kill, with_ignored: bool = False
    ) -> None:
        """Without force, so that nothing of what is work goes with it; what goes by design is named."""
        work = self.work_in(workspace)
        by_design = self.goes_by_design(workspace, with_ignored)
        present = self.amuxd.workspaces[workspace.id]
        was_there, why = Path(workspace.directory).exists(), ""
        try:
            removed = self.amuxd.do(self.amuxd.remover.remove(present, False, with_ignored), at, then)
        except WorkspaceDirty as error:
            why = str(error)
        except Killed:
            self.amuxd.begin()
            if Path(workspace.directory).exists():
                return
        else:
            assert all(name.split("/")[0] in " ".join(removed.lost) for name in by_design)
        if why:
            assert Path(workspace.directory).exists() == was_there
            # git itself does not tell of a stash on another branch, say; nor does amux know what it was just
            # copying when it died.
            assert work or not was_there or at or any(word in why for word in ("stash", "submodule", ".env"))
            return
        assert work <= by_design
        assert set(self.changed[workspace.id]) <= by_design
        assert not self.changed_below[workspace.id]
        self.is_gone(workspace)

    def is_gone(self, workspace: Workspace) -> None:
        """amuxd may have been killed before it forgot of it."""
        self.changed[workspace.id], self.changed_below[workspace.id] = {}, {}
        if workspace.id not in self.amuxd.workspaces:
            del self.workspaces[workspace.id]

    def goes_by_design(self, workspace: Workspace, with_ignored: bool) -> set[str]:
        ignored = ("my.log", f"{DATA}/plain") if with_ignored else ()
        return {name for name in self.changed[workspace.id] if name.startswith(CACHE) or name in ignored}

    def work_in(self, workspace: Workspace) -> set[str]:
        """What of it keeps amuxd from removing it without force, by what the person did and git says."""
        directory = Path(workspace.directory)
        if not directory.exists():
            return set()
        found = {*self.changed[workspace.id], *(f"lib/{name}" for name in self.changed_below[workspace.id])}
        status = git(directory, "--no-optional-locks", "status", "--porcelain", "--ignore-submodules=none")
        # What was copied there is nobody's work.
        found |= {line for line in status.splitlines() if not line.endswith(".env")}
        found |= {str(clone) for clone in self.clones if clone.is_relative_to(directory)}
        found |= {f"session {key}" for key, of in self.at_work.items() if of == workspace.id}
        branch = git(directory, "branch", "--show-current")
        stashes = git(self.repo, "log", "-g", "--format=%H", "refs/stash", check=False).split()
        found |= {f"stash {tip}" for tip in stashes if self.stashes.get(tip) == branch}
        found |= {"something under way"} if self.is_under_way(directory) else set()
        made = workspace.branch if workspace.made_branch and workspace.branch not in self.own else ""
        others = [f"--exclude={made}"] if made else []
        commits = git(directory, "rev-list", "HEAD", "--not", *others, "--branches", "--tags", "--remotes")
        found |= {f"commit {tip}" for tip in commits.split()}
        if submodule := self.submodule_of(workspace):
            commits = git(submodule, "rev-list", "--all", "HEAD", "--not", "--remotes")
            found |= {f"commit {tip} of the submodule" for tip in commits.split()}
            found |= {"something under way in the submodule"} if self.is_under_way(submodule) else set()
        return found

    @doing(3, index=INDEX, at=st.just(0) | MOMENTS, is_busy=st.booleans())
    def remove_by_force(self, index: int, at: int, is_busy: bool) -> None:
        """Commits can be had back all the same, and the rest is named first."""
        if not (workspace := self.any(index)):
            return
        directory = Path(workspace.directory)
        was_there = directory.exists()
        if is_busy and was_there:
            self.run_in(workspace, is_guest=False)
        present = self.amuxd.workspaces[workspace.id]
        refusals = {str(clone) for clone in self.clones if clone.is_relative_to(directory)}
        refusals |= {key for key in self.guests & set(self.at_work) if self.at_work[key] == workspace.id}
        if (directory / "lib/.git").exists() and not git(directory, "ls-files", "lib"):
            # Who went far back has it there still, as a repository of its own.
            refusals.add("lib")
        try:
            told = self.amuxd.do(self.amuxd.remover.would_lose(present, True))
            removed = self.amuxd.do(self.amuxd.remover.remove(present, True), at)
        except WorkspaceDirty:
            # Not even by force, and nothing is ended for it.
            assert refusals
            assert directory.exists()
            return
        except Killed:
            self.amuxd.begin()
            self.amuxd.ends_what_it_was_ending()
            self.at_work = {key: of for key, of in self.at_work.items() if self.amuxd.host.lives(key)}
            if directory.exists():
                return
        else:
            assert removed.lost == told
            self.at_work = {key: of for key, of in self.at_work.items() if of != workspace.id}
        assert not was_there or self.are_named([*self.changed[workspace.id]], told)
        assert not was_there or self.are_named([*self.changed_below[workspace.id]], told)
        assert not refusals
        self.is_gone(workspace)

    def are_named(self, names: list[str], told: list[str]) -> bool:
        """Of many files only some are, and of one in a new directory, or in a submodule, that is."""
        words = " ".join(told)
        return all(name.split("/")[0] in words or "…" in words or "lib" in words for name in names)

    @doing(index=INDEX, force=st.booleans())
    def remove_elsewhere(self, index: int, force: bool) -> None:
        if not self.at_work:
            self.remove_moved(index, force)
            for key in set(self.amuxd.workspaces) - set(self.workspaces):
                # git itself knows no more of it.
                self.amuxd.do(self.amuxd.remover.remove(self.amuxd.workspaces[key], False))

    @doing(2, index=INDEX, is_guest=st.booleans())
    def run(self, index: int, is_guest: bool) -> None:
        """In a workspace, or as a session that has none and only works there."""
        if len(self.at_work) < ENOUGH and (workspace := self.pick(index)):
            self.run_in(workspace, is_guest)

    def run_in(self, workspace: Workspace, is_guest: bool) -> None:
        key = self.amuxd.run(workspace.directory, "" if is_guest else workspace.id)
        self.at_work[key] = workspace.id
        if is_guest:
            self.guests.add(key)

    @doing()
    def stop(self) -> None:
        if self.at_work:
            self.amuxd.stop(self.at_work.popitem()[0])

    @doing()
    def amuxd_is_killed(self) -> None:
        """While it has nothing to do."""
        self.amuxd.is_killed()

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

    @doing(index=INDEX)
    def rename_branch(self, index: int) -> None:
        """And another has its name then, which is the person's."""
        workspace = self.pick(index)
        if workspace and (branch := git(workspace.directory, "branch", "--show-current")):
            git(workspace.directory, "branch", "-m", branch, self.fresh())
            git(self.repo, "branch", branch, "main")
            self.own.add(branch)

    def nothing_is_lost(self) -> None:
        self.every_commit_is_reachable()
        self.every_changed_file_is_there()
        self.every_commit_of_a_submodule_is_reachable()
        self.every_clone_with_work_is_there()
        self.every_branch_of_the_person_is_there()
        assert all(map(self.amuxd.host.lives, self.at_work))
        assert set(self.amuxd.workspaces) == set(self.workspaces)

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

        for file, text in self.strays.items():
            assert file.read_text() == text

    def every_commit_of_a_submodule_is_reachable(self) -> None:
        kept = set(git(self.repo, "rev-list", "--all").split())
        # What was pushed is there.
        kept |= set(git(self.root / "library", "rev-list", "--all").split())
        for tip, key in self.commits_below.items():
            submodule = self.submodule_of(self.workspaces[key]) if key in self.workspaces else None
            there = git(submodule, "rev-list", "--all", "--reflog", "HEAD").split() if submodule else []
            assert tip in kept or tip in there

    def every_clone_with_work_is_there(self) -> None:
        for clone, tip in self.clones.items():
            assert git(clone, "rev-parse", "mine") == tip

    def every_branch_of_the_person_is_there(self) -> None:
        assert self.own <= set(git(self.repo, "branch", "--format=%(refname:short)").split())


# The person works, then amuxd does something.
LIVES = st.lists(st.tuples(st.lists(steps(AtWork), max_size=3), steps(Life)), min_size=1, max_size=8)


def live(root: Path, rounds: list[tuple[list[Step], Step]]) -> None:
    lived(root, rounds)


def lived(root: Path, rounds: list[tuple[list[Step], Step]]) -> Life:
    life = Life(root)
    try:
        life.add(branch="", copies=False)
        for works, last in rounds:
            for name, told in [*works, last]:
                getattr(life, name)(**told)
            life.nothing_is_lost()
        for workspace in [*life.workspaces.values()]:
            life.removes(workspace)
        life.nothing_is_lost()
    finally:
        life.amuxd.close()
    return life


def test_an_amuxd_that_died_begins_no_git(tmp_path: Path) -> None:
    amuxd = Amuxd(tmp_path / "state", tmp_path / "worktrees")
    asked = asyncio.to_thread(amuxd_git.git, tmp_path, "init", "--quiet", "made")
    try:
        with pytest.raises(Killed):
            amuxd.do(asked, at=1)
        amuxd.begin()
    finally:
        amuxd.close()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("number", range(4))
def test_never_lost(tmp_path: Path, number: int) -> None:
    places = (tmp_path / str(count) for count in itertools.count())
    # The same each time, and as many as a change to amux may wait for.
    test = given(LIVES)(lambda rounds: live(next(places), rounds))
    seed(number)(settings(max_examples=25, database=None)(test))()


@pytest.mark.parametrize("kind", names(AtWork))
def test_each_kind_of_work_keeps_it_also_alone(tmp_path: Path, kind: str) -> None:
    places = (tmp_path / str(count) for count in itertools.count())
    finished: Step = ("finish", {"index": 0, "merges": True})
    removed: Step = ("remove", {"index": 0, "with_ignored": False})

    def one(step: Step) -> None:
        live(next(places), [([finished, step], removed)])

    seed(0)(settings(max_examples=100, database=None)(given(alone(AtWork, kind))(one)))()


@pytest.mark.parametrize("work", ["a file", "a commit"])
def test_work_that_comes_at_any_moment_of_a_removal(tmp_path: Path, work: str) -> None:
    for at in itertools.count(1):
        meets = ("removal_is_met", {"index": 0, "at": at, "work": work, "dies": False})
        if not lived(tmp_path / str(at), [([], meets)]).is_met:
            break
    # Not only those at which something is written: git is asked more often than that.
    assert 40 < at <= LATEST


@pytest.mark.nightly
def test_never_lost_in_many_lives(tmp_path: Path) -> None:
    places = (tmp_path / str(count) for count in itertools.count())
    settings(max_examples=1000)(given(LIVES)(lambda rounds: live(next(places), rounds)))()
