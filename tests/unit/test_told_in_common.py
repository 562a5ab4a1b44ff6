"""What a list says of a worktree is what is said of it alone."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from harness.repositories import commit, git, repository
from worktree_work import (
    add,
    misleading_environment,  # noqa: F401
    repo,  # noqa: F401
)

from amuxd.git import GitFailed
from amuxd.records import Workspace
from amuxd.workspaces import in_common
from amuxd.workspaces.in_common import _Once
from amuxd.workspaces.telling import Teller, described

ALIKE = ("presence", "problem", "error", "branch", "head", "upstream", "ahead", "behind", "uncommitted")


def told(workspace: Workspace, *others: Workspace) -> dict[str, object]:
    """By the list and alone."""

    async def ask() -> list[dict[str, object]]:
        teller = Teller({})
        listed = (await teller.all([workspace, *others]))[0]
        alone = await teller.one(workspace)
        return [{name: value for name, (_, value) in described(each).items()} for each in (listed, alone)]

    listed, alone = asyncio.run(ask())
    assert listed == {name: value for name, value in alone.items() if name in listed}
    for name in ALIKE:
        assert listed.get(name) == alone.get(name)
    return listed


def without_a_mark(made: Workspace, _: Workspace) -> None:
    (Path(made.directory) / ".git").unlink()


def with_the_mark_of_another(made: Workspace, other: Workspace) -> None:
    shutil.copy2(Path(other.directory) / ".git", Path(made.directory) / ".git")


def with_a_repository_of_its_own(made: Workspace, _: Workspace) -> None:
    without_a_mark(made, made)
    git(made.directory, "init", "-q")


def with_a_pipe_in_its_place(made: Workspace, _: Workspace) -> None:
    without_a_mark(made, made)
    os.mkfifo(Path(made.directory) / ".git")


def with_a_link_in_its_place(made: Workspace, other: Workspace) -> None:
    without_a_mark(made, made)
    (Path(made.directory) / ".git").symlink_to(Path(other.directory) / ".git")


def that_git_has_forgotten(made: Workspace, _: Workspace) -> None:
    (Path(made.repository) / ".git/worktrees" / Path(made.directory).name / "gitdir").unlink()


def with_settings_that_lead_elsewhere(made: Workspace, other: Workspace) -> None:
    git(made.directory, "config", "extensions.worktreeConfig", "true")
    git(made.directory, "config", "--worktree", "core.worktree", other.directory)


def with_settings_of_all_that_lead_elsewhere(made: Workspace, other: Workspace) -> None:
    git(made.directory, "config", "extensions.worktreeConfig", "true")
    git(made.directory, "config", "core.WORKTREE", other.directory)


def whose_repository_was_moved(made: Workspace, _: Workspace) -> None:
    moved = Path(made.repository).rename(Path(made.repository).with_name("moved"))
    git(moved, "worktree", "repair")


def that_another_repository_has_taken(made: Workspace, _: Workspace) -> None:
    shutil.rmtree(made.repository)
    shutil.rmtree(made.directory)
    another = repository(Path(made.repository).with_name("another"))
    git(another, "worktree", "add", "-q", made.directory)


@pytest.mark.parametrize(
    ("mistaken", "error"),
    [
        (without_a_mark, "{directory}/.git is gone: "),
        (with_the_mark_of_another, "{directory}/.git does not lead to "),
        (with_a_repository_of_its_own, "{directory}/.git is gone: "),
        (with_a_pipe_in_its_place, "{directory}/.git is gone: "),
        (with_a_link_in_its_place, "{directory}/.git does not lead to "),
        (that_git_has_forgotten, "{directory} is no worktree of "),
        (with_settings_that_lead_elsewhere, "by the settings there its files are not in {directory} "),
        (with_settings_of_all_that_lead_elsewhere, "by the settings there its files are not in {directory} "),
        (whose_repository_was_moved, "its repository {repository} does not exist"),
        (that_another_repository_has_taken, "its repository {repository} does not exist"),
    ],
)
def test_of_another_repository_nothing_is_told(
    repo: Path, mistaken: Callable[[Workspace, Workspace], None], error: str
) -> None:
    made, other = add(repo), add(repo, "other", "bbb222")
    assert "error" not in told(made, other)
    mistaken(made, other)
    (Path(made.directory) / "new").write_text("work")
    found = told(made, other)
    assert str(found["error"]).startswith(error.format(directory=made.directory, repository=made.repository))
    assert found["problem"] in ("unknown", "no repository")
    assert "branch" not in found


def test_settings_that_lead_nowhere_else_are_no_hindrance(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "config", "extensions.worktreeConfig", "true")
    git(made.directory, "config", "--worktree", "core.sparseCheckout", "false")
    git(made.directory, "config", "branch.worktree.description", "a branch of that name")
    assert told(made)["branch"] == "fix"


def test_commits_are_compared_with_the_base_where_there_is_no_upstream(repo: Path) -> None:
    made, other = add(repo), add(repo, "other", "bbb222")
    assert (told(made, other)["ahead"], told(made, other)["behind"]) == (0, 0)
    commit(made.directory, "one")
    commit(made.directory, "two")
    commit(repo, "three")
    assert (told(made, other)["ahead"], told(made, other)["behind"]) == (2, 1)
    assert (told(other, made)["ahead"], told(other, made)["behind"]) == (0, 1)
    git(made.directory, "checkout", "-q", "--detach")
    assert told(made)["ahead"] == 2
    # Of a base that is there no more nothing is known.
    git(repo, "checkout", "-q", "-b", "trunk")
    git(repo, "branch", "-D", "main")
    assert (told(made)["ahead"], told(made)["behind"]) == (0, 0)


def test_commits_are_compared_with_the_upstream_where_there_is_one(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "branch", "--set-upstream-to=main", "fix")
    commit(made.directory, "one")
    git(repo, "branch", "-f", "other", "fix")
    base = replace(made, base="refs/heads/other")
    found = told(base)
    assert (found["upstream"], found["ahead"], found["behind"]) == ("main", 1, 0)


def test_a_branch_without_a_commit_is_ahead_of_nothing(repo: Path) -> None:
    made = add(repo)
    git(made.directory, "checkout", "-q", "--orphan", "fresh")
    found = told(made)
    assert (found["branch"], found["head"], found["ahead"]) == ("fresh", "", 0)


def test_a_repository_that_cannot_be_read_hides_no_other(repo: Path, tmp_path: Path) -> None:
    made = add(repo)
    elsewhere = repository(tmp_path / "else/where")
    other = add(elsewhere, "other", "bbb222")
    (elsewhere / ".git/config").unlink()
    (elsewhere / ".git/config").mkdir()

    async def listed() -> list[str]:
        return [each.problem for each in await Teller({}).all([made, other, made])]

    assert asyncio.run(listed()) == ["", "unknown", ""]


def test_a_repository_without_settings_is_one_all_the_same(repo: Path) -> None:
    made = add(repo)
    (repo / ".git/config").unlink()
    assert told(made)["branch"] == "fix"


def test_who_asks_for_what_another_looks_for_waits_for_that() -> None:
    looked_for, found = threading.Event(), threading.Event()

    def find(key: str) -> str:
        looked_for.set()
        assert found.wait(20)
        return key.upper()

    once = _Once(find)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once, "a")
        assert looked_for.wait(20)
        looked_for.clear()
        second = pool.submit(once, "a")
        found.set()
        assert (first.result(20), second.result(20)) == ("A", "A")
    assert not looked_for.is_set()


def test_where_no_thread_can_be_had_that_is_told_to_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    once = _Once(str.upper)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    for _ in range(2):
        with pytest.raises(GitFailed, match="git could not be asked: can't start new thread"):
            once("a")


def test_what_does_not_answer_is_waited_for_as_long_as_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_common, "ORDINARY", 0.01)
    answers = threading.Event()

    def find(_: str) -> bool:
        return answers.wait(20)

    once = _Once(find)
    try:
        with pytest.raises(GitFailed, match="the repository did not answer within 0 s"):
            once("a")
    finally:
        answers.set()


def test_what_all_have_in_common_is_found_once_also_where_that_fails() -> None:
    asked = []

    def find(key: str) -> str:
        asked.append(key)
        if key == "broken":
            raise LookupError(key)
        return key.upper()

    once = _Once(find)
    assert [once("a"), once("b"), once("a")] == ["A", "B", "A"]
    for _ in range(2):
        with pytest.raises(LookupError):
            once("broken")
    assert asked == ["a", "b", "broken"]


def test_copies_that_are_as_they_were_are_no_work_in_a_list_either(repo: Path) -> None:
    (repo / ".env").write_text("secret")
    made = add(repo, copy=[".env"])
    assert told(made)["untracked"] == []
    (Path(made.directory) / ".env").write_text("changed")
    assert told(made)["untracked"] == [".env"]
