"""What stands in the place of a worktree and is another: nobody works in it for whatever is around it."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from collections.abc import Callable
from pathlib import Path

import pytest
from agent_fixtures import Agents
from harness.client import Session
from harness.daemon import Amux
from harness.repositories import git, repository
from harness.waiting import until
from workspace_fixtures import (
    repo,  # noqa: F401
    run_in,
    workspace_directory,
)


def an_empty_directory(directory: Path) -> str:
    directory.mkdir()
    return f"{directory}/.git is gone"


def a_repository(directory: Path) -> str:
    repository(directory)
    return f"{directory} is a repository of its own"


def another_worktree(directory: Path) -> str:
    """As cp -r makes it: what is committed there is on the branch of the one that it was copied from."""
    directory.mkdir()
    other = directory.with_name("other")
    (directory / ".git").write_bytes((other / ".git").read_bytes())
    own = git(other, "rev-parse", "--absolute-git-dir")
    return f"{directory}/.git leads to another worktree, {own}"


def a_worktree_of_another_repository(directory: Path) -> str:
    elsewhere = repository(directory.with_name("elsewhere"))
    git(elsewhere, "worktree", "add", "-q", str(directory))
    own = git(directory, "rev-parse", "--absolute-git-dir")
    return f"{directory}/.git leads to another worktree, {own}"


def at_work(amux: Amux) -> Session:
    session = run_in(amux, "fix", "sh", "-c", "echo ready; exec sleep 1000")
    until(lambda: "ready" in session.log())
    return session


@pytest.mark.parametrize(
    "replace", [an_empty_directory, a_repository, another_worktree, a_worktree_of_another_repository]
)
def test_nothing_begins_in_it(amux: Amux, repo: Path, replace: Callable[[Path], str]) -> None:
    for name in ("fix", "other"):
        amux.cli("ws", "add", name, cwd=repo)
    directory = workspace_directory(amux, "fix")
    session = at_work(amux)
    away = directory.rename(directory.with_name("away"))
    assert session.wait_state("orphaned") == "orphaned"
    why = f"amux: nobody can work in fix: {replace(directory)}: put "
    before = [*amux.sessions()]
    for words in (
        ["run", "-w", "fix", "--", "true"],
        ["run", "-w", "fix", "--queue", "--", "true"],
        ["restart", session.id],
    ):
        refused = amux.cli(*words, check=False)
        assert (refused.returncode, refused.stderr.startswith(why)) == (4, True), refused.stderr
    assert [*amux.sessions()] == before
    directory.rename(directory.with_name("replaced"))
    away.rename(directory)
    amux.cli("restart", session.id)
    assert session.wait_state("running") == "running"


def test_what_leads_to_it_is_it(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    own = git(directory, "rev-parse", "--absolute-git-dir")
    # git-annex makes it one.
    (directory / ".git").unlink()
    (directory / ".git").symlink_to(own)
    amux.cli("run", "-w", "fix", "--wait", "--", "true")
    directory.symlink_to(directory.rename(directory.with_name("moved")))
    amux.cli("run", "-w", "fix", "--wait", "--", "git", "status")


def test_where_git_itself_refuses_to_work_there_is_work_without_it(
    amux: Amux, repo: Path, tmp_path: Path
) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    repo.rename(tmp_path / "moved")
    assert amux.cli("run", "-w", "fix", "--wait", "--", "git", "status", check=False).returncode == 128


def test_one_that_is_taken_away_waits_in_the_queue(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", "--slots", "1", cwd=repo)
    directory = workspace_directory(amux, "fix")
    holder = run_in(amux, "fix")
    waiting = run_in(amux, "fix", queue=True)
    (directory / ".git").rename(directory / "git")
    holder.stop()
    obstacle = f"cannot begin: nobody can work in fix: {directory}/.git is gone: put the worktree back"
    reason = f"waiting for a slot in fix (1st); {obstacle}"
    until(lambda: waiting.get("Reason") == reason)
    (directory / "git").rename(directory / ".git")
    waiting.call("Start")
    assert waiting.wait_state("running") == "running"


def test_one_that_is_parked_stays_so(amux: Amux, repo: Path) -> None:
    agents = Agents(amux)
    agents.configure()
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    session = agents.create(workspace="fix", cwd=str(directory))
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    (directory / ".git").rename(directory / "git")
    refused = amux.cli("send", session.id, "second", check=False)
    assert refused.returncode == 4
    assert f"nobody can work in fix: {directory}/.git is gone" in refused.stderr
    assert session.get("Parked")
    (directory / "git").rename(directory / ".git")
    session.send("second")
    until(lambda: "heard 2: second" in session.log())
