"""A worktree is not removed while something works in it, by whatever path, even after a session's end."""

from pathlib import Path

import pytest
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"


@pytest.fixture
def one(amux: Amux, tmp_path: Path) -> Path:
    """The directory of a worktree."""
    amux.cli("ws", "add", "one", cwd=repository(tmp_path / "code"))
    where = amux.manager.call("GetWorkspace", "s", "one")
    return Path(amux.bus.proxy(BUS_NAME, where, WORKSPACE).get("Directory"))


def test_a_guest_that_came_through_a_link_keeps_it(amux: Amux, one: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(one)
    guest = amux.create(["sleep", "1000"], cwd=str(link), name="guest")
    refused = amux.cli("ws", "rm", "one", check=False)
    told = "amux: other live sessions work in one: guest (running)\n"
    assert (refused.returncode, refused.stderr, one.exists()) == (4, told, True)
    guest.stop()
    amux.cli("ws", "rm", "one")
    assert not one.exists()


def test_what_runs_in_a_shell_that_stayed_open_keeps_it_unless_forced(amux: Amux, one: Path) -> None:
    session = amux.create(["true"], name="done", workspace="one", shell=True, env={"SHELL": "/bin/sh"})
    until(lambda: session.get("ShellOpen"))
    session.send("touch begun; sleep 1000")
    until((one / "begun").exists)
    (one / "begun").unlink()
    refused = amux.cli("ws", "rm", "one", check=False)
    told = "amux: one has live sessions: done (completed, with a shell at work)\n"
    assert (refused.returncode, refused.stderr, one.exists()) == (4, told, True)
    forced = amux.cli("ws", "rm", "--force", "one").stdout
    assert "throwing away what done does (completed, with a shell at work): it is stopped" in forced
    assert (session.state, session.get("ShellOpen"), session.get("HostAlive")) == ("completed", False, "dead")
    assert not one.exists()


def test_a_shell_that_does_nothing_keeps_nothing(amux: Amux, one: Path) -> None:
    session = amux.create(["true"], workspace="one", shell=True, env={"SHELL": "/bin/sh"})
    until(lambda: session.get("ShellOpen"))
    amux.cli("ws", "rm", "one")
    assert not one.exists()
