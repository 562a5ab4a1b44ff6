"""amux ls"""

import sys
import time
from typing import Any

import click

from amuxd.cli import misconfigured, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.text import cut

_COLUMNS = ("SESSION", "NAME", "DESCRIPTION", "AGENT", "WORKSPACE", "STATUS", "IN-STATUS", "TOTAL")
_NEEDED = [
    "Id",
    "Name",
    "Description",
    "Agent",
    "WorkspaceName",
    "State",
    "Reason",
    "Unwritten",
    "SessionAlive",
    "StateChangedUSec",
    "CreatedUSec",
    "StartedUSec",
    "ExitCode",
    "ExitSignal",
    "OomKilled",
    "Parked",
    "ParkedUSec",
    "IdleAfterUSec",
    "Attention",
    "Frozen",
    "ShellOpen",
    "LastActivityUSec",
]
_SETTLE = 0.05
_LATEST = 0.5


@click.command()
@click.option("-a", "--all", "archived", is_flag=True, help="Archived sessions too.")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    type=click.Choice(sessions.STATES),
    help="Only sessions in this state; may be given again.",
)
@click.option("-w", "--workspace", metavar="W", help="Only sessions in this workspace.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects, with every property.")
@click.option("--watch", is_flag=True, help="Show the list again at every change, until Ctrl-C.")
def ls(archived: bool, states: tuple[str, ...], workspace: str | None, as_json: bool, watch: bool) -> None:
    """List the sessions.

    In a pipe: a line of headings, then a line a session, the columns separated by a tab, a dash where there
    is nothing. IN-STATUS is how long it has been in this status, TOTAL the time since it was created. A
    running session is idle once it printed nothing for a minute, or what the configuration says.
    """
    only: dict[str, Any] = {}
    if archived or "archived" in states:
        only["archived"] = ("b", True)
    if states:
        only["states"] = ("as", list(states))
    if workspace:
        only["workspace"] = ("s", workspace)
    if not as_json:
        only["properties"] = ("as", _NEEDED)
    client = Client()
    if watch:
        _watch(client, only, as_json)
    found = [session for _, session in client.sessions(**only)]
    misconfigured.warn(client)
    if as_json:
        _print_json(found)
    elif found:
        print("\n".join(_table(found)))
    elif render.is_terminal():
        some = states or workspace
        chosen = "no such sessions" if some else "no sessions yet: start one with amux run COMMAND"
        print(chosen, file=sys.stderr)


def _table(found: list[Properties]) -> list[str]:
    now = time.time()
    table = render.Table(
        _COLUMNS,
        yielding=("DESCRIPTION", "NAME", "WORKSPACE", "STATUS"),
        colour_of={"SESSION": lambda _: "36", "STATUS": render.state_colour},
    )
    for session in found:
        table.add(
            session["Id"],
            session["Name"],
            session.get("Description", ""),
            session.get("Agent", ""),
            sessions.workspace(session),
            sessions.status(session, now),
            sessions.since(session["StateChangedUSec"], now),
            sessions.since(session["CreatedUSec"], now),
        )
    return table.lines()


def _print_json(found: list[Properties], indent: int | None = 2) -> None:
    render.print_json([sessions.as_json(session) for session in found], indent)


def _watch(client: Client, only: dict[str, Any], as_json: bool) -> None:
    client.subscribe()
    while True:
        found = [session for _, session in client.sessions(**only)]
        if as_json:
            _print_json(found, indent=None)
        elif render.is_terminal():
            _paint(found)
        else:
            print("\n".join(_table(found)) + "\n" if found else "")
        sys.stdout.flush()
        client.wait_for_change(_SETTLE, _LATEST)


def _paint(found: list[Properties]) -> None:
    size = render.terminal_size()
    clock = cut(time.strftime("%H:%M:%S"), size.columns)
    lines = [clock, *(_table(found) if found else ["no sessions"])]
    # The last line of the screen is the cursor's.
    room = max(1, size.lines - 1)
    if len(lines) > room:
        hidden = min(len(found), len(lines) - room + 1)
        lines[room - 1 :] = [cut(f"and {hidden} more, for which the screen is too small", size.columns)]
    print("\x1b[H\x1b[J" + "\n".join(lines))
