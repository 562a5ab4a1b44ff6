"""Every way in which a directory goes while a session works in it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_fixtures import state_file, state_on_disk
from harness.bus import CallFailed, Proxy
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.repositories import git, repository
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"


@pytest.fixture
def repo(amux: Amux) -> Path:
    """Where the machine's own mounts can be, too."""
    shutil.rmtree(amux.machine.temporary / "orphans", ignore_errors=True)
    return repository(amux.machine.temporary / "orphans/code")


def begin(amux: Amux, directory: Path) -> Session:
    amux.cli("ws", "add", "here", "--path", str(directory))
    session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"], workspace="here", name="worker")
    assert session.get("Directory") == str(directory)
    until(lambda: "ready" in session.log())
    return session


def check_orphaned(session: Session, directory: Path) -> None:
    session.wait_state("orphaned")
    assert session.get("Reason") == f"its directory {directory} is gone"
    told = session.certificate()
    assert (told["signal"], told["last_lines"]) == ("SIGTERM", ["ready"])
    assert "ready" in session.log()
    assert session.get("Pid") == 0
    assert session.get("HostAlive") == "dead"
    # It is given back right after the end is told.
    until(lambda: workspace(session.amux).get("Holders") == [])


def workspace(amux: Client) -> Proxy:
    return amux.bus.proxy("org.amux.Amux1", amux.manager.call("GetWorkspace", "s", "here"), WORKSPACE)


def present(amux: Amux) -> None:
    until(lambda: workspace(amux).get("Presence") == "present")


def barrier(amux: Amux) -> None:
    """What amuxd was to do before is done: it has begun a session since, and seen its end."""
    assert amux.create(["true"]).wait_state("completed") == "completed"


def without_ground(amux: Amux, session: Session) -> None:
    state = state_on_disk(amux, session)
    del state["ground"]
    state_file(amux, session).write_text(json.dumps(state))


def replace_it(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def rename_over_it(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    other = directory.with_name("other")
    other.mkdir()
    other.rename(directory)


WAYS: dict[str, Callable[[Path], object]] = {
    "deleted": shutil.rmtree,
    "moved": lambda directory: directory.rename(directory.with_name("moved")),
    "its parent moved": lambda directory: directory.parent.rename(directory.parent.with_name("moved")),
    "its grandparent moved": lambda d: d.parent.parent.rename(d.parent.parent.with_name("moved")),
    "its parent deleted": lambda directory: shutil.rmtree(directory.parent),
    "replaced": replace_it,
    "another one renamed over it": rename_over_it,
}


@pytest.fixture
def nested(amux: Amux) -> Path:
    top = amux.machine.temporary / "orphans"
    shutil.rmtree(top, ignore_errors=True)
    directory = top / "a/b/c"
    directory.mkdir(parents=True)
    (directory / "file").write_text("x")
    return directory


@pytest.mark.parametrize("way", list(WAYS))
def test_a_directory_goes(amux: Amux, nested: Path, way: str) -> None:
    session = begin(amux, nested)
    WAYS[way](nested)
    check_orphaned(session, nested)


@pytest.mark.parametrize("command", [["remove", "--force"], ["move"]])
def test_git_takes_the_worktree(amux: Amux, repo: Path, command: list[str]) -> None:
    amux.cli("ws", "add", "here", cwd=repo)
    session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"], workspace="here")
    until(lambda: "ready" in session.log())
    directory = Path(session.get("Directory"))
    (directory / "file0").write_text("changed")
    target = [str(repo.with_name("elsewhere"))] if command == ["move"] else []
    git(repo, "worktree", command[0], *command[1:], str(directory), *target)
    check_orphaned(session, directory)


@pytest.mark.parametrize("below", ["", "below"])
def test_its_file_system_is_unmounted(amux: Amux, repo: Path, below: str) -> None:
    mount = repo.with_name("mount")
    mount.mkdir()
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", mount])
    directory = mount / below
    amux.machine.run(["mkdir", "-p", directory])
    # The tests look at the machine's directories from outside, where nothing is mounted.
    (mount / below).mkdir(exist_ok=True)
    session = begin(amux, directory)
    if below:
        (mount / below).rmdir()
    amux.machine.run(["umount", "--lazy", mount])
    check_orphaned(session, directory)


def test_what_only_looks_like_it_changes_nothing(amux: Amux, repo: Path) -> None:
    session = begin(amux, repo)
    repo.with_name("sibling").mkdir()
    repo.with_name("sibling").rename(repo.with_name("aside"))
    shutil.rmtree(repo.with_name("aside"))
    shutil.rmtree(repo / ".git")
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"])
    amux.machine.run(["umount", "/mnt"])
    barrier(amux)
    assert session.state == "running"


def test_a_session_without_a_workspace_is_left_alone(amux: Amux, repo: Path) -> None:
    session = amux.create(["sleep", "1000"], cwd=str(repo))
    worker = begin(amux, repo)
    shutil.rmtree(repo)
    worker.wait_state("orphaned")
    barrier(amux)
    assert session.state == "running"


def test_one_that_was_not_started_is_orphaned_too(amux: Amux, repo: Path) -> None:
    running = begin(amux, repo)
    created, archived = (amux.create(["true"], workspace="here", start=False) for _ in range(2))
    archived.call("Archive")
    shutil.rmtree(repo)
    check_orphaned(running, repo)
    assert (created.wait_state("orphaned"), archived.state) == ("orphaned", "archived")


def test_those_that_wait_for_a_slot_keep_their_places_until_it_is_back(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "here", "--path", str(repo), "--slots", "1")
    running = amux.create(["sleep", "1000"], workspace="here")
    first, second = (amux.create(["sleep", "1000"], workspace="here", queue=True) for _ in range(2))
    aside = repo.with_name("aside")
    repo.rename(aside)
    running.wait_state("orphaned")
    waits = "waiting for a slot in here"
    until(lambda: second.get("Reason") == f"{waits} (2nd); begins once {repo} is there")
    assert first.get("Reason") == f"{waits} (1st); begins once {repo} is there"
    with pytest.raises(CallFailed, match=f"waiting before you: {first.get('Name')}"):
        running.amux.create(["true"], workspace="here")
    amux.restart()
    barrier(amux)
    assert (first.state, second.state) == ("created", "created")
    aside.rename(repo)
    first.wait_state("running")
    until(lambda: second.get("Reason") == f"{waits} (1st)")


def test_restart_is_possible_once_it_is_back(amux: Amux, repo: Path) -> None:
    session = begin(amux, repo)
    aside = repo.with_name("aside")
    repo.rename(aside)
    check_orphaned(session, repo)
    refused = amux.cli("restart", "worker", check=False)
    assert refused.returncode == 4
    assert "restart is not possible" in refused.stderr
    with amux.events() as events:
        aside.rename(repo)
        # Whoever shows it hears that it is possible now.
        events.wait(lambda event: event.member == "PropertiesChanged" and "Presence" in event.body[1])
    assert workspace(amux).get("Presence") == "present"
    assert "restart" in amux.cli("show", "worker").stdout
    amux.cli("restart", "worker")
    assert session.state == "running"
    assert session.get("Run") == 2
    # And it is watched again.
    repo.rename(aside)
    session.wait_state("orphaned")
    assert workspace(amux).get("Presence") == "gone"
    assert "restart" not in amux.cli("show", "worker").stdout
    session.remove()
    # For nobody, nobody looks.
    assert workspace(amux).get("Presence") == "unknown"


@pytest.mark.parametrize("way", list(WAYS))
def test_it_goes_while_amuxd_is_down(amux: Amux, nested: Path, way: str) -> None:
    session = begin(amux, nested)
    amux.stop()
    WAYS[way](nested)
    amux.start()
    check_orphaned(session, nested)


@pytest.mark.parametrize("goes_elsewhere", [False, True])
def test_it_is_replaced_while_amuxd_is_down_and_nobody_stands_in_it(
    amux: Amux, nested: Path, goes_elsewhere: bool
) -> None:
    """The session works below it, or has left it for another directory."""
    (nested / "below").mkdir()
    amux.cli("ws", "add", "here", "--path", str(nested))
    command = ["sh", "-c", f"cd {'/' if goes_elsewhere else '.'}; echo ready; exec sleep 1000"]
    session = amux.create(command, workspace="here", cwd=str(nested / "below"))
    until(lambda: "ready" in session.log())
    amux.stop()
    shutil.rmtree(nested)
    (nested / "below").mkdir(parents=True)
    amux.start()
    check_orphaned(session, nested)


def test_who_began_in_what_came_in_its_place_works_on(amux: Amux, nested: Path) -> None:
    gone = begin(amux, nested)
    amux.stop()
    replace_it(nested)
    without_ground(amux, gone)
    amux.start()
    # Of a run that an earlier amuxd began it cannot be told.
    present(amux)
    assert gone.state == "running"
    session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"], workspace="here")
    until(lambda: "ready" in session.log())
    amux.restart()
    present(amux)
    barrier(amux)
    assert (gone.state, session.state) == ("running", "running")
    amux.stop()
    replace_it(nested)
    amux.start()
    session.wait_state("orphaned")
    assert gone.state == "running"


def test_what_another_run_was_begun_in_says_nothing(amux: Amux, nested: Path) -> None:
    session = begin(amux, nested)
    before = state_on_disk(amux, session)["ground"]
    session.stop()
    replace_it(nested)
    session.call("Restart")
    amux.stop()
    # As an amuxd that does not know of it carries it along.
    state_file(amux, session).write_text(json.dumps(state_on_disk(amux, session) | {"ground": before}))
    amux.start()
    present(amux)
    barrier(amux)
    assert session.state == "running"


def test_amuxd_is_killed_while_an_orphan_is_ended(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "here", "--path", str(repo))
    stubborn = "trap '' TERM; echo ready; while :; do sleep 1000; done"
    session = amux.create(["sh", "-c", stubborn], workspace="here")
    until(lambda: "ready" in session.log())
    shutil.rmtree(repo)
    session.wait_state("orphaned")
    amux.kill()
    amux.start()
    # It is given its time to end by itself, and who asks is not kept waiting for all of that.
    until(lambda: session.certificate()["last_lines"] == ["ready"], timeout=60)
    assert session.state == "orphaned"
    assert session.get("HostAlive") == "dead"


def test_without_systemd_it_is_the_same(embedded: Embedded) -> None:
    repo = repository(embedded.machine.temporary / "code")
    embedded.cli("ws", "add", "fix", "--slots", "1", cwd=repo)
    embedded.cli("run", "-w", "fix", "-n", "one", "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert embedded.cli("run", "-w", "fix", "--", "true", check=False).returncode == 4
    session = embedded.session("one")
    until(lambda: "ready" in session.log())
    shutil.rmtree(session.get("Directory"))
    session.wait_state("orphaned")
    assert session.certificate()["signal"] == "SIGTERM"


def test_one_that_takes_its_grace_ended_when_it_did(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "here", "--path", str(repo))
    slow = "trap 'sleep 1; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    session = amux.create(["sh", "-c", slow], workspace="here")
    until(lambda: "ready" in session.log())
    shutil.rmtree(repo)
    session.wait_state("orphaned")
    until(lambda: session.certificate()["exit_code"] == 7)
    assert session.certificate()["ended_usec"] >= session.get("StateChangedUSec") + 1_000_000
