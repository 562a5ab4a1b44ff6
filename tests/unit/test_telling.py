"""What is told of a workspace, also where git cannot tell everything."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import asyncio
import shutil
from pathlib import Path

import pytest
from harness.repositories import git, repository
from worktree_work import (
    add,
    repo,  # noqa: F401
)

from amuxd.records import Workspace
from amuxd.workspaces.directories import Presence
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
