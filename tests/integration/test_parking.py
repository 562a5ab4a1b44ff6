"""Parking: the process is gone, the session stays, and it comes back for whoever wants it."""

import contextlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from agent_fixtures import Agents, state_file, state_on_disk
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux, Embedded
from harness.terminal import Terminal
from harness.waiting import until

from amuxd.logs import END_OF_LOG


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


def parked(agents: Agents, **options: str) -> Session:
    session = agents.create(**options)
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    return session


def test_a_parked_session_runs_on_without_a_process(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    assert session.state == "running"
    assert session.get("Parked")
    assert session.get("ParkedUSec") > session.get("StartedUSec")
    assert session.get("Pid") == 0
    assert session.get("SessionAlive") == session.get("HostAlive") == "none"
    assert "goodbye" in session.log()
    units = amux.machine.systemctl("list-units", "--plain", "--no-legend", "amux-*.service")
    assert session.id not in units
    assert "running (parked" in amux.cli("ls").stdout
    assert amux.manager.get("Badge") == 1
    assert [line.split("\t")[3] for line in amux.cli("history", session.id).stdout.splitlines()[1:]] == [
        "created",
        "starting",
        "running",
    ]
    refused = amux.cli("park", session.id, check=False)
    assert refused.returncode == 4
    assert "is parked, park is not possible" in refused.stderr


@pytest.mark.parametrize("restarts", [False, True])
def test_the_end_of_a_parked_session_is_that_of_its_process(
    amux: Amux, agents: Agents, restarts: bool
) -> None:
    session = parked(agents)
    over = time.time_ns() // 1000
    if restarts:
        amux.restart()
        session.wait_state("running")
    session.stop()
    certificate = session.certificate()
    assert (session.state, certificate["known"], certificate["exit_code"]) == ("stopped", True, 0)
    assert session.get("ParkedUSec") == 0
    assert session.get("StartedUSec") < certificate["ended_usec"] <= over < session.get("StateChangedUSec")
    assert "how is not known" not in amux.cli("show", session.id).stdout
    # It is no end of the next run.
    session.call("Restart")
    until(lambda: "heard" not in session.log())
    amux.machine.kill(session.get("Pid"))
    session.wait_state("failed")
    assert session.certificate()["signal"] == "SIGKILL"
    assert session.certificate()["ended_usec"] == session.get("StateChangedUSec")


def test_the_end_of_a_process_that_was_brought_back_is_its_own(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    over = time.time_ns() // 1000
    session.send("second")
    until(lambda: "heard 2: second" in session.log())
    session.stop()
    assert session.certificate()["ended_usec"] > over


def test_a_parked_session_whose_directory_goes_ended_when_it_was_parked(amux: Amux, agents: Agents) -> None:
    place = amux.machine.home / "place"
    place.mkdir()
    amux.cli("ws", "add", "here", "--path", str(place))
    session = agents.create(workspace="here", cwd=str(place))
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    over = time.time_ns() // 1000
    shutil.rmtree(place)
    session.wait_state("orphaned")
    certificate = session.certificate()
    assert (certificate["known"], certificate["exit_code"]) == (True, 0)
    assert certificate["ended_usec"] <= over


@pytest.mark.parametrize("left", [b"", END_OF_LOG])
def test_what_is_sent_arrives_however_slow_it_comes_back(amux: Amux, agents: Agents, left: bytes) -> None:
    session = parked(agents)
    with Path(session.get("LogPath")).open("ab") as log:
        # By an amuxd that was killed while it looked for the end of what was printed.
        log.write(left)
    agents.configure(extra=("--slow", "1"))
    amux.cli("send", session.id, "second")
    until(lambda: "heard 2: second" in session.log())
    assert not session.get("Parked")
    assert session.get("Run") == 1
    assert session.log().count("remembering") == 2
    assert session.get("SessionAlive") == "alive"


def test_what_is_sent_arrives_although_it_pauses_while_it_starts(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    agents.configure(extra=("--pauses", "1.5"))
    amux.cli("send", session.id, "second")
    until(lambda: "heard 2: second" in session.log())


def test_on_every_system(amux_everywhere: Amux) -> None:
    agents = Agents(amux_everywhere)
    agents.configure()
    session = parked(agents)
    session.send("second")
    until(lambda: "heard 2: second" in session.log())
    session.stop()
    session.call("Resume")
    until(lambda: "remembering ['first', 'second']" in session.log())


def test_without_systemd(embedded: Embedded) -> None:
    embedded.cli("ls")
    agents = Agents(embedded)
    agents.configure()
    session = parked(agents)
    assert session.get("Parked")
    assert session.get("Pid") == 0
    embedded.cli("send", session.id, "second")
    until(lambda: "heard 2: second" in session.log())
    session.stop()
    embedded.cli("resume", session.id)
    until(lambda: "remembering ['first', 'second']" in session.log())


def test_attach_brings_it_back(amux: Amux, agents: Agents) -> None:
    session = parked(agents, name="talk")
    with amux.terminal("attach", "talk") as terminal:
        terminal.expect("remembering ['first']")
    assert not session.get("Parked")


def test_resume_brings_it_back_in_its_run(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    assert session.get("Resumable")
    assert amux.cli("resume", session.id).returncode == 0
    until(lambda: "remembering ['first']" in session.log())
    assert session.get("Run") == 1


def test_it_can_be_stopped_and_begun_again(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    session.stop()
    assert (session.state, session.get("Reason"), session.get("Parked")) == (
        "stopped",
        "stopped; exited with code 0",
        False,
    )
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())
    assert session.get("Run") == 2


def test_its_idle_process_is_ended(amux: Amux, agents: Agents) -> None:
    agents.configure("brief")
    agents.configure("mute", park_after=0.1, resume=[])
    mute = agents.create("mute")
    watched, left = agents.create("brief", name="watched"), agents.create("brief", name="left")
    # One that is parked before it has begun its conversation has none to go on with.
    until(lambda: "remembering" in left.log())
    with amux.terminal("attach", "watched") as terminal:
        terminal.expect("remembering")
        agents.configure("brief", park_after=0.6)
        until(lambda: left.get("Parked"))
        assert not watched.get("Parked")
        terminal.type("\x02d")
        assert terminal.wait() == 0
    until(lambda: watched.get("Parked"))
    assert not mute.get("Parked")
    agents.configure("brief")
    left.send("hello")
    until(lambda: "heard 1: hello" in left.log())
    agents.configure("brief", park_after=0.6)
    until(lambda: left.get("Parked"))


def test_it_is_not_idle_before_what_was_sent_has_arrived(amux: Amux, agents: Agents) -> None:
    agents.configure("brief")
    session = agents.create("brief")
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    # It is ready long after it would be idle, and hears then what was typed.
    agents.configure("brief", park_after=0.5, extra=("--slow", "2"))
    session.send("second")
    agents.configure("brief")
    until(lambda: "heard 2: second" in session.log())
    assert session.log().count("remembering") == 2


def test_it_is_not_idle_before_who_asked_for_its_terminal_has_come(amux: Amux, agents: Agents) -> None:
    agents.configure("brief")
    session, other = agents.create("brief", name="talk"), agents.create("brief")
    for one in (session, other):
        until(lambda: "remembering" in one.log())  # noqa: B023
    session.call("Park")
    attach = session.call("AttachCommand")
    until(lambda: session.log().count("remembering") == 2)
    # The other one is in use for longer.
    other.send("first")
    until(lambda: "heard 1: first" in other.log())
    agents.configure("brief", park_after=0.5)
    until(lambda: other.get("Parked"))
    assert not session.get("Parked")
    with Terminal(amux.machine, attach, env=amux.environment) as terminal:
        terminal.expect("remembering")
        until(lambda: session.get("Attached") == 1)
        terminal.type("\x02d")
        assert terminal.wait() == 0
    # Nor is one for ever of whom nobody has come.
    session.call("AttachCommand")
    until(lambda: session.get("Parked"))


def test_one_that_never_is_to_be_parked(amux: Amux, agents: Agents) -> None:
    agents.configure("brief", park_after=0.3)
    agents.configure("never", park_after="never")
    never, brief = agents.create("never"), agents.create("brief")
    until(lambda: brief.get("Parked"))
    assert not never.get("Parked")
    agents.configure("never", park_after=0.1)
    until(lambda: never.get("Parked"))


def test_an_agent_that_stays_is_parked_by_its_own_end(amux: Amux, agents: Agents) -> None:
    agents.configure(on_exit="stay")
    session = agents.create()
    session.send("first")
    session.send("/exit")
    until(lambda: session.get("Parked"))
    assert session.state == "running"
    session.send("second")
    until(lambda: "heard 2: second" in session.log())
    session.send("/crash")
    assert session.wait_state("failed") == "failed"
    assert session.get("ExitCode") == 3


def test_one_that_stays_and_ends_while_amuxd_is_away_is_found_parked(amux: Amux, agents: Agents) -> None:
    agents.configure(on_exit="stay")
    session = agents.create()
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    socket = amux.runtime / "tmux" / f"{session.id}.sock"
    amux.stop()
    amux.machine.run(["tmux", "-S", str(socket), "send-keys", "-t", "%0", "/exit", "Enter"])
    until(session.command_has_ended)
    amux.start()
    until(lambda: session.get("Parked"))
    assert session.state == "running"
    session.send("second")
    until(lambda: "heard 2: second" in session.log())


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_amuxd_finds_it_parked(amux: Amux, agents: Agents, way: str) -> None:
    session = parked(agents)
    since = session.get("ParkedUSec")
    if way == "kill":
        amux.kill()
    amux.restart()
    assert session.state == "running"
    assert session.get("ParkedUSec") == since
    session.send("second")
    until(lambda: "heard 2: second" in session.log())


def test_it_is_parked_still_after_a_reboot(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    amux.stop()
    path = state_file(amux, session)
    assert '"state":"suspended"' in path.read_text()
    path.write_text(re.sub('"boot_id":"[^"]*"', '"boot_id":"another"', path.read_text()))
    amux.start()
    assert (session.state, session.get("Parked")) == ("running", True)


# Longer than systemd gives what is left of a session.
SAVES = 7


@pytest.mark.parametrize(("way", "saves"), [("restart", SAVES), ("kill", SAVES), ("restart", 1)])
def test_an_agent_that_is_being_parked_has_its_time_to_end_whatever_becomes_of_amuxd(
    amux: Amux, agents: Agents, way: str, saves: int
) -> None:
    agents.configure(extra=("--saves", str(saves)), stop_grace=40)
    session = agents.create(name="talk")
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    parking = amux.popen("park", "talk", stderr=subprocess.PIPE, text=True)
    until(lambda: "saving" in session.log())
    if way == "kill":
        amux.kill()
    amux.restart()
    _, said = parking.communicate(timeout=60)
    if (way, saves) == ("restart", SAVES):
        assert said == "amux: amuxd is stopping, and what was asked for may be done yet\n"
    assert (session.state, session.get("Parked")) == ("running", True)
    agents.configure()
    session.send("second")
    until(lambda: "heard 2: second" in session.log())
    assert session.log().count("goodbye") == 1
    session.stop()
    assert session.certificate()["exit_code"] == 0


def test_amuxd_finishes_what_it_was_killed_in(amux: Amux, agents: Agents) -> None:
    """The word that it is parked is on disk before its process is asked to end."""
    agents.configure(extra=("--saves", str(SAVES)), stop_grace=40)
    session = agents.create()
    until(lambda: "remembering" in session.log())
    pid = session.get("Pid")
    amux.machine.systemctl("stop", "amuxd.socket", "amuxd.service")
    path = state_file(amux, session)
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | {"parked": True, "parked_at": state["state_changed_at"]}))
    amux.start()
    assert (session.state, session.get("Parked")) == ("running", True)
    until(lambda: not amux.machine.outside(f"/proc/{pid}").exists())
    assert "goodbye" in session.log()
    session.send("first")
    until(lambda: "heard 1: first" in session.log())


def test_one_that_does_not_listen_is_parked_by_hand_alone(amux: Amux, agents: Agents) -> None:
    agents.configure(extra=("--deaf",), stop_grace=0.2, park_after=0.3)
    session = agents.create(name="deaf")
    pid = session.get("Pid")
    told = (
        "deaf is not parked: deaf could not be parked: its command was asked to end, and has not within 0.2"
    )
    until(lambda: sum(told in line["MESSAGE"] for line in amux.journal()) >= 2)
    agents.configure(extra=("--deaf",), stop_grace=0.2)
    until(lambda: not session.get("Parked"))
    assert (session.get("Pid"), session.get("SessionAlive")) == (pid, "alive")
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    assert session.get("Parked")
    session.send("second")
    until(lambda: "heard 2: second" in session.log())


def test_one_that_cannot_come_back_stays_parked_and_says_so(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    agents.configure(resume=["no-such-program"])
    failed = amux.cli("send", session.id, "second", check=False)
    assert failed.returncode == 1
    assert failed.stderr == (
        f"amux: {session.get('Name')} stays parked, it could not be brought back: "
        "no such program: no-such-program\n"
    )
    assert (session.state, session.get("Parked")) == ("running", True)
    agents.configure(resume=[])
    with pytest.raises(CallFailed, match="stays parked: standin has no way to continue"):
        session.send("second")
    assert not session.get("Resumable")
    assert "its process has ended, and nothing brings it back" in amux.cli("show", session.id).stdout
    agents.configure()
    session.send("second")
    until(lambda: "heard 2: second" in session.log())


def test_one_whose_agent_refuses_to_come_back_has_failed(amux: Amux, agents: Agents) -> None:
    session = parked(agents)
    agents.configure(extra=("--refuse",))
    with pytest.raises(CallFailed, match="ended before anything could be typed into it"):
        session.send("second")
    assert session.wait_state("failed") == "failed"
    assert session.get("Resumable")


def test_what_cannot_be_resumed_is_not_parked(amux: Amux, agents: Agents) -> None:
    plain = amux.create(["sleep", "1000"])
    with pytest.raises(CallFailed, match="could not be brought back: it is no agent"):
        plain.call("Park")
    assert plain.get("SessionAlive") == "alive"


@pytest.fixture
def blocked(amux: Amux) -> "Blocked":
    return Blocked(amux)


class Blocked:
    """Makes the files of a session impossible to write, for root too."""

    def __init__(self, amux: Amux) -> None:
        self._amux = amux

    def _lock(self, session: Session) -> Path:
        return self._amux.state / "sessions" / session.id / ".lock"

    def block(self, session: Session) -> None:
        until(lambda: self._replaced(self._lock(session)))

    def _replaced(self, lock: Path) -> bool:
        # amuxd may make it again in between.
        lock.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            lock.mkdir()
            return True
        return False

    def release(self, session: Session) -> None:
        shutil.rmtree(self._lock(session))


def test_what_cannot_be_written_down_does_not_happen(amux: Amux, agents: Agents, blocked: Blocked) -> None:
    session = agents.create()
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    blocked.block(session)
    with pytest.raises(CallFailed, match=r"is not parked: .* cannot be locked"):
        session.call("Park")
    assert not session.get("Parked")
    assert session.get("SessionAlive") == "alive"
    blocked.release(session)
    session.call("Park")
    blocked.block(session)
    with pytest.raises(CallFailed, match=r"stays parked: .* cannot be locked"):
        session.send("second")
    assert session.get("Parked")
    assert session.get("Pid") == 0
    blocked.release(session)
    session.send("third")
    until(lambda: "heard 2: third" in session.log())


def test_a_conversation_that_cannot_be_written_down_is_learned_later(
    amux: Amux, agents: Agents, blocked: Blocked
) -> None:
    agents.configure("codex", own=True, extra=("--slow", "2"))
    session = agents.create("codex")
    blocked.block(session)
    session.send("zeroth")
    until(lambda: any("could not be written down" in line["MESSAGE"] for line in amux.journal()))
    assert state_on_disk(amux, session)["conversation_id"] == ""
    blocked.release(session)
    session.send("first")
    until(lambda: state_on_disk(amux, session)["conversation_id"])
