"""A front end's connection to the events socket, and what a session has to report with."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness.client import Client, Session
from harness.daemon import Amux
from harness.lines import Lines
from harness.waiting import until


def path_of(amux: Client) -> Path:
    return amux.machine.outside(amux.runtime / "amuxd.sock")


def connect(amux: Client) -> Lines:
    return Lines(path_of(amux))


@pytest.fixture
def lines(amux: Amux) -> Iterator[Lines]:
    with connect(amux) as lines:
        yield lines


def subscribe(lines: Lines) -> None:
    assert lines.ask(type="subscribe") == {"type": "ok"}


def token_of(amux: Client, session: Session) -> str:
    run = session.get("Run")
    return (amux.state / "sessions" / session.id / "runs" / str(run) / "token").read_text().strip()


def environment_of(amux: Client, session: Session) -> dict[str, str]:
    process = psutil.Process(amux.machine.outside_pid(session.get("Pid")))
    # Until it has become the command, it has only what its terminal server has.
    until(lambda: "AMUX_TOKEN" in process.environ())
    return dict(process.environ())
