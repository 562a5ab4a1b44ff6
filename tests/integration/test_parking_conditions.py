"""What an agent is parked in spite of, and what it is not."""

import os
import signal

import pytest
from agent_fixtures import Agents
from harness.client import Client, Session
from harness.daemon import Amux
from harness.waiting import until


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


def report(amux: Amux, session: Session, kind: str) -> None:
    token = amux.state / "sessions" / session.id / "runs" / str(session.get("Run")) / "token"
    environment = {
        "AMUX_SESSION_ID": session.id,
        "AMUX_TOKEN": token.read_text().strip(),
        "AMUX_SOCKET": str(amux.runtime / "amuxd.sock"),
    }
    amux.cli("report", kind, "finished", env=environment)


def test_one_that_has_ended_its_turn_is_parked_and_told_of_until_somebody_comes(
    amux: Amux, agents: Agents
) -> None:
    session, asks = agents.create(name="talk"), agents.create(name="asks")
    for one in (session, asks):
        one.send("first")
        until(lambda: "heard 1: first" in one.log())  # noqa: B023
    with amux.events() as events:
        report(amux, asks, "permission")
        report(amux, session, "turn")
        # Only now, however long it took until here.
        agents.configure(park_after=2)
        until(lambda: session.get("Parked"))
        for way in (amux.restart, amux.kill):
            way()
            amux.start()
            assert (session.get("Parked"), session.get("Attention")) == (True, "turn")
        assert set(amux.manager.get("Attention")) == {session.id, asks.id}
        assert ", waiting: turn)" in amux.cli("ls").stdout
        session.send("second")
        until(lambda: "heard 2: second" in session.log())
        over = events.wait(lambda event: event.member == "AttentionChanged" and event.body[3] == "")
        assert over.body[1] == session.id
    assert session.get("Attention") == ""
    assert (asks.get("Attention"), asks.get("Parked")) == ("permission", False)


def tmux(amux: Amux, session: Session, *words: str) -> str:
    socket = amux.runtime / "tmux" / f"{session.id}.sock"
    return amux.machine.run(["tmux", "-S", socket, *words]).stdout.strip()


@pytest.mark.parametrize("opened", ["new-window", "split-window"])
def test_what_a_person_opened_in_its_terminal_is_not_ended_by_parking(
    amux: Amux, agents: Agents, opened: str
) -> None:
    agents.configure(park_after=1)
    busy, idle = agents.create(name="busy"), agents.create(name="idle")
    pane, pid = tmux(
        *(amux, busy, opened, "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "exec sleep 87654")
    ).split()
    until(lambda: idle.get("Parked"))
    until(lambda: any("busy is not parked: busy cannot be" in line["MESSAGE"] for line in amux.journal()))
    refused = amux.cli("park", "busy", check=False)
    assert refused.returncode == 4
    assert refused.stderr == (
        "amux: busy cannot be parked: other windows or panes are open in its terminal, "
        "and what runs there would be lost; close them first\n"
    )
    assert not busy.get("Parked")
    # One that has ended is lost no more, and nothing tells of it.
    amux.machine.kill(int(pid))
    until(lambda: tmux(amux, busy, "display-message", "-p", "-t", pane, "#{pane_dead}") == "1")
    until(lambda: busy.get("Parked"))


@pytest.mark.parametrize("kind", ["systemd", "embedded"])
def test_one_that_computes_without_a_word_is_not_parked(request: pytest.FixtureRequest, kind: str) -> None:
    amux: Client = request.getfixturevalue("amux" if kind == "systemd" else "embedded")
    amux.cli("ls")
    agents = Agents(amux)
    agents.configure()
    busy, idle = agents.create(name="busy"), agents.create(name="idle")
    until(lambda: "remembering" in idle.log())
    busy.send("/work")
    until(lambda: "working" in busy.log())
    agents.configure(park_after=0.5)
    until(lambda: idle.get("Parked"))
    # The other one was as idle, and was looked at as often.
    idle.send("first")
    until(lambda: "heard 1: first" in idle.log())
    until(lambda: idle.get("Parked"))
    assert not busy.get("Parked")
    [worker] = [pid for pid, line in amux.machine.command_lines().items() if "USR1" in " ".join(line)]
    os.kill(worker, signal.SIGUSR1)
    until(lambda: busy.get("Parked"))
