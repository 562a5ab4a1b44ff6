"""How much amuxd logs and where to, changed while it runs as systemd's own tools do it."""

import pytest
from harness.client import BUS_NAME, Session
from harness.daemon import Amux
from harness.machine import CommandFailed
from harness.waiting import until

CONTROL = ("/org/freedesktop/LogControl1", "org.freedesktop.LogControl1")
INFO, DEBUG = "6", "7"


def busctl(amux: Amux, verb: str, *arguments: str) -> str:
    return amux.machine.run(["busctl", "--user", verb, BUS_NAME, *CONTROL, *arguments]).stdout.strip()


def priorities(amux: Amux) -> list[str]:
    return [line["PRIORITY"] for line in amux.journal() if line.get("SYSLOG_IDENTIFIER") == "amuxd"]


@pytest.fixture
def session(amux: Amux) -> Session:
    """There is no notification server that its failures could be told to, and only debug tells so."""
    session = amux.create(["false"], name="failing")
    session.wait_state("failed")
    return session


def fail(session: Session) -> None:
    """It is logged before it is told."""
    session.call("Restart")
    session.wait_state("failed")


def test_the_level_decides_what_comes_to_the_journal(amux: Amux, session: Session) -> None:
    assert busctl(amux, "get-property", "LogLevel") == 's "info"'
    assert INFO in priorities(amux)
    assert DEBUG not in priorities(amux)
    busctl(amux, "set-property", "LogLevel", "s", "debug")
    fail(session)
    until(lambda: DEBUG in priorities(amux), timeout=60)
    busctl(amux, "set-property", "LogLevel", "s", "warning")
    assert busctl(amux, "get-property", "LogLevel") == 's "warning"'
    before = priorities(amux).count(INFO)
    fail(session)
    assert priorities(amux).count(INFO) == before
    busctl(amux, "set-property", "LogLevel", "s", "info")
    fail(session)
    assert priorities(amux).count(INFO) > before
    # What was set is for this amuxd alone.
    amux.machine.systemctl("service-log-level", "amuxd.service", "err")
    assert busctl(amux, "get-property", "LogLevel") == 's "err"'
    amux.restart()
    assert busctl(amux, "get-property", "LogLevel") == 's "info"'


def test_the_target_decides_where_it_goes(amux: Amux, session: Session) -> None:
    assert busctl(amux, "get-property", "SyslogIdentifier") == 's "amuxd"'
    busctl(amux, "set-property", "LogTarget", "s", "null")
    before = len(priorities(amux))
    fail(session)
    assert len(priorities(amux)) == before
    busctl(amux, "set-property", "LogTarget", "s", "journal")
    fail(session)
    assert len(priorities(amux)) > before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("LogLevel", "s", "loud"), "there is no log level 'loud'"),
        (("LogTarget", "s", "moon"), "there is no log target 'moon'"),
        (("LogLevel", "u", "3"), "is of type s"),
        (("SyslogIdentifier", "s", "x"), "cannot be set"),
    ],
)
def test_what_it_cannot_be_set_to(amux: Amux, change: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandFailed, match=says):
        busctl(amux, "set-property", *change)
    assert busctl(amux, "get-property", "LogLevel") == 's "info"'
