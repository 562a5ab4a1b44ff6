"""make install, an upgrade, one that fails, and make uninstall, where there is no systemd."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.machine import Machine
from test_install import BROKEN, FILES, STATE, User, copy_of_the_source

from amuxd import __version__


class BareUser(User):
    def version(self) -> str:
        """Of the amuxd that runs; it is not started for this."""
        bus = ["busctl", f"--address=unix:path={self.machine.runtime}/amux/bus", "--auto-start=no"]
        manager = ["org.amux.Amux1", "/org/amux/Amux1", "org.amux.Amux1.Manager"]
        return self.machine.run([*bus, "get-property", *manager, "Version"]).stdout.split('"')[1]

    def session(self) -> dict[str, Any]:
        [session] = json.loads(self.run("ls", "--json"))
        return dict(session)

    def daemons(self) -> set[int]:
        lines = self.machine.command_lines()
        return {pid for pid, line in lines.items() if any(word.endswith("/amuxd") for word in line)}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[BareUser]:
    with Machine(manager=False) as machine:
        yield BareUser(machine, copy_of_the_source(tmp_path / "amux"))


def test_install_upgrade_and_uninstall_leave_a_session_running(user: BareUser) -> None:
    said = user.make("install").stdout
    assert "no systemd user manager" in said
    assert user.installed() == FILES
    assert not user.machine.pids_of("dbus-daemon")
    user.run("run", "--name", "long", "--", "sleep", "1000")
    pid = user.session()["pid"]
    assert user.version() == __version__

    user.replace("amuxd/__init__.py", __version__, "9.8.7")
    [former] = user.daemons()
    assert "the sessions went on" in user.make("install").stdout
    assert user.version() == "9.8.7"
    assert user.session()["pid"] == pid

    # A bus that an amux of the first version started knows how to start the amuxd of any later one.
    [daemon] = user.daemons()
    assert daemon != former
    user.machine.kill(int((user.home / STATE / "amuxd.lock").read_text()))
    user.replace("amuxd/__init__.py", "9.8.7", "9.8.8")
    user.make("install")
    assert user.session()["pid"] == pid
    assert user.version() == "9.8.8"
    user.run("rm", "--force", "long")
    user.make("install")
    assert len(user.environments()) == 1
    user.run("run", "--name", "long", "--", "sleep", "1000")
    assert user.version() == "9.8.8"

    # What runs goes on, and is named.
    session = user.session()
    said = user.make("uninstall").stdout
    assert user.installed() == set()
    assert user.daemons() == set()
    assert not user.machine.pids_of("dbus-daemon")
    assert str(user.home / STATE) in said
    [terminal] = [line.strip() for line in said.splitlines() if line.endswith(f"/{session['id']}.sock")]
    assert user.machine.run(["kill", "-0", str(session["pid"])]).returncode == 0

    # And back: it is found as it was.
    user.make("install")
    assert user.session() | {"state": "running", "pid": session["pid"]} == user.session()
    user.machine.run(["tmux", "-S", terminal, "kill-server"])
    assert "Still running" not in user.make("uninstall").stdout


def test_a_broken_one_is_taken_back(user: BareUser) -> None:
    user.make("install")
    user.run("run", "--name", "long", "--", "sleep", "1000")
    pid = user.session()["pid"]
    user.replace("amuxd/__init__.py", __version__, "9.9.9")
    for broken in BROKEN:
        (user.source / "amuxd/daemon.py").write_text(broken)
        failed = user.make("install", check=False)
        assert failed.returncode != 0
        assert "the one from before is back" in failed.stderr
        assert user.version() == __version__
        assert user.session()["pid"] == pid
