"""A session whose files were spoiled by hand: what is known is told, it can be ended, and nothing is lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.client import Client, Session
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until

OBEDIENT = "trap 'echo asked; exit 5' TERM; trap 'echo woken' USR1; echo ready; while :; do sleep 0.05; done"


def begun(amux: Client) -> Session:
    session = amux.create(["sh", "-c", OBEDIENT], name="hurt")
    until(lambda: "ready" in session.log())
    return session


@contextmanager
def amuxd_away(amux: Client) -> Iterator[None]:
    if isinstance(amux, Amux):
        amux.stop()
        yield
        amux.start()
        return
    bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
    amux.machine.kill(amux.bus.call(*bus, "GetConnectionUnixProcessID", "s", "org.amux.Amux1"))
    yield
    amux.cli("ls")


def spoil(amux: Client, session: Session, name: str) -> Path:
    path = amux.state / "sessions" / session.id / name
    path.write_text("{ spoiled")
    return path


def refused(amux: Client, *arguments: str) -> str:
    told = amux.cli(*arguments, check=False)
    assert told.returncode == 4
    return told.stderr


@pytest.mark.parametrize("name", ["session.json", "state.json"])
def test_it_is_shown_stopped_and_put_aside(anywhere: Client, name: str) -> None:
    amux = anywhere
    session = begun(amux)
    pid, log = session.get("Pid"), session.get("LogPath")
    with amuxd_away(amux):
        spoil(amux, session, name)
    assert (session.state, session.get("SessionAlive"), session.get("HostAlive")) == (
        *("unknown", "alive", "alive"),
    )
    assert (session.get("Pid"), session.get("Run"), session.get("LogPath")) == (pid, 1, log)
    shown = amux.cli("show", session.id).stdout
    assert f"{name} cannot be read" in shown
    assert "it is alive, and can be stopped" in shown
    assert ("Command:" in shown) == (name == "state.json")
    assert amux.cli("logs", session.id).stdout == "ready\n"
    assert "stop it first" in refused(amux, "rm", "-f", session.id)
    amux.cli("kill", "-s", "USR1", session.id)
    until(lambda: "woken" in Path(log).read_text())
    amux.cli("stop", session.id)
    assert Path(log).read_text() == "ready\nwoken\nasked\n"
    assert (session.get("SessionAlive"), session.get("HostAlive"), session.get("Pid")) == ("dead", "dead", 0)
    assert "nothing of it is alive" in amux.cli("show", session.id).stdout
    with pytest.raises(ProcessLookupError):
        amux.machine.outside_pid(pid)
    assert not amux.machine.outside(amux.runtime / "tmux" / f"{session.id}.sock").exists()
    assert "nothing of it is alive" in refused(amux, "stop", session.id)
    assert "no command of it is seen to live" in refused(amux, "kill", session.id)
    aside = amux.state / "set-aside"
    assert str(aside) in refused(amux, "rm", session.id)
    with amux.events() as events:
        amux.cli("rm", "-f", session.id)
        events.wait(lambda event: event.member == "InterfacesRemoved" and event.body[0] == session.path)
    assert amux.sessions() == {}
    [kept] = aside.iterdir()
    assert (kept / name).read_text() == "{ spoiled"
    assert (kept / "runs/1/output.log").read_text() == "ready\nwoken\nasked\n"
    with amuxd_away(amux):
        pass
    assert amux.sessions() == {}


def test_its_end_is_an_event(anywhere: Client) -> None:
    amux = anywhere
    session = begun(amux)
    with amuxd_away(amux):
        spoil(amux, session, "state.json")
    amux.machine.kill(session.get("Pid"))
    until(lambda: session.get("SessionAlive") == "dead")
    assert session.get("HostAlive") == "alive"
    assert "its command has ended" in session.get("Reason")
    amux.machine.run(["tmux", "-S", amux.runtime / "tmux" / f"{session.id}.sock", "kill-server"])
    until(lambda: session.get("HostAlive") == "dead")


def test_a_terminal_that_does_not_answer_is_no_reason_to_let_it_live(amux: Amux) -> None:
    session = begun(amux)
    with amuxd_away(amux):
        spoil(amux, session, "state.json")
        (amux.machine.outside(amux.runtime) / "tmux" / f"{session.id}.sock").unlink()
    assert (session.get("SessionAlive"), session.get("HostAlive")) == ("unknown", "alive")
    assert "seen to live" in refused(amux, "kill", session.id)
    session.stop()
    assert (session.get("SessionAlive"), session.get("HostAlive")) == ("dead", "dead")


def test_what_lives_without_any_files_is_shown_stopped_and_removed(anywhere: Client) -> None:
    amux = anywhere
    session, other = begun(amux), amux.create(["sleep", "1000"], name="other")
    pid, name = session.get("Pid"), "hurt" if isinstance(amux, Amux) else session.id
    with amuxd_away(amux):
        session.delete_files()
    assert set(amux.sessions()) == {session.id, other.id}
    assert (session.get("Name"), session.state, session.get("Pid")) == (name, "unknown", pid)
    assert "its files are gone; it is alive, and can be stopped" in amux.cli("show", session.id).stdout
    assert "stop it first" in refused(amux, "rm", "-f", session.id)
    amux.cli("stop", session.id)
    with pytest.raises(ProcessLookupError):
        amux.machine.outside_pid(pid)
    assert "its files are gone; nothing of it is alive" in amux.cli("show", session.id).stdout
    amux.cli("rm", session.id)
    assert set(amux.sessions()) == {other.id}
    assert other.state == "running"
    with amuxd_away(amux):
        pass
    assert set(amux.sessions()) == {other.id}


def test_deleted_while_amuxd_knows_it_a_session_is_stopped_and_removed_as_any_other(anywhere: Client) -> None:
    amux = anywhere
    session = begun(amux)
    session.delete_files()
    assert "running" in amux.cli("show", session.id).stdout
    assert amux.cli("history", session.id).returncode == 0
    amux.cli("stop", session.id)
    assert (session.state, session.get("Reason")) == ("stopped", "stopped; exited with code 5")
    assert "stopped" in amux.cli("show", session.id).stdout
    assert [entry[3] for entry in session.call("History")][-2:] == ["stopping", "stopped"]
    with amuxd_away(amux):
        pass
    assert (session.state, session.get("Name")) == ("stopped", "hurt")
    session.delete_files()
    amux.cli("rm", session.id)
    assert amux.sessions() == {}


def test_what_ends_after_its_files_were_deleted_is_told(anywhere: Client) -> None:
    session = begun(anywhere)
    session.delete_files()
    anywhere.machine.kill(session.get("Pid"))
    session.wait_state("failed")
    before = time.monotonic()
    assert "killed by SIGKILL" in anywhere.cli("show", session.id).stdout
    assert time.monotonic() - before < 10
    anywhere.cli("rm", session.id)


def test_a_unit_of_somebody_else_is_no_session(amux: Amux) -> None:
    with amuxd_away(amux):
        amux.machine.run(["systemd-run", "--user", "--unit=amux-foobar", "sleep", "1000"])
    assert amux.sessions() == {}


@pytest.mark.parametrize("name", ["session.json", "state.json"])
def test_spoiled_while_amuxd_knows_better_it_is_stopped_and_removed_as_any_other(
    anywhere: Client, name: str
) -> None:
    session = begun(anywhere)
    path = spoil(anywhere, session, name)
    anywhere.cli("stop", session.id)
    assert (session.state, session.get("Reason")) == ("stopped", "stopped; exited with code 5")
    assert [entry[3] for entry in session.call("History")][-2:] == ["stopping", "stopped"]
    kept = list(path.parent.glob(f"{name}.unreadable-*"))
    assert [file.read_text() for file in kept] == (["{ spoiled"] if name == "state.json" else [])
    anywhere.cli("rm", session.id)
    assert anywhere.sessions() == {}


@pytest.mark.parametrize("name", ["session.json", "state.json"])
def test_the_worktree_that_it_may_work_in_stays(amux: Amux, tmp_path: Path, name: str) -> None:
    amux.cli("ws", "add", "fix", cwd=repository(tmp_path / "code"))
    path = amux.manager.call("GetWorkspace", "s", "fix")
    directory = Path(amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace").get("Directory"))
    session = amux.create(["sleep", "1000"], name="hurt", workspace="fix")
    with amuxd_away(amux):
        spoil(amux, session, name)
    for force in ((), ("--force",)):
        told = amux.cli("ws", "rm", "fix", *force, check=False)
        assert told.returncode == 4
        assert "cannot be read may be at work in fix: " in told.stderr
        assert directory.exists()
    amux.cli("stop", session.id)
    amux.cli("ws", "rm", "fix")
    assert not directory.exists()
