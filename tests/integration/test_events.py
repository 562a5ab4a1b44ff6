"""The events socket of the real daemon, activated by systemd and made by itself: what it tells."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import stat

from events_fixtures import (
    connect,
    environment_of,
    lines,  # noqa: F401
    path_of,
    subscribe,
)
from harness.bus import Signal
from harness.daemon import Amux, Embedded
from harness.lines import Lines


def test_a_subscriber_gets_the_present_and_then_every_change(amux: Amux, lines: Lines) -> None:
    first = amux.create(["cat"], name="first")
    subscribe(lines)
    present = lines.next()
    assert present == {
        "type": "session.status",
        "sessionId": first.id,
        "name": "first",
        "status": "running",
        "reason": "the command runs",
        "run": 1,
    }
    second = amux.create(["sh", "-c", "exit 3"], name="second")
    seen = lines.until(type="terminal.exit")
    assert [message["status"] for message in seen[:-1]] == ["created", "starting", "running", "failed"]
    assert seen[-1] == {"type": "terminal.exit", "sessionId": second.id, "exitCode": 3, "signal": None}
    first.call("Kill", "s", "SIGKILL")
    assert lines.until(type="terminal.exit")[-1]["signal"] == "SIGKILL"
    second.remove()
    assert lines.until(type="session.removed")[-1]["sessionId"] == second.id


def test_a_connection_starts_amuxd_and_the_socket_is_its_owners_alone(amux: Amux) -> None:
    amux.stop()
    assert amux.pid == 0
    path = path_of(amux)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with connect(amux) as lines:
        subscribe(lines)
    assert amux.pid
    # Another user does not get through the directory.
    argv = ["setpriv", "--reuid=65534", "--clear-groups", "test", "-e", str(amux.runtime / "amuxd.sock")]
    assert amux.machine.run(argv, check=False).returncode == 1


def test_the_socket_outlives_a_restart_and_subscribers_are_told_that_it_ends(
    amux: Amux, lines: Lines
) -> None:
    session = amux.create(["cat"])
    subscribe(lines)
    amux.restart()
    assert lines.until(status="suspended")[-1]["sessionId"] == session.id
    assert lines.next() is None
    with connect(amux) as again:
        subscribe(again)
        first = again.next()
        assert first is not None
        assert first["status"] == "running"


def test_without_systemd_amuxd_makes_the_socket(embedded: Embedded) -> None:
    embedded.cli("run", "-n", "one", "cat")
    path = path_of(embedded)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with connect(embedded) as lines:
        subscribe(lines)
        first = lines.next()
        assert first is not None
        assert first["name"] == "one"


def test_a_leftover_of_an_amuxd_that_was_killed_is_no_obstacle(embedded: Embedded) -> None:
    embedded.cli("ls")
    path = path_of(embedded)
    embedded.machine.kill(int((embedded.state / "amuxd.lock").read_text()))
    assert path.exists()
    embedded.cli("ls")
    with connect(embedded) as lines:
        subscribe(lines)


def test_the_socket_and_the_bus_tell_the_same_in_the_same_order(amux: Amux) -> None:
    """Four front ends at once: two of the socket, two of the bus."""
    with amux.events() as bus, amux.events() as other, connect(amux) as lines, connect(amux) as more:
        subscribe(lines)
        subscribe(more)
        sessions = [amux.create(["sh", "-c", "exit $((RANDOM % 2))"], name=f"s{n}") for n in range(12)]
        agent = amux.create(["cat"], name="agent")
        amux.cli("report", "turn", "done", env=environment_of(amux, agent))
        for session in sessions:
            session.wait_state("completed", "failed")
        agent.stop()
        last = {"type": "terminal.exit", "sessionId": agent.id}
        told = [lines.until(**last), more.until(**last)]
        for events in (bus, other):
            events.wait(lambda event: event.member == "SessionExited" and event.body[1] == agent.id)
            told.append([message for event in events.all if (message := _as_message(event))])
    # That a session is there is told on the bus by its object.
    told = [[m for m in one if m.get("status") != "created"] for one in told]
    assert told[0] == told[1] == told[2] == told[3]
    assert len([m for m in told[0] if m["type"] == "terminal.exit"]) == 13


def _as_message(event: Signal) -> dict[str, object] | None:
    if event.member == "SessionStateChanged":
        _, key, name, _, new, reason, run = event.body
        return {
            "type": "session.status",
            "sessionId": key,
            "name": name,
            "status": new,
            "reason": reason,
            "run": run,
        }
    if event.member == "SessionExited":
        _, key, _, code, signal, _ = event.body
        return {
            "type": "terminal.exit",
            "sessionId": key,
            "exitCode": None if code < 0 else code,
            "signal": signal or None,
        }
    if event.member == "AttentionChanged":
        return {
            "type": "session.attention",
            "sessionId": event.body[1],
            "kind": event.body[3],
            "message": event.body[4],
        }
    return None
