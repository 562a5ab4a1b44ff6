"""make run, on a machine that is fresh, and on one on which it ran before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.machine import Machine
from test_install import User, copy_of_the_source

from amuxd import __version__

CODES = {"demo-work": None, "demo-done": 0, "demo-crash": None}


class Visitor(User):
    """Who only wants a look."""

    def __init__(self, machine: Machine, source: Path) -> None:
        super().__init__(machine, source)
        self.amux = source / ".venv/bin/amux"

    def sessions(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in json.loads(self.run("ls", "--json"))}

    def sees_three_sessions(self) -> None:
        said = self.make("run").stdout
        assert {name: session["exit_code"] for name, session in self.sessions().items()} == CODES
        assert "failed (SIGSEGV)" in said


@pytest.fixture(params=["systemd", "embedded"])
def visitor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Visitor]:
    with Machine(manager=request.param == "systemd") as machine:
        if machine.manager:
            # The package of the session bus has only just been installed, and nobody has logged in since.
            machine.systemctl("stop", "dbus.socket", "dbus.service")
            machine.run(["rm", "-f", machine.runtime / "bus"])
        yield Visitor(machine, copy_of_the_source(tmp_path / "amux"))


def test_each_look_shows_three_sessions_of_the_source_as_it_is(visitor: Visitor) -> None:
    visitor.sees_three_sessions()
    at_work = visitor.sessions()["demo-work"]

    visitor.replace("amuxd/__init__.py", __version__, "9.8.7")
    visitor.sees_three_sessions()
    assert visitor.sessions()["demo-work"]["pid"] == at_work["pid"]
    bus = "bus" if visitor.machine.manager else "amux/bus"
    command = ["busctl", f"--address=unix:path={visitor.machine.runtime}/{bus}", "--auto-start=no"]
    manager = ["org.amux.Amux1", "/org/amux/Amux1", "org.amux.Amux1.Manager"]
    answer = visitor.machine.run([*command, "get-property", *manager, "Version"]).stdout
    assert answer == 's "9.8.7"\n'

    # Put away, more than once: the name is free then.
    for _ in range(2):
        visitor.run("archive", "demo-done", "demo-crash")
        visitor.run("stop", "demo-work")
        visitor.sees_three_sessions()
