"""Worktrees in a directory that a link leads to: git lists what it leads to."""

import fcntl
import json
from pathlib import Path

import pytest
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import commit, git, repository

WORKSPACE = "org.amux.Amux1.Workspace"


@pytest.fixture
def repo(amux: Amux, tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[workspaces]\ndirectory = "{tmp_path}/link"\n')
    amux.manager.call("Reload")
    return repository(tmp_path / "code")


def directory_of(amux: Amux, name: str) -> Path:
    where = amux.manager.call("GetWorkspace", "s", name)
    return Path(amux.bus.proxy(BUS_NAME, where, WORKSPACE).get("Directory"))


def written_through_a_link(amux: Amux, tmp_path: Path) -> None:
    """As an amuxd before this one did."""
    amux.stop()
    [file] = (amux.state / "workspaces").glob("*.json")
    known = json.loads(file.read_text())
    known["directory"] = known["directory"].replace(f"{tmp_path}/real/", f"{tmp_path}/link/")
    file.write_text(json.dumps(known))
    amux.start()


@pytest.mark.parametrize("is_old", [False, True])
def test_a_worktree_behind_a_link_is_removed(amux: Amux, repo: Path, tmp_path: Path, is_old: bool) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    if is_old:
        written_through_a_link(amux, tmp_path)
    assert directory_of(amux, "one") == tmp_path / "real/code/one"
    taken = amux.cli("ws", "add", "twin", "--path", str(tmp_path / "link/code/one"), check=False)
    assert (taken.returncode, taken.stderr) == (
        2,
        f"amux: {tmp_path}/real/code/one is the workspace one already\n",
    )
    amux.cli("ws", "rm", "one")
    assert not (tmp_path / "real/code/one").exists()
    assert len(git(repo, "worktree", "list").splitlines()) == 1


def test_a_path_that_is_found_after_the_start_is_told(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    # Waited for, though not by the start: nothing is written down meanwhile.
    with (amux.state / "workspaces/.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written_through_a_link(amux, tmp_path)
        assert directory_of(amux, "one") == tmp_path / "link/code/one"
        with amux.events() as events:
            fcntl.flock(lock, fcntl.LOCK_UN)
            told = events.wait(lambda one: one.member == "PropertiesChanged" and "Directory" in one.body[1])
    assert told.body[1]["Directory"] == ("s", str(tmp_path / "real/code/one"))
    assert directory_of(amux, "one") == tmp_path / "real/code/one"


def test_work_in_a_worktree_behind_a_link_is_seen(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    written_through_a_link(amux, tmp_path)
    here = directory_of(amux, "one")
    git(here, "checkout", "-q", "--detach")
    tip = commit(here, "work")
    refused = amux.cli("ws", "rm", "one", check=False)
    assert (refused.returncode, here.exists()) == (4, True)
    amux.cli("ws", "rm", "--force", "one")
    assert not here.exists()
    assert tip in git(repo, "for-each-ref", "--format=%(objectname)", "refs/amux").split()


def test_a_directory_that_git_does_not_list_is_not_called_removed(
    amux: Amux, repo: Path, tmp_path: Path
) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    here = directory_of(amux, "one")
    here.rename(tmp_path / "away")
    git(repo, "worktree", "prune")
    repository(here)
    refused = amux.cli("ws", "rm", "one", check=False)
    told = (
        f"amux: {here} is there, and git lists no such worktree of {repo}: "
        f"git -C {repo} worktree repair {here} may mend that, or move it away\n"
    )
    assert (refused.returncode, refused.stderr) == (4, told)
    here.rename(tmp_path / "other")
    amux.cli("ws", "rm", "one")
