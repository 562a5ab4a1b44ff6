"""The time of an end that nobody watched is that of the end, or two times that it was between."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from away_fixtures import stays_down
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until

HOUR = 3600 * 1_000_000
ENDLESS = ["sh", "-c", "echo ready; exec sleep 1000"]


def now() -> int:
    return time.time_ns() // 1000


@contextmanager
def away(amux: Client, number: int) -> Iterator[None]:
    """amuxd is, and comes back at the end."""
    with stays_down(amux, number) if isinstance(amux, Amux) else nullcontext():
        if not isinstance(amux, Amux):
            amux.machine.kill(int((amux.state / "amuxd.lock").read_text()), number)
        yield
        amux.cli("ls")


def ends(amux: Client, session: Session) -> None:
    command = stored(amux, session)["command"]["pid"]
    amux.machine.kill(command, signal.SIGTERM)
    until(session.command_has_ended)


def stored(amux: Client, session: Session) -> dict[str, Any]:
    loaded = json.loads(state_file(amux, session).read_text())
    assert isinstance(loaded, dict)
    return loaded


def state_file(amux: Client, session: Session) -> Path:
    return amux.state / "sessions" / session.id / "state.json"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_shell_wrote_down_tells_when(anywhere: Client, number: int) -> None:
    amux = anywhere
    session = amux.create(["read word; exit 3"], shell=True)
    session.wait_state("running")
    with away(amux, number):
        socket = amux.runtime / "tmux" / f"{session.id}.sock"
        amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", "go", "Enter"])
        status = amux.state / "sessions" / session.id / "runs/1/exit_status"
        until(status.exists)
        ended = status.stat().st_mtime_ns // 1000
    session.wait_state("failed")
    certificate = session.certificate()
    assert (certificate["exit_code"], certificate["ended_usec"]) == (3, ended)
    assert certificate["ended_after_usec"] == 0
    assert session.get("StateChangedUSec") == ended
    assert session.call("History")[-1][0] == ended
    assert "between" not in amux.cli("show", session.id).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_where_nothing_tells_when_two_bounds_are_told(anywhere: Client, number: int) -> None:
    amux = anywhere
    session = amux.create(ENDLESS)
    until(lambda: "ready" in session.log())
    before = now()
    with away(amux, number):
        left = now()
        ends(amux, session)
        ended = now()
    session.wait_state("failed")
    certificate = session.certificate()
    after, at = certificate["ended_after_usec"], certificate["ended_usec"]
    assert session.get("StartedUSec") <= after <= left < ended <= at <= now()
    if number == signal.SIGTERM:
        # It was looked at when amuxd went.
        assert after >= before
    assert at == session.get("StateChangedUSec")
    written = json.loads((amux.state / "sessions" / session.id / "runs/1/exit.json").read_text())
    assert (written["ended_after"], written["ended_at"]) == (after, at)


def ended_within_an_hour(amux: Amux) -> Session:
    session = amux.create(ENDLESS)
    until(lambda: "ready" in session.log())
    with away(amux, signal.SIGTERM):
        ends(amux, session)
        state = stored(amux, session)
        for name in ("started_at", "alive_at"):
            state[name] -= HOUR
        state_file(amux, session).write_text(json.dumps(state))
    session.wait_state("failed")
    return session


def test_the_two_bounds_are_shown(amux: Amux) -> None:
    session = ended_within_an_hour(amux)
    shown = amux.cli("show", session.id).stdout
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    [bounds] = re.findall(rf"^Ended: +SIGTERM, between ({moment}) and ({moment}) \(\d+s ago\)$", shown, re.M)
    assert re.search(rf"^Since: +{bounds[1]} \(\d+s ago\), at the latest$", shown, re.M)
    earlier, later = (time.mktime(time.strptime(bound, "%Y-%m-%d %H:%M:%S")) for bound in bounds)
    assert later - earlier >= 3600
    # Of an end that was seen, it is known when it was.
    session.call("Restart")
    session.wait_state("running")
    os.kill(amux.machine.outside_pid(session.get("Pid")), signal.SIGTERM)
    session.wait_state("failed")
    assert session.certificate()["ended_after_usec"] == 0
    assert "at the latest" not in amux.cli("show", session.id).stdout


def test_programs_are_told_the_two_bounds(amux: Amux) -> None:
    session = ended_within_an_hour(amux)
    certificate = session.certificate()
    for command in (["show", "--json", session.id], ["ls", "--json"]):
        printed = json.loads(amux.cli(*command).stdout)
        [told] = printed if isinstance(printed, list) else [printed]
        assert told["ended_after_usec"] == certificate["ended_after_usec"]
        assert told["ended_usec"] == certificate["ended_usec"] == told["state_changed_usec"]
    session.call("Restart")
    running = json.loads(amux.cli("show", "--json", session.id).stdout)
    assert running["ended_after_usec"] is running["ended_usec"] is None


def test_what_happens_to_it_later_is_known_to_the_moment(amux: Amux) -> None:
    session = ended_within_an_hour(amux)
    amux.cli("archive", session.id)
    shown = amux.cli("show", session.id).stdout
    assert re.search(r"^Ended: +SIGTERM, between ", shown, re.M)
    assert "at the latest" not in shown


def test_one_that_is_gone_without_a_trace(embedded: Embedded) -> None:
    embedded.cli("ls")
    session = embedded.create(ENDLESS)
    until(lambda: "ready" in session.log())
    with away(embedded, signal.SIGKILL):
        left = now()
        state = stored(embedded, session)
        ends(embedded, session)
        embedded.machine.kill(state["server"]["pid"], signal.SIGKILL)
        until(lambda: not session.command_has_ended())
    session.wait_state("failed")
    certificate = session.certificate()
    assert not certificate["known"]
    assert "\tfailed (end not known)\t" in embedded.cli("ls").stdout
    assert session.get("StartedUSec") <= certificate["ended_after_usec"] <= left
    assert left < certificate["ended_usec"] <= now()
