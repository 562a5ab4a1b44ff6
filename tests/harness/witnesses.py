"""All that tells of a session, each asked as a person would, and compared with the others and the kernel."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.machine import Machine
from harness.waiting import until

BUS_NAME = "org.amux.Amux1"
SESSION = "org.amux.Amux1.Session"
# These move between two questions.
_MOVING = {"last_activity_hash", "last_activity_usec", "last_checked_usec"}
_ENDED = {"stopped", "completed", "failed", "orphaned", "archived"}


class Witnesses:
    def __init__(self, machine: Machine, amux: Path, environment: Mapping[str, str] | None = None) -> None:
        self._machine = machine
        self._amux = amux
        self._environment = environment

    def agree(self, name: str, state: str) -> dict[str, Any]:
        """What amux show --json says, after everybody said the same."""
        shown: dict[str, Any] = json.loads(self._said("show", "--json", name))
        assert shown["state"] == state
        (listed,) = [one for one in json.loads(self._said("ls", "-a", "--json")) if one["id"] == shown["id"]]
        assert _settled(listed) == _settled(shown)
        self._bus_agrees(shown)
        self._people_are_told(shown)
        self._records_agree(shown)
        self._kernel_agrees(shown)
        return shown

    def agree_that_it_is_gone(self, session: dict[str, Any]) -> None:
        assert session["id"] not in self._said("ls", "-a")
        assert self._run([self._amux, "show", session["id"]], check=False).returncode == 3
        assert session["id"] not in self._run(["busctl", "--user", "tree", "--list", BUS_NAME]).stdout
        assert not Path(session["log_path"]).parents[2].exists()
        assert self._journal(session)[-1]["MESSAGE"] == f"{session['name']}: removed"
        assert self._machine.systemctl("is-active", session["unit"], check=False) == "inactive"

    def _bus_agrees(self, shown: dict[str, Any]) -> None:
        path = f"/org/amux/Amux1/sessions/{shown['id']}"
        ask = ["busctl", "--user", "--json=short", "call", BUS_NAME, path]
        answer = self._run([*ask, "org.freedesktop.DBus.Properties", "GetAll", "s", SESSION]).stdout
        properties = {name: value["data"] for name, value in json.loads(answer)["data"][0].items()}
        assert {_snake_case(name) for name in properties} == shown.keys()
        for name, value in properties.items():
            said = shown[_snake_case(name)]
            if name in ("SessionAlive", "HostAlive"):
                assert value in ({True: "alive", False: "dead"}.get(said, ("none", "unknown"))), name
            elif said is None:
                assert value in (0, -1, "", "/"), name
            elif _snake_case(name) not in _MOVING:
                assert value == said, name
        introspected = self._run(["busctl", "--user", "introspect", BUS_NAME, path]).stdout
        assert re.search(rf'^\.State +property +s +"{shown["state"]}" ', introspected, re.MULTILINE)

    def _people_are_told(self, shown: dict[str, Any]) -> None:
        told = self._said("show", shown["name"])
        assert f"Session:     {shown['name']} ({shown['id']})\n" in told
        assert re.search(rf"^State: +{shown['state']}\b", told, re.MULTILINE)
        (row,) = [line.split("\t") for line in self._said("ls", "-a").splitlines() if shown["id"] in line]
        assert row[1] == shown["name"]
        assert row[5].split()[0] == shown["state"]
        if shown["state"] == "failed":
            how = how_ended(shown["reason"], shown["exit_signal"] or "", shown["exit_code"])
            assert (row[5], shown["how_ended"]) == (f"failed ({how})", how)

    def _records_agree(self, shown: dict[str, Any]) -> None:
        history = json.loads(self._said("history", "--json", shown["name"]))
        assert [history[-1][key] for key in ("run", "to", "reason", "at_usec")] == [
            shown[key] for key in ("run", "state", "reason", "state_changed_usec")
        ]
        logged = [entry["AMUX_STATE"] for entry in self._journal(shown) if "AMUX_STATE" in entry]
        assert logged == [transition["to"] for transition in history]
        directory = Path(shown["log_path"]).parents[2]
        kept = json.loads((directory / "state.json").read_text())
        assert [kept[key] for key in ("state", "run", "reason", "state_changed_at")] == [
            shown[key] for key in ("state", "run", "reason", "state_changed_usec")
        ]
        certificate = directory / "runs" / str(shown["run"]) / "exit.json"
        assert certificate.exists() == (shown["state"] in _ENDED)

    def _kernel_agrees(self, shown: dict[str, Any]) -> None:
        assert (shown["pid"] is not None) == bool(shown["session_alive"]) == (shown["state"] == "running")
        if shown["pid"]:
            outside = self._machine.outside_pid(shown["pid"])
            assert f"/{shown['unit']}" in Path(f"/proc/{outside}/cgroup").read_text()
        # What is left of a run that ended is taken away behind the reply.
        until(lambda: self._is_active(shown["unit"]) == self._host_is_alive(shown))

    def _is_active(self, unit: str) -> bool:
        return self._machine.systemctl("is-active", unit, check=False) == "active"

    def _host_is_alive(self, shown: dict[str, Any]) -> bool:
        return bool(json.loads(self._said("show", "--json", shown["id"]))["host_alive"])

    def _journal(self, shown: dict[str, Any]) -> list[dict[str, Any]]:
        return self._machine.journal(AMUX_SESSION=shown["id"])

    def _said(self, *arguments: str) -> str:
        return self._run([self._amux, *arguments]).stdout

    def _run(self, argv: list[str | Path], check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._machine.run(argv, env=self._environment, check=check)


def how_ended(reason: str, signal: str, code: int | None) -> str:
    """The words for each kind of end that the reason, written for a person, tells of."""
    kinds = {
        "could not start": "could not start",
        "out of memory": "out of memory",
        "its unit was stopped": "unit stopped",
        "terminal server died": "terminal died",
        "gone without a trace": "end not known",
    }
    told = next((words for begin, words in kinds.items() if reason.startswith(begin)), "")
    return told or signal or f"exit {code}"


def _settled(session: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name not in _MOVING}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
