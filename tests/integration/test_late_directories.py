"""After a boot a directory may not be there yet: it is of a file system that is mounted later."""

import re
from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import Agents, Reboots, state_on_disk
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until


class Late(Reboots):
    """A boot that finds a directory away."""

    def __init__(self, amux: Amux, directory: Path) -> None:
        super().__init__(amux)
        self.amux = amux
        self.directory, self.away = directory, directory.with_name("away")
        directory.mkdir()

    def reboot_without(self, *sessions: Session, in_order: bool = True) -> None:
        self.amux.stop() if in_order else self.amux.kill()
        self.directory.rename(self.away)
        self.reboot(*sessions, in_order=False)

    def mount(self) -> None:
        self.away.rename(self.directory)


@pytest.fixture
def late(amux: Amux, tmp_path: Path) -> Late:
    return Late(amux, tmp_path / "late")


@pytest.mark.parametrize(("in_order", "asked_meanwhile"), [(True, False), (False, True)])
@pytest.mark.parametrize("has_workspace", [True, False])
def test_who_comes_back_by_itself_waits_for_it(
    amux: Amux, late: Late, has_workspace: bool, in_order: bool, asked_meanwhile: bool
) -> None:
    amux.cli("ws", "add", "here", "--path", str(late.directory))
    where: dict[str, Any] = {"workspace": "here"} if has_workspace else {"cwd": str(late.directory)}
    session = amux.create(["sleep", "1000"], resume="auto", **where)
    late.reboot_without(session, in_order=in_order)
    until(lambda: f"comes back by itself once {late.directory} is there" in session.get("Reason"))
    assert (session.state, session.get("Run")) == ("suspended", 1)
    amux.restart()
    until(lambda: session.get("Reason").count("comes back by itself") == 1)
    if asked_meanwhile:
        with pytest.raises(CallFailed, match=f"its directory {late.directory} is not there"):
            session.call("Resume")
    late.mount()
    assert session.wait_state("running") == "running"
    assert session.get("Run") == 2


@pytest.mark.parametrize("is_agent", [True, False])
def test_who_comes_back_by_itself_waits_for_its_program(amux: Amux, late: Late, is_agent: bool) -> None:
    """As one that a person installed in a home of their own, which is mounted when they log in."""
    program = late.directory / "program"
    program.write_text("#!/bin/sh\necho ready\nexec sleep 1000\n")
    program.chmod(0o755)
    if is_agent:
        agents = Agents(amux)
        agents.configure("mine", start=[str(program)], resume=[str(program)])
        session = agents.create("mine", resume="auto")
    else:
        session = amux.create([str(program)], resume="auto", cwd="/")
    until(lambda: "ready" in session.log())
    late.reboot_without(session)
    missing = f"does not come back by itself: no such program: {program}"
    until(lambda: any(re.search(missing, line["MESSAGE"]) for line in amux.journal()))
    assert (session.state, session.get("Run")) == ("suspended", 1)
    late.mount()
    until(lambda: (session.state, session.get("Run")) == ("running", 2))
    assert state_on_disk(amux, session)["auto_failures"] == 0


def test_who_does_not_is_no_orphan_and_can_be_begun_once_it_is_there(amux: Amux, late: Late) -> None:
    amux.cli("ws", "add", "here", "--path", str(late.directory))
    command = ["sh", "-c", "echo ready; exec sleep 1000"]
    manual, auto = (amux.create(command, workspace="here", resume=resume) for resume in ("manual", "auto"))
    late.reboot_without(manual, auto)
    until(lambda: "comes back by itself" in auto.get("Reason"))
    assert manual.state == "suspended"
    auto.call("Archive")
    late.mount()
    manual.call("Restart")
    assert (manual.state, auto.state) == ("running", "archived")
    # It has gone there, and from now on the directory has been seen.
    until(lambda: "ready" in manual.log())
    late.directory.rename(late.away)
    assert manual.wait_state("orphaned") == "orphaned"


def test_one_that_is_parked_stays_so_and_is_brought_back_there(amux: Amux, late: Late) -> None:
    agents = Agents(amux)
    agents.configure()
    amux.cli("ws", "add", "here", "--path", str(late.directory))
    session = agents.create(workspace="here", cwd=str(late.directory))
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.call("Park")
    late.reboot_without(session)
    until(lambda: of_workspace(amux, "Presence") == "gone")
    refused = amux.cli("send", session.id, "second", check=False)
    assert "stays parked" in refused.stderr
    late.mount()
    until(lambda: of_workspace(amux, "Presence") == "present")
    assert (session.state, session.get("Parked")) == ("running", True)
    session.send("second")
    until(lambda: "heard 2: second" in session.log())


def test_one_that_was_never_started_is_none_either(amux: Amux, late: Late) -> None:
    amux.cli("ws", "add", "here", "--path", str(late.directory))
    session = amux.create(["sleep", "1000"], workspace="here", start=False)
    late.reboot_without()
    until(lambda: of_workspace(amux, "Presence") == "gone")
    late.mount()
    until(lambda: of_workspace(amux, "Presence") == "present")
    assert session.state == "created"
    session.call("Start")
    assert session.state == "running"


def test_those_that_wait_for_a_slot_wait_for_it_too_in_their_order(amux: Amux, late: Late) -> None:
    amux.cli("ws", "add", "here", "--path", str(late.directory), "--slots", "1")
    holder = amux.create(["sleep", "1000"], workspace="here")
    first, second = (amux.create(["sleep", "1000"], workspace="here", queue=True) for _ in range(2))
    late.reboot_without(holder, first, second)
    outlook = f"; begins once {late.directory} is there"
    until(lambda: second.get("Reason") == f"waiting for a slot in here (2nd){outlook}")
    assert first.get("Reason") == f"waiting for a slot in here (1st){outlook}"
    amux.restart()
    until(lambda: of_workspace(amux, "Presence") == "gone")
    assert [session.state for session in (holder, first, second)] == ["suspended", "created", "created"]
    assert first.get("Reason") == f"waiting for a slot in here (1st){outlook}"
    late.mount()
    assert first.wait_state("running") == "running"
    until(lambda: second.get("Reason") == "waiting for a slot in here (1st)")
    assert (first.get("Run"), second.state) == (1, "created")
    first.stop()
    assert second.wait_state("running") == "running"


def of_workspace(amux: Amux, name: str) -> object:
    where = amux.manager.call("GetWorkspace", "s", "here")
    return amux.bus.proxy("org.amux.Amux1", where, "org.amux.Amux1.Workspace").get(name)
