"""Sessions outlive amuxd, and what they do not outlive is told truly: on a booted Debian 13, as installed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import real_agents
from harness.booted import HOME, RUNTIME, Booted, why_impossible
from harness.waiting import until

pytestmark = pytest.mark.booted

AMUX = HOME / ".local/bin/amux"
COMMANDS = {
    "busy": ["--", "sh", "-c", "while echo again; do sleep 0.1; done"],
    "in-a-shell": ["--shell", "--", "sleep", "infinity"],
}
# What is on the screen of an agent that is ready, and of one that has kept what it was told.
SCREENS = {"claude": ("for shortcuts", "Unable to connect"), "standin": ("remembering []", "heard 1: ")}
STANDIN = f"{HOME}/amux/tests/harness/agent.py"
AGENT_STARTS = 60.0
# Nobody is logged in and nobody answers, but what it was told is kept.
CLAUDE = {
    "hasCompletedOnboarding": True,
    "theme": "dark",
    "customApiKeyResponses": {"approved": ["none"], "rejected": []},
    "projects": {str(HOME): {"hasTrustDialogAccepted": True}},
}
CLAUDE_ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "none",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "DISABLE_AUTOUPDATER": "1",
}
CONFIGURATION = f"""
[agents.standin]
start = ["python3", "{STANDIN}", "--store", "{HOME}/talks", "--start", "{{conversation}}"]
resume = ["python3", "{STANDIN}", "--store", "{HOME}/talks", "--resume", "{{conversation}}"]
[agents.claude.env]
{"".join(f"{name} = {json.dumps(value)}" + chr(10) for name, value in CLAUDE_ENVIRONMENT.items())}
"""


class User:
    def __init__(self, system: Booted) -> None:
        self.system = system

    def amux(self, *arguments: str, check: bool = True) -> str:
        return self.system.as_user(AMUX, *arguments, check=check)

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

    def run_commands(self) -> dict[str, int]:
        for name, command in COMMANDS.items():
            self.amux("run", "--name", name, *command)
        return self.pids()

    def run_three(self, agent: str) -> dict[str, int]:
        """One of them an agent, which has been told something."""
        self.run_agent("agent", agent, "remember the apples")
        return self.run_commands()

    def run_agent(self, name: str, agent: str, text: str, *options: str) -> None:
        ready, heard = SCREENS[agent]
        self.amux("run", "--name", name, "-a", agent, "-C", str(HOME), *options)
        self.wait_for(name, ready)
        self.amux("send", name, text)
        self.wait_for(name, heard)

    def wait_for(self, name: str, text: str) -> None:
        try:
            until(lambda: text in self.screen(name), AGENT_STARTS, interval=0.1)
        except TimeoutError as error:
            error.add_note(self.screen(name))
            raise

    def files(self, name: str) -> Path:
        """Of a session, from outside: the first amux would start amuxd."""
        sessions = self.system.outside(HOME / ".local/state/amux/sessions")
        for definition in sessions.glob("*/session.json"):
            if json.loads(definition.read_text())["name"] == name:
                return definition.parent
        raise LookupError(name)

    def state_on_disk(self, name: str) -> str:
        return str(json.loads((self.files(name) / "state.json").read_text())["state"])

    def screen(self, name: str) -> str:
        socket = RUNTIME / "amux/tmux" / f"{self.files(name).name}.sock"
        return self.system.as_user("tmux", "-S", socket, "capture-pane", "-p", "-t", "%0", check=False)

    def inhibitors(self) -> list[str]:
        listed = self.system.run(["systemd-inhibit", "--list", "--no-legend", "--no-pager"]).stdout
        return [line for line in listed.splitlines() if line.startswith("amux ")]

    def all_run_again(self) -> None:
        """What was suspended goes on, and what there was of it is still to be read."""
        assert set(self.sessions()) == {"agent", *COMMANDS}
        for name in COMMANDS:
            refused = self.system.run([AMUX, "resume", name], user=True, check=False)
            assert refused.returncode == 4
            assert "no conversation; possible: restart" in refused.stderr
        self.amux("restart", *COMMANDS)
        self.amux("resume", "agent")
        self.wait_for("agent", "apples")
        assert {session["state"] for session in self.sessions().values()} == {"running"}
        assert {session["run"] for session in self.sessions().values()} == {2}
        assert "again" in self.amux("logs", "--run", "1", "busy")


@pytest.fixture(scope="module")
def system() -> Iterator[Booted]:
    if why := why_impossible():
        pytest.skip(f"no machine can boot here: {why}")
    programs = [directory / "claude"] if (directory := real_agents.find()) else []
    with Booted(programs) as system:
        system.boot()
        system.add_user()
        system.linger(True)
        for name, text in ((".config/amux/config.toml", CONFIGURATION), (".claude.json", json.dumps(CLAUDE))):
            system.write(HOME / name, text)
        system.install()
        yield system


# One that only stands in proves less, and whoever reads the outcome is to see that.
AGENTS: list[Any] = ["claude"]
if not real_agents.can_be_had():
    AGENTS = [pytest.param("claude", marks=pytest.mark.skip(reason="npm is not installed")), "standin"]


@pytest.fixture(params=AGENTS)
def agent(system: Booted, request: pytest.FixtureRequest) -> str:
    assert request.param == "standin" or system.has(request.param)
    return str(request.param)


@pytest.fixture
def user(system: Booted) -> Iterator[User]:
    user = User(system)
    try:
        yield user
    finally:
        names = list(user.sessions())
        if names:
            user.amux("rm", "--force", *names)


def test_a_restart_of_amuxd_ends_nothing(user: User, agent: str) -> None:
    before = user.run_three(agent)
    daemon = user.daemon()
    user.systemctl("restart", "amuxd.service")
    assert user.daemon() != daemon
    assert user.pids() == before
    assert set(user.reasons().values()) == {("running", "found alive")}


def test_a_killed_amuxd_ends_nothing(user: User, agent: str) -> None:
    before = user.run_three(agent)
    daemon = user.daemon()
    user.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
    until(lambda: user.daemon() not in (0, daemon), timeout=60)
    assert user.pids() == before
    assert set(user.reasons().values()) == {("running", "the command runs")}


def test_no_pane_leaves_its_unit(user: User) -> None:
    user.run_commands()
    units = {session["unit"] for session in user.sessions().values()}
    listed = user.systemctl("list-units", "--plain", "--no-legend", "--no-pager", "*.scope", "amux-*.service")
    assert {line.split()[0] for line in listed.splitlines()} - {"init.scope"} == units


def test_a_shutdown_is_delayed_while_anything_runs(user: User) -> None:
    assert user.inhibitors() == []
    user.run_commands()
    until(lambda: len(user.inhibitors()) == 1)
    user.amux("stop", *COMMANDS)
    until(lambda: user.inhibitors() == [])


def test_a_reboot_suspends(user: User, agent: str) -> None:
    user.run_three(agent)
    boot = user.system.boot_id
    until(lambda: len(user.inhibitors()) == 1)
    user.system.power_off()
    user.system.boot()
    assert user.system.boot_id != boot
    assert set(user.reasons().values()) == {("suspended", "the machine was shut down")}
    user.all_run_again()


def test_after_a_reboot_only_what_was_to_come_back_does_and_once(user: User) -> None:
    user.run_agent("auto", "standin", "plums", "--resume", "auto")
    user.run_agent("manual", "standin", "pears")
    user.system.power_off()
    user.system.boot()
    # Nobody calls amuxd, whose own start brings it back.
    until(lambda: user.daemon() != 0, timeout=60)
    until(lambda: user.state_on_disk("auto") == "running", timeout=60)
    user.wait_for("auto", "remembering ['plums']")
    assert user.reasons()["manual"] == ("suspended", "the machine was shut down")
    pid = user.pids()["auto"]
    for verb in (["restart"], ["kill", "--signal=SIGKILL"]):
        daemon = user.daemon()
        user.systemctl(*verb, "amuxd.service")
        until(lambda: user.daemon() not in (0, daemon), timeout=60)  # noqa: B023
        assert user.pids() == {"auto": pid, "manual": None}
    # What ends now has ended: it has come back on this boot already.
    unit = user.sessions()["auto"]["unit"]
    user.systemctl("stop", "amuxd.socket", "amuxd.service")
    user.systemctl("stop", unit)
    user.systemctl("start", "amuxd.socket", "amuxd.service")
    assert user.sessions()["auto"]["state"] != "running"
    assert user.sessions()["auto"]["run"] == 2
    user.amux("resume", "manual")
    user.wait_for("manual", "remembering ['pears']")


def test_a_power_cut_suspends(user: User, agent: str) -> None:
    user.run_three(agent)
    user.system.lose_power()
    user.system.boot()
    assert set(user.reasons().values()) == {("suspended", "the machine went down")}
    user.all_run_again()


def test_a_logout_without_lingering_suspends(user: User, agent: str) -> None:
    system = user.system
    daemon = user.daemon()
    system.log_in()
    assert user.daemon() == daemon
    system.linger(False)
    try:
        user.run_three(agent)
        units = [session["unit"] for session in user.sessions().values()]
        system.log_out()
        until(lambda: not system.manager_runs, timeout=60)
        lines = system.journal().splitlines()
        amuxd_has_gone = max(n for n, line in enumerate(lines) if "Stopped amuxd.service" in line)
        sessions_go = [n for n, line in enumerate(lines) for unit in units if f"Stopping {unit}" in line]
        assert len(sessions_go) == 3
        assert amuxd_has_gone < min(sessions_go)
        system.log_in()
        until(lambda: user.daemon() != 0, timeout=60)
        assert set(user.reasons().values()) == {("suspended", "amuxd was stopped")}
        user.all_run_again()
    finally:
        system.linger(True)
    system.log_out()
