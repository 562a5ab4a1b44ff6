"""A command that ended while amuxd was away has ended, though the machine went down after it."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_fixtures import Reboots, state_file
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

Leave = Callable[[Amux], None]


def in_order(amux: Amux) -> None:
    amux.stop()


def killed(amux: Amux) -> None:
    amux.machine.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
    amux.machine.systemctl("stop", "amuxd.socket", "amuxd.service", check=False)


def end_unwatched(amux: Amux, session: Session, orders: Path, leave: Leave, code: int) -> None:
    until(lambda: "ready" in session.log())
    leave(amux)
    orders.write_text(f"{code}\n")
    until((state_file(amux, session).parent / "runs/1/exit_status").exists)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    os.mkfifo(path)
    return path


def in_shell(amux: Amux, orders: Path, **options: Any) -> Session:
    """Its command ends with the code that it is told."""
    line = f"echo ready; read code <{orders}; exit $code"
    return amux.create([line], shell=True, env={"SHELL": "/bin/bash"}, cwd="/", **options)


@pytest.mark.parametrize("leave", [in_order, killed])
@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (4, "failed")])
def test_its_end_is_read(amux: Amux, orders: Path, leave: Leave, code: int, state: str) -> None:
    session = in_shell(amux, orders)
    end_unwatched(amux, session, orders, leave, code)
    ended_by = time.time()
    Reboots(amux).reboot(session)
    assert (session.state, session.get("Reason")) == (state, f"exited with code {code}")
    assert session.certificate()["exit_code"] == code
    assert session.certificate()["ended_usec"] / 1e6 <= ended_by
    assert not session.get("ShellOpen")


def test_what_ended_well_does_not_come_back_by_itself(amux: Amux, orders: Path) -> None:
    session = in_shell(amux, orders, resume="auto")
    other = amux.create(["sleep", "infinity"], cwd="/", resume="auto")
    end_unwatched(amux, session, orders, in_order, 0)
    Reboots(amux).reboot(session, other)
    # Whoever does come back has been decided on last.
    until(lambda: other.get("Run") == 2)
    assert (session.state, session.get("Run")) == ("completed", 1)


@pytest.mark.parametrize(
    ("written", "state", "reason"),
    [
        ("it cannot be run: Exec format error\n", "failed", "could not start: it cannot be run"),
        # As a power cut may leave it.
        ("", "suspended", "amuxd was stopped"),
    ],
)
def test_so_is_why_it_never_began(amux: Amux, written: str, state: str, reason: str) -> None:
    session = amux.create(["sleep", "infinity"], cwd="/")
    amux.stop()
    (state_file(amux, session).parent / "runs/1/not_started").write_text(written)
    Reboots(amux).reboot(session)
    assert session.state == state
    assert session.get("Reason").startswith(reason)
