"""Sessions that go on when they are told to, and what is told of them meanwhile."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.bus import Events, Signal
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until


@pytest.fixture
def events(amux: Amux) -> Iterator[Events]:
    with amux.events() as events:
        yield events


def said(events: Events, kind: str, after: Signal | None = None) -> Signal:
    def is_it(event: Signal) -> bool:
        return event.member == "AttentionChanged" and event.body[3] == kind

    return events.wait(is_it, after=after)


def script(amux: Amux, text: str) -> Session:
    """Goes on, step by step, with each line that it is sent on its pipe, which draws nothing."""
    path = amux.machine.temporary / "go-on"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    prelude = f"exec 3<>{path}; "
    return amux.create(["sh", "-c", prelude + text], name="agent")


def go_on(amux: Amux) -> None:
    with (amux.machine.temporary / "go-on").open("w") as pipe:
        pipe.write("\n")


def report(amux: Amux, session: Session, kind: str, message: str = "") -> None:
    token = amux.state / "sessions" / session.id / "runs" / str(session.get("Run")) / "token"
    environment = {
        "AMUX_SESSION_ID": session.id,
        "AMUX_TOKEN": token.read_text().strip(),
        "AMUX_SOCKET": str(amux.runtime / "amuxd.sock"),
    }
    amux.cli("report", kind, message, env=environment)


def hear(session: Session) -> None:
    """Waits until amuxd has heard, and decided on, all that was printed so far."""
    log = Path(session.get("LogPath"))
    size = log.stat().st_size
    until(lambda: int(log.with_name("heard").read_text().split()[0]) >= size)


def pass_over(told: float) -> None:
    """What comes sooner after it counts as a part of it."""
    until(lambda: time.monotonic() > told + 2.2, timeout=5)
