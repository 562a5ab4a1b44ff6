"""A run that was asked for, and had not begun when amuxd went, does not begin by itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import Reboots, state_file, state_on_disk
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

ASKED = {
    "state": "created",
    "previous": "stopped",
    "run": 2,
    "end": None,
    "reason": "restart was asked for",
    "changed_for": "user",
    "command": None,
    "server": None,
}


def leave_created(amux: Amux, session: Session, **changes: object) -> None:
    """As amuxd did that was ended between the two steps, or told that the second was refused."""
    amux.stop()
    path = state_file(amux, session)
    path.write_text(json.dumps(json.loads(path.read_text()) | ASKED | changes))


def stopped(amux: Amux, **options: Any) -> Session:
    session = amux.create(["sleep", "infinity"], **options)
    session.stop()
    session.certificate()
    return session


def test_it_has_failed_and_can_be_begun_by_hand(amux: Amux) -> None:
    session = stopped(amux)
    leave_created(amux, session)
    amux.start()
    why = "could not start: amuxd was gone before it was begun"
    assert (session.state, session.get("Run"), session.get("Reason")) == ("failed", 2, why)
    session.call("Restart")
    assert (session.state, session.get("Run")) == ("running", 3)


def test_so_it_has_on_another_boot(amux: Amux) -> None:
    session = stopped(amux)
    leave_created(amux, session)
    Reboots(amux).reboot(session)
    assert (session.state, session.get("Run")) == ("failed", 2)


def test_what_was_to_come_back_by_itself_does_on_the_next_boot(amux: Amux) -> None:
    session = stopped(amux, resume="auto")
    leave_created(amux, session, auto_run=2, auto_boot="this boot")
    Reboots(amux).reboot(session)
    until(lambda: (session.state, session.get("Run")) == ("running", 3))
    assert state_on_disk(amux, session)["auto_failures"] == 1


@pytest.mark.parametrize("another_boot", [False, True])
def test_one_that_waits_for_a_slot_goes_on_waiting(amux: Amux, tmp_path: Path, another_boot: bool) -> None:
    path = amux.manager.call(
        "AddWorkspace", "sa{sv}", "place", {"path": ("s", str(tmp_path)), "slots": ("u", 1)}
    )
    place = path.rpartition("/")[2]
    session = stopped(amux, workspace=place, queue=True)
    holder = amux.create(["sleep", "infinity"], workspace=place)
    session.call("Restart")
    assert (session.state, session.get("Run")) == ("created", 2)
    if another_boot:
        Reboots(amux).reboot(session, holder)
        # Whoever held the slot holds it no more.
    else:
        amux.restart()
        assert (session.state, session.get("Run")) == ("created", 2)
        holder.stop()
    session.wait_state("running")
    assert session.get("Run") == 2
