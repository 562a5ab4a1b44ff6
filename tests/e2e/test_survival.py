"""Sessions outlive amuxd, and what they do not outlive is told truly: on a booted Debian 13, as installed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness.booted import HOME, Booted
from harness.waiting import until

pytestmark = pytest.mark.booted

AMUX = HOME / ".local/bin/amux"
COMMANDS = {
    "quiet": ["--", "sleep", "infinity"],
    "busy": ["--", "sh", "-c", "while echo again; do sleep 0.1; done"],
    "in-a-shell": ["--shell", "--", "sleep", "infinity"],
}


class User:
    def __init__(self, system: Booted) -> None:
        self.system = system

    def amux(self, *arguments: str) -> str:
        return self.system.as_user(AMUX, *arguments)

    def systemctl(self, *arguments: str) -> str:
        return self.system.as_user("systemctl", "--user", *arguments)

    def sessions(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in json.loads(self.amux("ls", "--json"))}

    def pids(self) -> dict[str, int]:
        return {name: session["pid"] for name, session in self.sessions().items()}

    def reasons(self) -> dict[str, tuple[str, str]]:
        return {name: (session["state"], session["reason"]) for name, session in self.sessions().items()}

    def daemon(self) -> int:
        return int(self.systemctl("show", "--property=MainPID", "--value", "amuxd.service"))

    def run_three(self) -> dict[str, int]:
        for name, command in COMMANDS.items():
            self.amux("run", "--name", name, *command)
        return self.pids()

    def inhibitors(self) -> list[str]:
        listed = self.system.run(["systemd-inhibit", "--list", "--no-legend", "--no-pager"]).stdout
        return [line for line in listed.splitlines() if line.startswith("amux ")]

    def all_run_again(self) -> None:
        """What was suspended can be started anew, and what there was of it is still to be read."""
        self.amux("restart", *COMMANDS)
        assert {session["state"] for session in self.sessions().values()} == {"running"}
        assert {session["run"] for session in self.sessions().values()} == {2}
        assert "again" in self.amux("logs", "--run", "1", "busy")


@pytest.fixture(scope="module")
def system() -> Iterator[Booted]:
    with Booted() as system:
        system.boot()
        system.add_user()
        system.linger(True)
        system.install()
        yield system


@pytest.fixture
def user(system: Booted, request: pytest.FixtureRequest) -> Iterator[User]:
    user = User(system)
    try:
        yield user
    finally:
        names = list(user.sessions())
        if names:
            user.amux("rm", "--force", *names)


def test_a_restart_of_amuxd_ends_nothing(user: User) -> None:
    before = user.run_three()
    daemon = user.daemon()
    user.systemctl("restart", "amuxd.service")
    assert user.daemon() != daemon
    assert user.pids() == before
    assert set(user.reasons().values()) == {("running", "found alive")}


def test_a_killed_amuxd_ends_nothing(user: User) -> None:
    before = user.run_three()
    daemon = user.daemon()
    user.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
    until(lambda: user.daemon() not in (0, daemon), timeout=20)
    assert user.pids() == before
    assert set(user.reasons().values()) == {("running", "the command runs")}


def test_no_pane_leaves_its_unit(user: User) -> None:
    user.run_three()
    units = {session["unit"] for session in user.sessions().values()}
    listed = user.systemctl("list-units", "--plain", "--no-legend", "--no-pager", "*.scope", "amux-*.service")
    assert {line.split()[0] for line in listed.splitlines()} - {"init.scope"} == units


def test_a_shutdown_is_delayed_while_anything_runs(user: User) -> None:
    assert user.inhibitors() == []
    user.run_three()
    until(lambda: len(user.inhibitors()) == 1)
    user.amux("stop", *COMMANDS)
    until(lambda: user.inhibitors() == [])


def test_a_reboot_suspends(user: User) -> None:
    user.run_three()
    boot = user.system.boot_id
    until(lambda: len(user.inhibitors()) == 1)
    user.system.power_off()
    user.system.boot()
    assert user.system.boot_id != boot
    assert set(user.reasons().values()) == {("suspended", "the machine was shut down")}
    assert len(user.sessions()) == 3
    user.all_run_again()


def test_a_power_cut_suspends(user: User) -> None:
    user.run_three()
    user.system.lose_power()
    user.system.boot()
    assert set(user.reasons().values()) == {("suspended", "the machine went down")}
    assert len(user.sessions()) == 3
    user.all_run_again()


def test_a_logout_without_lingering_suspends(user: User) -> None:
    system = user.system
    system.log_in()
    system.linger(False)
    try:
        user.run_three()
        units = [session["unit"] for session in user.sessions().values()]
        system.log_out()
        until(lambda: not system.manager_runs, timeout=60)
        lines = system.journal().splitlines()
        amuxd_has_gone = max(n for n, line in enumerate(lines) if "Stopped amuxd.service" in line)
        sessions_go = [n for n, line in enumerate(lines) for unit in units if f"Stopping {unit}" in line]
        assert len(sessions_go) == 3
        assert amuxd_has_gone < min(sessions_go)
        system.log_in()
        assert set(user.reasons().values()) == {("suspended", "amuxd was stopped")}
        assert len(user.sessions()) == 3
        user.all_run_again()
    finally:
        system.linger(True)
    system.log_out()
