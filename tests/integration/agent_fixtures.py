"""The stand-in agent in a machine, as its user would configure it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.client import Client, Session
from harness.daemon import Amux
from harness.machine import REPOSITORY

STANDIN = REPOSITORY / "tests/harness/agent.py"


class Agents:
    """Profiles in the machine's configuration, and the conversations that the agents keep."""

    def __init__(self, amux: Client) -> None:
        self.amux = amux
        self.store = amux.machine.base / "talks"
        self._sections: dict[str, dict[str, Any]] = {}

    def configure(
        self, name: str = "standin", *, extra: tuple[str, ...] = (), own: bool = False, **settings: Any
    ) -> None:
        argv = [f"{self.amux.machine.bindir}/python3", str(STANDIN), "--store", str(self.store), *extra]
        begin = ["--own"] if own else ["--start", "{conversation}"]
        self._sections[name] = {
            "start": [*argv, *begin],
            "resume": [*argv, "--resume", "{conversation}"],
            **settings,
        }
        self.write()

    def write(self, head: str = "") -> None:
        text = head + "".join(_section(f"agents.{name}", s) for name, s in self._sections.items())
        self.amux.config.parent.mkdir(parents=True, exist_ok=True)
        self.amux.config.write_text(text)
        self.amux.manager.call("Reload")

    def create(self, agent: str = "standin", *command: str, **options: Any) -> Session:
        return self.amux.create(command, agent=agent, **{"cwd": str(self.amux.machine.home), **options})


def _section(name: str, settings: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    # A JSON text, number or list of texts is TOML as well.
    return json.dumps(value)


def state_on_disk(amux: Client, session: Session) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(state_file(amux, session).read_text())
    return state


def state_file(amux: Client, session: Session) -> Path:
    return amux.state / "sessions" / session.id / "state.json"


class Reboots:
    """What a reboot leaves: every process gone, and files that name another boot."""

    def __init__(self, amux: Amux) -> None:
        self._amux = amux
        self._boots = 0

    def reboot(self, *sessions: Session, in_order: bool = True, **changes: Any) -> None:
        if in_order:
            self._amux.stop()
        else:
            self._amux.machine.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
            self._amux.machine.systemctl("stop", "amuxd.socket", "amuxd.service", check=False)
        self._amux.machine.systemctl("stop", "amux-*.service")
        self._boots += 1
        for session in sessions:
            path = state_file(self._amux, session)
            state = json.loads(path.read_text())
            boots = {name: f"boot-{self._boots}" for name in ("boot_id", "auto_boot") if state[name]}
            path.write_text(json.dumps(state | boots | changes))
        for path in (self._amux.state / "workspaces").glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"seen_on": f"boot-{self._boots}"}))
        self._amux.start()
