"""Where an amuxd is run by hand beside systemd, which listens on the events socket: whose it is, and when."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from events_fixtures import connect, environment_of, path_of, subscribe
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until


@contextmanager
def run_by_hand(amux: Amux) -> Iterator["subprocess.Popen[str]"]:
    amux.stop()
    by_hand = amux.machine.popen([amux.bindir / "amuxd"], env=amux.environment, stderr=subprocess.DEVNULL)
    try:
        bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
        until(lambda: amux.bus.call(*bus, "NameHasOwner", "s", "org.amux.Amux1"), timeout=60)
        yield by_hand
    finally:
        by_hand.terminate()
        by_hand.wait(20)


def reports(amux: Amux, session: Session, kind: str) -> bool:
    """As a hook does, over the socket that the session knows of."""
    told = amux.cli("report", kind, check=False, env=environment_of(amux, session))
    assert (told.returncode, told.stderr) == (0, "")
    return bool(session.get("Attention") == kind)


def test_its_sessions_reach_it_and_systemd_gets_the_socket_back(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    amux.start()
    given = path_of(amux).stat().st_ino
    with run_by_hand(amux):
        session = amux.create(["cat"])
        assert reports(amux, session, "permission")
        assert amux.pid == 0
        environment = environment_of(amux, session)
    assert path_of(amux).stat().st_ino == given
    assert [path.name for path in path_of(amux).parent.glob("amuxd.sock*")] == ["amuxd.sock"]
    # Which starts amuxd.
    assert amux.cli("report", "question", env=environment).returncode == 0
    assert amux.pid
    assert session.get("Attention") == "question"


def test_one_that_was_killed_keeps_it_from_nobody(amux: Amux) -> None:
    with run_by_hand(amux) as by_hand:
        session = amux.create(["cat"])
        # What was killed before it leaves systemd's as it is.
        by_hand.kill()
        by_hand.wait(20)
    with run_by_hand(amux) as by_hand:
        assert reports(amux, session, "permission")
        by_hand.kill()
        by_hand.wait(20)
    amux.start()
    assert reports(amux, session, "question")
    amux.stop()
    with connect(amux) as lines:
        subscribe(lines)
    assert amux.pid


@pytest.mark.parametrize("how", ["cleared away", "replaced"])
def test_what_does_not_lead_to_systemd_any_more_is_made_anew(amux: Amux, how: str) -> None:
    amux.start()
    session = amux.create(["cat"])
    amux.stop()
    path = path_of(amux)
    path.unlink()
    if how == "replaced":
        path.touch()
    amux.start()
    assert reports(amux, session, "permission")
    amux.restart()
    assert reports(amux, session, "question")


def test_the_path_leads_to_systemd_still_when_amuxd_ends(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    amux.start()
    given = path_of(amux).stat().st_ino
    amux.stop()
    assert path_of(amux).stat().st_ino == given
    with connect(amux) as lines:
        subscribe(lines)
    assert amux.pid
