"""What is told of a workspace, also where git cannot tell everything."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
from harness.repositories import git, repository
from worktree_work import (
    add,
    repo,  # noqa: F401
)

from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import telling
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.in_common import InCommon
from amuxd.workspaces.standing import Files
from amuxd.workspaces.telling import Teller, Told, described


def test_a_given_directory_whose_filter_is_missing_has_no_repository_to_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    (repo / ".gitattributes").write_text("*.bin filter=gone\n")
    (repo / "a.bin").write_text("x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "filtered")
    git(repo, "config", "filter.gone.clean", "no-such-program %f")
    (repo / "a.bin").write_text("y\n")
    told = asyncio.run(Teller({}).one(Workspace("abc123", "given", str(repo), 1)))
    assert "no-such-program" in told.error
    assert told.problem != "no repository"


def test_a_given_directory_tells_of_stashes_and_what_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    below = repo / "below"
    below.mkdir()

    def told(directory: Path) -> dict[str, object]:
        one = asyncio.run(Teller({}).one(Workspace("abc123", "given", str(directory), 1)))
        return {name: value for name, (_, value) in described(one).items()}

    assert (told(below)["stashes"], told(below)["operation"]) == (0, "")
    (repo / "file0").write_text("put away")
    git(repo, "stash")
    git(repo, "bisect", "start")
    for directory in (repo, below):
        found = told(directory)
        assert (found["branch"], found["stashes"], found["operation"]) == ("main", 1, "a bisect")
        # What amux does not remove loses nothing.
        assert "lost" not in found
    git(repo, "checkout", "-q", "--detach")
    assert told(repo)["stashes"] == 0
    assert told(tmp_path) == {"presence": "present"}


def test_a_list_tells_of_a_given_directory_what_git_says_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    (repo / "file0").write_text("changed")
    (repo / "new").touch()
    given = [Workspace("abc123", "given", str(repo), 1), Workspace("def456", "no", str(tmp_path), 1)]
    found, nothing = (described(told) for told in asyncio.run(Teller({}).all(given)))
    assert (found["branch"], found["uncommitted"], found["untracked"]) == (
        ("s", "main"),
        ("as", ["file0"]),
        ("as", ["new"]),
    )
    assert nothing == {"presence": ("s", "present")}


def test_those_that_do_not_answer_hold_up_neither_the_others_of_a_list_nor_who_asks_for_one(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [add(repo, name=f"w{number}", key=f"abc{number}") for number in range(telling.PROCESSORS + 2)]
    answers, goes_on = threading.Semaphore(0), threading.Event()

    def files_of(self: InCommon, workspace: Workspace) -> Files:
        if workspace not in made[:-1]:
            answers.release()
        elif not goes_on.wait(60):
            raise GitFailed([], -1, "nobody let it go on")
        return Files(branch="some")

    async def story() -> list[Told]:
        teller = Teller({})
        lists = [asyncio.ensure_future(teller.all(made)) for _ in range(3)]
        # The last one of each is asked though all before it hang.
        for _ in lists:
            assert await asyncio.to_thread(answers.acquire, timeout=60)
        assert (await teller.one(made[0])).standing
        goes_on.set()
        return [told for listed in lists for told in await listed]

    monkeypatch.setattr(InCommon, "files_of", files_of)
    monkeypatch.setattr(telling, "_HELD_UP", 0.01)
    told = asyncio.run(story())
    assert [bool(each.standing) for each in told] == [True] * 3 * len(made)


def test_a_list_names_some_of_many_files_and_counts_them_all(repo: Path) -> None:
    made = add(repo)
    for number in range(1001):
        Path(made.directory, f"new{number}").touch()
    (listed,) = asyncio.run(Teller({}).all([made]))
    alone = asyncio.run(Teller({}).one(made))
    for told, named in ((listed, 1000), (alone, 1001)):
        values = described(told)
        assert values["untracked_count"] == ("u", 1001)
        names = values["untracked"][1]
        assert isinstance(names, list)
        assert len(names) == named


def test_the_lock_of_a_worktree_is_told_with_what_its_removal_loses(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "lock", "--reason", "on a stick", made.directory)
    told = described(asyncio.run(Teller({}).one(made)))
    assert told["lost"] == ("as", ["a lock by git worktree lock (on a stick)"])


@pytest.mark.parametrize(
    ("watched", "is_there", "presence", "problem"),
    [
        # Who watches has not heard of it yet.
        (Presence.PRESENT, False, "gone", "missing"),
        (Presence.GONE, True, "present", None),
        # What is seen there is mounted over it.
        (Presence.UNKNOWN, True, "unknown", "out of reach"),
        (Presence.UNKNOWN, False, "unknown", "out of reach"),
        (None, False, "gone", "missing"),
        (None, True, "present", None),
    ],
)
def test_where_a_directory_is_and_what_is_in_it_are_one_answer(
    repo: Path, watched: Presence | None, is_there: bool, presence: str, problem: str | None
) -> None:
    made = add(repo)
    if not is_there:
        shutil.rmtree(made.directory)
    teller = Teller({made.id: watched} if watched else {})

    async def told() -> list[Told]:
        return [await teller.one(made), *await teller.all([made])]

    for answer in map(described, asyncio.run(told())):
        assert answer["presence"] == ("s", presence)
        assert answer.get("problem", ("s", None))[1] == problem
        if presence == "unknown":
            # Of another directory nothing is told.
            assert "branch" not in answer
