"""A directory that another file system is mounted over is not seen, and not gone."""

import shutil
from pathlib import Path

import pytest
from harness.bus import Proxy
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"


@pytest.fixture
def top(amux: Amux) -> Path:
    """Where the machine's own mounts can be."""
    top = amux.machine.temporary / "co vered"
    shutil.rmtree(top, ignore_errors=True)
    (top / "directory").mkdir(parents=True)
    return top


def workspace(amux: Amux) -> Proxy:
    return amux.bus.proxy(BUS_NAME, amux.manager.call("GetWorkspace", "s", "here"), WORKSPACE)


@pytest.mark.parametrize("covered", ["directory", "."])
@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("is_down", [False, True])
def test_a_session_works_on_below(
    amux: Amux, top: Path, covered: str, is_deleted: bool, is_down: bool
) -> None:
    amux.cli("ws", "add", "here", "--path", str(top / "directory"))
    session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"], workspace="here")
    until(lambda: "ready" in session.log())
    until(lambda: workspace(amux).get("Presence") == "present")
    if is_down:
        amux.stop()
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", top / covered])
    if is_down:
        # There is one in its place as well.
        amux.machine.run(["mkdir", "-p", top / "directory"])
        amux.start()
    until(lambda: workspace(amux).get("Presence") == "unknown")
    assert session.state == "running"
    if is_deleted:
        # Where the tests are nothing is mounted over it.
        (top / "directory").rmdir()
    # With what it is mounted on, a mount goes by itself.
    amux.machine.run(["umount", top / covered], check=not is_deleted)
    if is_deleted:
        session.wait_state("orphaned")
    else:
        until(lambda: workspace(amux).get("Presence") == "present")
        assert session.state == "running"
        (top / "directory").rename(top / "moved")
        session.wait_state("orphaned")


def test_a_mount_that_another_one_takes_the_place_of_is_gone(amux: Amux, top: Path) -> None:
    place = top / "directory"
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", place])
    amux.cli("ws", "add", "here", "--path", str(place))
    session = amux.create(["sleep", "1000"], workspace="here")
    until(lambda: workspace(amux).get("Presence") == "present")
    amux.machine.run(["sh", "-c", 'umount --lazy "$1"; mount -t tmpfs tmpfs "$1"', "sh", place])
    try:
        session.wait_state("orphaned")
    finally:
        amux.machine.run(["umount", place])


def test_a_worktree_in_which_nobody_works_is_told_as_covered(amux: Amux, top: Path) -> None:
    repo = repository(top / "code")
    amux.cli("ws", "add", "here", cwd=repo)
    directory = Path(workspace(amux).get("Directory"))
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", directory])
    try:
        told = f"what is mounted at {directory} is not the worktree"
        assert f"Problem:     {told}\n" in amux.cli("ws", "show", "here").stdout
        refused = amux.cli("ws", "rm", "here", check=False)
        assert refused.returncode == 4
        assert refused.stderr == f"amux: git cannot tell what is in {directory}: {told}\n"
    finally:
        amux.machine.run(["umount", directory])
    assert amux.cli("ws", "rm", "here").stdout == "removed here\n"
