"""What is told of an end, by everything that tells of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from away_fixtures import settings
from harness.bus import Events
from harness.client import Client, Session
from harness.daemon import Amux
from harness.machine import REPOSITORY
from harness.waiting import until
from harness.witnesses import how_ended

from amuxd import processes
from amuxd.records import Process

ENDLESS = ["sh", "-c", "echo ready; exec sleep 1000"]


def ended(session: Session, timeout: float = 60) -> dict[str, Any]:
    session.wait_state("completed", "failed", "stopped", timeout=timeout)
    names = ("State", "Reason", "ExitCode", "ExitSignal", "CoreDumped", "OomKilled")
    properties = session.properties()
    return {name: properties[name] for name in names}


def end(state: str, reason: str, code: int = -1, signal: str = "", core: bool = False) -> dict[str, Any]:
    return {
        "State": state,
        "Reason": reason,
        "ExitCode": code,
        "ExitSignal": signal,
        "CoreDumped": core,
        "OomKilled": False,
    }


def exits(amux: Client, events: Events, session: Session) -> list[tuple[Any, ...]]:
    """All that were told so far: what comes after them has been received."""
    later = amux.create(["true"], start=False)
    events.wait(lambda event: event.member == "InterfacesAdded" and event.body[0] == later.path)
    later.remove()
    return [event.body for event in events.named("SessionExited") if event.body[1] == session.id]


def on_disk(amux: Client, session: Session, name: str) -> dict[str, Any]:
    data = json.loads((amux.state / "sessions" / session.id / name).read_text())
    assert isinstance(data, dict)
    return data


def server_of(amux: Client, session: Session) -> int:
    return int(on_disk(amux, session, "state.json")["server"]["pid"])


def ready(session: Session) -> None:
    until(lambda: "ready" in session.log())


def certified(amux: Client, events: Events, session: Session, wanted: dict[str, Any]) -> list[str]:
    """Everything that tells of the end says the same; the last lines are for the caller to judge."""
    code, number = wanted["ExitCode"], wanted["ExitSignal"]
    certificate = session.certificate()
    told = exits(amux, events, session)
    assert told == [(session.path, session.id, session.get("Name"), code, number, session.get("Run"))]
    assert certificate["reason"] == wanted["Reason"]
    assert (certificate["exit_code"], certificate["signal"]) == (code, number)
    assert certificate.get("core_dumped", False) == wanted["CoreDumped"]
    assert session.get("HowEnded") == how_ended(wanted["Reason"], number, code)
    assert session.get("StateChangedUSec") == certificate["ended_usec"] > session.get("CreatedUSec")
    assert session.get("LastCheckedUSec") >= session.get("StartedUSec")
    written = on_disk(amux, session, f"runs/{session.get('Run')}/exit.json")
    assert written["reason"] == wanted["Reason"]
    assert written["last_lines"] == certificate["last_lines"]
    assert written["complete"] is True
    assert written["end"]["code"] == (None if code == -1 else code)
    assert written["end"]["signal"] == (number or None)
    history = session.call("History")
    assert (history[-1][3], history[-1][4]) == (wanted["State"], wanted["Reason"])
    assert (session.get("Pid"), session.get("SessionAlive"), session.get("HostAlive")) == (0, "dead", "dead")
    lines = certificate["last_lines"]
    assert isinstance(lines, list)
    return lines


def made(directory: Path, name: str, content: str | bytes, mode: int) -> str:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return str(path)


@contextmanager
def drop_in(amux: Amux, text: str) -> Iterator[None]:
    """An amuxd with other settings, for as long as this lasts."""
    with settings(amux, text):
        amux.restart()
        yield


FORGETFUL = """#!{python}
import sys
sys.path.insert(0, {repository!r})
from amuxd import daemon, processes
processes._GET_INFO = 0
daemon.main()
"""


def forgetful(amux: Amux) -> str:
    """The settings of an amuxd on a kernel that forgets how a process ended when it is reaped."""
    text = FORGETFUL.format(python=amux.machine.bindir / "python3", repository=str(REPOSITORY))
    return f"[Service]\nExecStart=\nExecStart={made(amux.machine.base, 'forgetful', text, 0o755)}\n"


def kernel_remembers() -> bool:
    child = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    try:
        return processes.end_of(pidfd, Process(child.pid, 0)) is not None
    finally:
        os.close(pidfd)
