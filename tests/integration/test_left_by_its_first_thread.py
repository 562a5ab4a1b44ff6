"""A program that goes on after its first thread has left is alive to an amuxd that comes back as well."""

import signal

import pytest
from away_fixtures import stays_down
from ends_fixtures import ended, ready
from harness.daemon import Amux
from harness.first_thread import LEFT_BY_ITS_FIRST
from harness.waiting import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_adopted_and_its_own_end_is_told(amux: Amux, number: int) -> None:
    session = amux.create(LEFT_BY_ITS_FIRST)
    ready(session)
    pid = session.get("Pid")
    with stays_down(amux, number):
        pass
    amux.start()
    session.wait_state("running")
    until(lambda: session.get("Pid") == pid)
    assert session.get("SessionAlive") == "alive"
    session.send("7")
    assert ended(session)["Reason"] == "exited with code 7"


def test_it_is_stopped_as_any_other(amux: Amux) -> None:
    session = amux.create(LEFT_BY_ITS_FIRST)
    ready(session)
    session.stop()
    assert session.certificate()["signal"] == "SIGTERM"
