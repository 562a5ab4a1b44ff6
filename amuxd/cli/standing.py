"""How workspaces stand, for people to read."""

import time
from typing import Any

from amuxd.cli import failures, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.text import harmless, shortened

_COLUMNS = ("WORKSPACE", "NAME", "BRANCH", "AHEAD", "BEHIND", "CHANGES", "SESSIONS", "DIRECTORY")
_NEEDED = ["Id", "Name", "Branch", "Holders", "Queue", "Slots", "Directory"]
_SHOWN = 5


def show_all(as_json: bool) -> None:
    only: dict[str, Any] = {"status": ("b", True)}
    if not as_json:
        only["properties"] = ("as", _NEEDED)
    found = Client().workspaces(**only)
    if as_json:
        render.print_json([properties_in_json(workspace) for workspace in found])
    elif not found and render.is_terminal():
        failures.say("no workspaces yet: make one with amux ws add NAME")
    else:
        print("\n".join(table(found)))


def table(found: list[Properties]) -> list[str]:
    rows = render.Table(
        _COLUMNS, yielding=("DIRECTORY", "BRANCH", "NAME"), colour_of={"WORKSPACE": lambda _: "36"}
    )
    for workspace in found:
        status = workspace.get("Status", {})
        rows.add(
            workspace["Id"],
            workspace["Name"],
            _branch_of(workspace, status),
            str(status.get("ahead") or ""),
            str(status.get("behind") or ""),
            status.get("problem") or _changes(status),
            _occupied(workspace),
            workspace["Directory"],
        )
    return rows.lines()


def _changes(status: Properties) -> str:
    counted = [(_count(status, what), what) for what in ("uncommitted", "untracked")]
    told = ", ".join(f"{number} {what}" for number, what in counted if number)
    return f"{told} (uncertain)" if told and "error" in status else told


def _occupied(workspace: Properties) -> str:
    holders, waiting = len(workspace["Holders"]), len(workspace["Queue"])
    slots = f"{holders}/{workspace['Slots']}" if workspace["Slots"] else str(holders or "")
    return f"{slots} (+{waiting})" if waiting else slots


def description(workspace: Properties, inside: list[Properties]) -> list[str]:
    status = workspace["Status"]
    by_id = {session["Id"]: sessions.label(session) for session in inside}
    now = time.time()
    is_unread = status.get("problem") == "not readable"
    rows = [
        ("Workspace", f"{workspace['Name']} ({workspace['Id']})"),
        ("Directory", workspace["Directory"]),
        ("Problem", status.get("error", "")),
        ("Repository", workspace["Repository"]),
        ("Branch", _branch(workspace, status)),
        ("Hook", workspace["HookFailure"]),
        *((what.capitalize(), _files(status, what)) for what in ("uncommitted", "untracked")),
        ("Copies", _files(status, "changed_copies")),
        ("Ignored", _files(status, "ignored")),
        ("Unpushed", _commits(status.get("unpushed", 0))),
        ("Stashes", str(status.get("stashes") or "")),
        ("Under way", status.get("operation", "")),
        ("Lost by rm", ", ".join(status.get("lost", []))),
        ("Slots", "" if is_unread else _slots(workspace)),
        ("Held by", ", ".join(by_id.get(key, key) for key in workspace["Holders"])),
        ("Waiting", ", ".join(by_id.get(key, key) for key in workspace["Queue"])),
        ("Sessions", ", ".join(f"{sessions.label(s)} {sessions.status(s, now)}" for s in inside)),
        ("Set-up", _setup(workspace)),
        ("Created", "" if is_unread else f"{sessions.since(workspace['CreatedUSec'], now)} ago"),
    ]
    return [f"{name + ':':<12} {harmless(shortened(value))}" for name, value in rows if value]


def _slots(workspace: Properties) -> str:
    return f"{len(workspace['Holders'])} of {workspace['Slots'] or 'any number'} taken"


def _branch_of(workspace: Properties, status: Properties) -> str:
    return status.get("branch") or ("(detached)" if status.get("head") else workspace["Branch"])


def _branch(workspace: Properties, status: Properties) -> str:
    branch = _branch_of(workspace, status)
    counted = [f"{status[way]} {way}" for way in ("ahead", "behind") if status.get(way)]
    against = status.get("upstream") or "its base"
    return f"{branch}, {' and '.join(counted)} of {against}" if counted else branch


def _count(status: Properties, what: str) -> int:
    """There may be more than are named."""
    number: int = status.get(f"{what}_count", len(status.get(what, [])))
    return number


def _files(status: Properties, what: str) -> str:
    others = _count(status, what) - _SHOWN
    return ", ".join(status.get(what, [])[:_SHOWN]) + (f" and {others} more" if others > 0 else "")


def _commits(number: int) -> str:
    return f"{number} commit{'s' if number > 1 else ''} on no other branch and no remote" if number else ""


def _setup(workspace: Properties) -> str:
    command = workspace["SetupCommand"]
    return command if workspace["SetupAllowed"] or not command else f"{command} (not allowed yet)"


def properties_in_json(workspace: Properties) -> dict[str, Any]:
    status: dict[str, Any] = workspace.get("Status", {})
    return {sessions.snake_case(key): value for key, value in workspace.items() if key != "Status"} | status
