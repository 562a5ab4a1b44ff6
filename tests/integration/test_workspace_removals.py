"""What the removal of a workspace says, takes along, stops and does not touch."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shutil
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import commit, repository
from workspace_fixtures import (
    listed,
    repo,  # noqa: F401
    run_in,
    workspace_directory,
)

WORKSPACE = "org.amux.Amux1.Workspace"


def test_a_removal_orphans_what_was_to_run_in_it(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = run_in(amux, "fix", start=False)
    orphaned = f"the place of {session.get('Name')} to work in (created): it is orphaned"
    where = amux.manager.call("GetWorkspace", "s", "fix")
    workspace = amux.bus.proxy(BUS_NAME, where, WORKSPACE)
    assert workspace.call("Remove", "a{sv}", {"dry_run": ("b", True)}) == ([orphaned], [])
    assert amux.cli("ws", "rm", "fix").stdout == f"fix: threw away {orphaned}\nremoved fix\n"
    assert session.state == "orphaned"
    assert session.get("Workspace") == "/"


def test_what_stays_where_it_is_orphans_nobody(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = run_in(amux, "fix", start=False)
    repo.rename(tmp_path / "moved")
    told = amux.cli("ws", "rm", "--force", "fix").stdout
    assert "orphaned" not in told
    assert f"kept {session.get('Directory')} and what git keeps for it" in told
    assert session.state == "created"


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_git_ignores_is_taken_along_when_that_is_said(amux: Amux, repo: Path, force: list[str]) -> None:
    (repo / ".git/info/exclude").write_text("*.env\n")
    amux.cli("ws", "add", "fix", cwd=repo)
    (workspace_directory(amux, "fix") / "a.env").write_text("KEY=1")
    assert "Ignored:     a.env" in amux.cli("ws", "show", "fix").stdout
    refused = amux.cli("ws", "rm", "fix", check=False)
    told = "amux: fix has 1 file that git ignores (a.env); --ignored takes these along\n"
    assert (refused.returncode, refused.stderr) == (4, told)
    told = "fix: throwing away 1 file that git ignores (a.env)\nremoved fix\n"
    assert amux.cli("ws", "rm", "--ignored", *force, "fix").stdout == told


def test_a_removal_by_force_that_is_refused_throws_nothing_away_and_ends_nothing(
    amux: Amux, repo: Path
) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    session = run_in(amux, "fix")
    repository(directory / "nested")
    (directory / "new").write_text("work")
    refused = amux.cli("ws", "rm", "--force", "fix", check=False)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr == (
        f"amux: fix has another repository, worktree or mount in it, {directory}/nested: "
        "take that away first\n"
    )
    # Nor for whoever does not ask beforehand what would be lost.
    where = amux.manager.call("GetWorkspace", "s", "fix")
    with pytest.raises(CallFailed, match="take that away first"):
        amux.bus.proxy(BUS_NAME, where, WORKSPACE).call("Remove", "a{sv}", {"force": ("b", True)})
    assert session.state == "running"
    assert (directory / "new").read_text() == "work"
    (directory / "nested").rename(directory.with_name("saved"))
    removed = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    assert removed == [
        "fix: throwing away what sleep does (running): it is stopped",
        "fix: throwing away 1 untracked file (new)",
        "removed fix",
    ]
    assert session.wait_state("orphaned", "stopped") in ("orphaned", "stopped")


def test_what_is_mounted_in_it_is_not_emptied(amux: Amux, repo: Path) -> None:
    (repo / ".git/info/exclude").write_text("/data\n")
    amux.cli("ws", "add", "fix", cwd=repo)
    data = workspace_directory(amux, "fix") / "data"
    data.mkdir()
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", data])
    try:
        amux.machine.run(["touch", data / "precious"])
        for force in ((), ("--force",)):
            refused = amux.cli("ws", "rm", *force, "fix", check=False)
            assert refused.returncode == 4
            assert f"mount in it, {data}" in refused.stderr
        amux.machine.run(["test", "-e", data / "precious"])
    finally:
        amux.machine.run(["umount", data])
    amux.cli("ws", "rm", "fix")


def test_a_removal_that_the_disk_did_not_take_is_finished_later(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    directory = workspace_directory(amux, "one")
    amux.machine.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", amux.state / "workspaces"])
    try:
        refused = amux.cli("ws", "rm", "one", check=False)
    finally:
        amux.machine.run(["umount", amux.state / "workspaces"])
    assert refused.returncode == 1
    assert "the workspace one is not forgotten" in refused.stderr
    assert not directory.exists()
    amux.restart()
    assert "missing" in amux.cli("ws", "ls").stdout
    amux.cli("ws", "rm", "one")
    assert listed(amux) == []


def test_what_is_stopped_by_force_is_said_first(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = amux.create(["sleep", "1000"], name="one", workspace="fix")
    told = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    assert told == ["fix: throwing away what one does (running): it is stopped", "removed fix"]
    assert session.state != "running"


def test_one_whose_directory_is_gone_has_its_branch_and_its_commit_once(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    commit(directory, "new")
    shutil.rmtree(directory)
    shown = amux.cli("ws", "show", "fix").stdout
    assert f"Problem:     {directory} does not exist" in shown
    assert "Branch:      fix\n" in shown
    assert "(detached)" not in amux.cli("ws", "ls").stdout
    kept = [line for line in amux.cli("ws", "rm", "--force", "fix").stdout.splitlines() if "kept" in line]
    assert len(kept) == len(set(kept)) == 1
