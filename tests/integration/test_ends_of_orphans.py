"""An orphan is told to be one at once; its end once its process has ended, and the same to everybody."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ends_fixtures import exits, ready
from events_fixtures import lines, subscribe  # noqa: F401
from harness.client import Client, Session
from harness.daemon import Amux
from harness.lines import Lines
from harness.repositories import repository
from harness.waiting import until

# It takes a while of its grace, or all of it.
SLOW = "trap 'echo asked; until test -e {0}/end; do sleep 0.01; done; exit 7' TERM"
DEAF = "trap 'echo asked' TERM"


def begin(amux: Client, how: str = SLOW) -> Session:
    """It works in a directory that can go."""
    top = amux.machine.temporary / "orphans"
    shutil.rmtree(top, ignore_errors=True)
    directory = repository(top / "code")
    amux.cli("ws", "add", "here", "--path", str(directory))
    command = f"{how.format(top)}; echo ready; while :; do sleep 0.01; done"
    session = amux.create(["sh", "-c", command], workspace="here", name="worker")
    ready(session)
    return session


def orphan(session: Session) -> None:
    """Its directory is gone, and it was asked to end."""
    shutil.rmtree(session.amux.machine.temporary / "orphans/code")
    session.wait_state("orphaned")
    until(lambda: "asked" in session.log())


def let_end(session: Session) -> None:
    (session.amux.machine.temporary / "orphans/end").touch()


def waiting(amux: Client) -> "subprocess.Popen[str]":
    return amux.popen("wait", "worker", stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_its_end_is_told_once_and_truly(amux: Amux, lines: Lines) -> None:
    session = begin(amux)
    subscribe(lines)
    early = waiting(amux)
    with amux.events() as events:
        orphan(session)
        assert session.get("SessionAlive") == "alive"
        assert exits(amux, events, session) == []
        late = waiting(amux)
        with pytest.raises(subprocess.TimeoutExpired):
            late.wait(2)
        let_end(session)
        assert [early.wait(60), late.wait(60)] == [7, 7]
        assert exits(amux, events, session) == [(session.path, session.id, "worker", 7, "", 1)]
    told = [message for message in lines.until(type="terminal.exit") if message.get("status") == "orphaned"]
    assert len(told) == 1
    assert amux.cli("wait", "worker", check=False).returncode == 7
    assert session.certificate()["exit_code"] == 7


def test_one_that_takes_all_of_its_grace_is_killed_for_everybody(anywhere: Client) -> None:
    session = begin(anywhere, DEAF)
    early = waiting(anywhere)
    with anywhere.events() as events:
        orphan(session)
        late = waiting(anywhere)
        assert [early.wait(60), late.wait(60)] == [137, 137]
        assert [exit[3:5] for exit in exits(anywhere, events, session)] == [(-1, "SIGKILL")]
    assert session.certificate()["signal"] == "SIGKILL"
    assert session.get("SessionAlive") == "dead"


def test_amuxd_is_killed_before_it_has_ended(amux: Amux) -> None:
    session = begin(amux)
    early = waiting(amux)
    with amux.events() as events:
        orphan(session)
        amux.kill()
        amux.start()
        late = waiting(amux)
        with pytest.raises(subprocess.TimeoutExpired):
            late.wait(2)
        let_end(session)
        assert [early.wait(60), late.wait(60)] == [7, 7]
        assert [exit[3:5] for exit in exits(amux, events, session)] == [(7, "")]
        amux.restart()
        session.wait_state("orphaned")
        assert len(exits(amux, events, session)) == 1


def test_it_ends_while_no_amuxd_looks(amux: Amux) -> None:
    session = begin(amux)
    orphan(session)
    pid = amux.machine.outside_pid(session.get("Pid"))
    amux.stop()
    let_end(session)
    until(lambda: "Z" in state_of(pid))
    assert waiting(amux).wait(60) == 7
    assert session.certificate()["exit_code"] == 7


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return "Z"


def test_one_that_has_no_process_has_ended_at_once(amux: Amux) -> None:
    session = begin(amux)
    created = amux.create(["true"], workspace="here", start=False, name="created")
    with amux.events() as events:
        orphan(session)
        created.wait_state("orphaned")
        assert [exit[3:5] for exit in exits(amux, events, created)] == [(-1, "")]
        assert amux.cli("wait", "created", check=False).returncode == 1
        assert session.get("SessionAlive") == "alive"
        let_end(session)


def test_who_watches_hears_of_it_once_over_a_restart(amux: Amux) -> None:
    session = begin(amux)
    orphan(session)
    watching = amux.popen("watch", "--json", stdout=subprocess.PIPE)
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline())["event"] == "session"
        amux.restart()
        barrier = amux.create(["true"], name="barrier")
        barrier.wait_state("completed")
        let_end(session)
        until(lambda: session.get("SessionAlive") == "dead")
        barrier.remove()
        told: list[dict[str, Any]] = []
        while not told or told[-1]["event"] != "removed":
            told.append(json.loads(watching.stdout.readline()))
    finally:
        watching.terminate()
        watching.wait(20)
    assert [one["exit_code"] for one in told if one["event"] == "exited" and one["id"] == session.id] == [7]
