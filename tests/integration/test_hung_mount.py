"""A workspace on a file system that hangs, as a network mount does: nobody waits for it or guesses."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import hung_mount
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until
from workspace_fixtures import configure, workspace_directory

pytestmark = pytest.mark.skipif(not Path(hung_mount.DEVICE).exists(), reason="there is no /dev/fuse")

# amuxd asks for five seconds, and the machine may be busy.
AT_MOST = 60.0


@contextmanager
def hung(amux: Amux, directory: Path, *error: str) -> Iterator[None]:
    """It does not answer, or with an error."""
    program = [sys.executable, hung_mount.__file__, str(directory), *error]
    server = amux.machine.popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == "mounted\n"
    try:
        yield
    finally:
        server.communicate()
        assert server.returncode == 0


@pytest.fixture
def directory(amux: Amux, tmp_path: Path) -> Path:
    amux.cli("ws", "add", "far", cwd=repository(tmp_path / "code"))
    amux.cli("ws", "add", "near", cwd=tmp_path / "code")
    path = amux.manager.call("GetWorkspace", "s", "far")
    return Path(amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace").get("Directory"))


def changes(amux: Amux) -> dict[str, str]:
    listed = [line.split("\t") for line in amux.cli("ws", "ls", timeout=AT_MOST).stdout.splitlines()[1:]]
    return {fields[1]: fields[5] for fields in listed}


def refused(amux: Amux, *words: str) -> str:
    began = time.monotonic()
    done = amux.cli(*words, check=False, timeout=AT_MOST)
    assert time.monotonic() - began < AT_MOST
    assert done.returncode != 0
    return done.stderr


def test_it_is_out_of_reach_and_nothing_waits_for_it(amux: Amux, directory: Path) -> None:
    session = amux.create(["sleep", "1000"], workspace="far")
    with hung(amux, directory):
        # More often than amuxd has threads for such questions.
        with ThreadPoolExecutor(12) as pool:
            for told in pool.map(changes, [amux] * 12):
                assert told == {"far": "out of reach", "near": "-"}
        assert f"Problem:     {directory} is out of reach" in amux.cli("ws", "show", "far").stdout
        why = f"amux: nobody can tell what is in far: {directory} is out of reach\n"
        session.stop()
        assert session.state == "stopped"
        # Who waits for that long is told so before.
        assert refused(amux, "ws", "rm", "far").endswith(why)
        assert "did not answer within 5 s" in refused(amux, "run", "-w", "far", "--", "true")
        assert amux.create(["true"], workspace="near").wait_state("completed") == "completed"
    assert changes(amux) == {"far": "-", "near": "-"}
    assert amux.cli("ws", "rm", "far").stdout == "removed far\n"
    assert not directory.exists()


def test_a_repository_that_hangs_holds_up_none_of_the_others(
    amux: Amux, directory: Path, tmp_path: Path
) -> None:
    amux.cli("ws", "add", "other", cwd=repository(tmp_path / "else"))
    with hung(amux, tmp_path / "code"):
        # More often than amuxd has threads to ask git in.
        with ThreadPoolExecutor(12) as pool:
            for told in pool.map(changes, [amux] * 12):
                assert told == {"far": "out of reach", "near": "out of reach", "other": "-"}
        said = f"Problem:     its repository {tmp_path / 'code'} is out of reach"
        assert said in amux.cli("ws", "show", "far").stdout
        assert "Problem:" not in amux.cli("ws", "show", "other").stdout
    assert changes(amux) == {"far": "-", "near": "-", "other": "-"}


def test_what_is_live_in_it_is_left_alone(amux: Amux, directory: Path) -> None:
    session = amux.create(["sleep", "1000"], workspace="far")
    path = amux.manager.call("GetWorkspace", "s", "far")
    workspace = amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace")
    until(lambda: workspace.get("Presence") == "present", timeout=AT_MOST)
    with hung(amux, directory):
        until(lambda: workspace.get("Presence") == "unknown", timeout=AT_MOST)
        assert session.state == "running"
    until(lambda: workspace.get("Presence") == "present", timeout=AT_MOST)
    assert session.state == "running"


@pytest.mark.parametrize("error", ["EACCES", "ESTALE"])
def test_one_that_answers_with_an_error_is_out_of_reach_and_not_gone(
    amux: Amux, tmp_path: Path, error: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    amux.cli("ws", "add", "far", "--path", str(place), "--slots", "2")
    sleep = ["sleep", "1000"]
    stays, goes = (amux.create(sleep, workspace="far") for _ in range(2))
    waiting = amux.create(sleep, workspace="far", queue=True)
    created = amux.create(sleep, workspace="far", start=False)
    path = amux.manager.call("GetWorkspace", "s", "far")
    workspace = amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace")
    until(lambda: workspace.get("Presence") == "present", timeout=AT_MOST)
    sessions = (stays, waiting, created)
    with hung(amux, place, error):
        until(lambda: workspace.get("Presence") == "unknown", timeout=AT_MOST)
        assert changes(amux) == {"far": "out of reach"}
        goes.stop()
        outlook = f"waiting for a slot in far (1st); begins once {place} is there"
        until(lambda: waiting.get("Reason") == outlook, timeout=AT_MOST)
        assert [session.state for session in sessions] == ["running", "created", "created"]
        amux.restart()
        assert stays.wait_state("running") == "running"
        until(lambda: f"{place}, the directory of workspace far, is out of reach" in said(amux))
        # That is looked at again, and told once.
        assert amux.create(["true"]).wait_state("completed") == "completed"
        assert workspace.get("Presence") == "unknown"
        assert [session.state for session in sessions] == ["running", "created", "created"]
        assert (waiting.get("Reason"), stays.get("SessionAlive")) == (outlook, "alive")
    assert waiting.wait_state("running", timeout=AT_MOST) == "running"
    assert workspace.get("Presence") == "present"
    assert [session.state for session in sessions] == ["running", "running", "created"]


def said(amux: Amux) -> list[str]:
    """By the amuxd that runs now."""
    return [str(line["MESSAGE"]) for line in amux.journal() if int(line["_PID"]) == amux.pid]


def test_a_repository_that_hangs_keeps_no_session_waiting(
    amux: Amux, directory: Path, tmp_path: Path
) -> None:
    with hung(amux, tmp_path / "code/.git"):
        # More than amuxd has threads for what sessions ask for.
        adding = [
            amux.popen("ws", "add", f"n{number}", cwd=tmp_path / "code", stderr=subprocess.PIPE)
            for number in range(12)
        ]
        at_work = ["sh", "-c", "test $(grep -lsE '^(git|/usr/bin/git)' /proc/*/cmdline | wc -l) -ge 8"]
        until(lambda: amux.machine.run(at_work, check=False).returncode == 0, timeout=AT_MOST)
        began = time.monotonic()
        assert amux.create(["true"]).wait_state("completed") == "completed"
        assert time.monotonic() - began < AT_MOST
        assert [process.poll() for process in adding] == [None] * 12
    # git fails, or begins only now.
    for process in adding:
        process.communicate(timeout=60)
        assert process.returncode in (0, 2)


def is_out_of_reach(place: Path, told: str) -> bool:
    """In the last line; who had to wait for long is told so before."""
    return told.endswith(f"amux: {place} is out of reach: it does not answer\n")


def test_where_worktrees_are_to_be_made_and_nothing_answers_none_is_and_nobody_waits(
    amux: Amux, directory: Path, tmp_path: Path
) -> None:
    places = tmp_path / "places"
    places.mkdir()
    configure(amux, f'[workspaces]\ndirectory = "{places}"\n')
    with hung(amux, places):
        # More than amuxd has threads for repositories, each of which would take one.
        repositories = [repository(tmp_path / f"r{number}/code") for number in range(18)]
        adding = [
            amux.popen("ws", "add", f"n{number}", cwd=repo, stderr=subprocess.PIPE)
            for number, repo in enumerate(repositories)
        ]
        for process in adding:
            _, said_of_it = process.communicate(timeout=AT_MOST)
            assert is_out_of_reach(places, said_of_it)
            assert process.returncode == 1
        assert amux.cli("ws", "rm", "near", timeout=AT_MOST).stdout == "removed near\n"
        amux.stop()
        ended = amux.machine.systemctl("show", "--property=Result", "--value", "amuxd.service")
        assert ended.strip() == "success"


def test_a_set_up_for_what_hangs_keeps_no_other_waiting(amux: Amux, directory: Path, tmp_path: Path) -> None:
    away, here, link = tmp_path / "away", tmp_path / "code", tmp_path / "link"
    away.mkdir()
    link.symlink_to(here)
    set_ups = f'"{away}" = "touch away", "{link}" = "touch here"'
    with hung(amux, away):
        began = time.monotonic()
        configure(amux, f"[workspaces]\nsetup = {{ {set_ups} }}\n")
        added = amux.cli("ws", "add", "--allow-setup", "new", cwd=here, timeout=AT_MOST).stdout
        assert "setting up new: touch here" in added
        amux.restart()
        assert time.monotonic() - began < AT_MOST
        assert (workspace_directory(amux, "new") / "here").exists()


def test_a_place_that_hangs_is_not_made_anew(amux: Amux, directory: Path, tmp_path: Path) -> None:
    again = ("ws", "add", "far", "--branch", "far", "--repo", str(tmp_path / "code"))
    with hung(amux, directory):
        amux.cli("ws", "rm", "--force", "far", timeout=AT_MOST)
        assert is_out_of_reach(directory, refused(amux, *again))


def test_by_force_it_is_forgotten_and_stays(amux: Amux, directory: Path) -> None:
    with hung(amux, directory):
        removed = amux.cli("ws", "rm", "--force", "far", timeout=60).stdout.splitlines()
    assert removed == ["removed far", f"  kept {directory}, which is out of reach"]
    assert (directory / "file0").exists()


def test_amuxd_starts_and_ends_beside_it(amux: Amux, directory: Path) -> None:
    session = amux.create(["sleep", "1000"], workspace="far")
    with hung(amux, directory):
        assert changes(amux)["far"] == "out of reach"
        began = time.monotonic()
        amux.restart()
        assert time.monotonic() - began < AT_MOST
        assert session.wait_state("running") == "running"
        assert changes(amux)["far"] == "out of reach"


def test_one_that_was_being_made_keeps_nobody_waiting(amux: Amux, directory: Path, tmp_path: Path) -> None:
    session = amux.create(["sleep", "1000"])
    (file,) = (f for f in (amux.state / "workspaces").glob("*.json") if str(directory) in f.read_text())
    amux.stop()
    text = file.read_text().replace('"being_made":false', '"being_made":true')
    assert '"being_made":true' in text
    file.write_text(text)
    with hung(amux, tmp_path / "code/.git"):
        began = time.monotonic()
        amux.start()
        assert session.state == "running"
        assert time.monotonic() - began < AT_MOST
        assert "Problem:     being made: " in amux.cli("ws", "show", "far").stdout
        assert "there is a workspace named 'far' already" in refused(
            amux, "ws", "add", "far", "--path", str(tmp_path)
        )
        assert f"{directory} is the workspace far already" in refused(
            amux, "ws", "add", "other", "--path", str(directory)
        )
    until(lambda: not file.exists(), 30)
    assert not directory.exists()
    amux.cli("ws", "add", "far", cwd=tmp_path / "code")
