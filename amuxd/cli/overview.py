"""The list of sessions, once or for as long as somebody looks."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from amuxd.cli import failures, misconfigured, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import RemoteError
from amuxd.cli.text import cut

_COLUMNS = ("SESSION", "NAME", "DESCRIPTION", "AGENT", "WORKSPACE", "STATUS", "IN-STATUS", "TOTAL")
_NEEDED = [
    *("Id", "Name", "Description", "Agent", "WorkspaceName", "StateChangedUSec", "CreatedUSec"),
    *sessions.STATUS,
]
_SETTLE = 0.05
_LATEST = 0.5
_LOOK_AGAIN = 5.0


def show(
    *,
    archived: bool = False,
    states: Sequence[str] = (),
    workspace: str | None = None,
    as_json: bool = False,
    watch: bool = False,
) -> None:
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
    elif not found and render.is_terminal():
        some = states or workspace
        chosen = "no such sessions" if some else "no sessions yet: start one with amux run COMMAND"
        failures.say(chosen)
    else:
        print("\n".join(_table(found)))


def _table(found: list[Properties]) -> list[str]:
    now = time.time()
    table = render.Table(
        _COLUMNS,
        yielding=("DESCRIPTION", "WORKSPACE", "AGENT", "NAME"),
        dropped=("DESCRIPTION", "AGENT", "TOTAL", "WORKSPACE", "IN-STATUS", "NAME"),
        last="STATUS",
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
    watched = _Watched(client, only, as_json)
    was_told = True
    while True:
        patience: float | None = None
        try:
            patience = watched.look(was_told)
        except RemoteError as problem:
            # amuxd leaves; what was shown holds until it is back.
            if problem.name != failures.NO_REPLY:
                raise
        client.look_on()
        was_told = client.wait_for_change(_SETTLE, _LATEST, patience)


class _Watched:
    """amuxd tells of every change but two: who prints something, and who is frozen. For those it is asked."""

    def __init__(self, client: Client, only: dict[str, Any], as_json: bool) -> None:
        self._client = client
        self._only = only
        self._as_json = as_json
        self._is_painted = render.is_terminal() and not as_json
        self._warner = misconfigured.Warner(client)
        self._warning = ""
        self._found: list[Properties] = []
        self._untold: list[tuple[Any, ...]] = []

    def look(self, was_told: bool) -> float:
        """How long what is shown then holds, if amuxd tells nothing."""
        if was_told or any(map(_may_change_untold, self._found)):
            self._found = [session for _, session in self._client.sessions(**self._only)]
        now = time.time()
        before, self._untold = self._untold, [_untold(session, now) for session in self._found]
        if self._is_painted:
            if was_told:
                self._warning = misconfigured.sentence(self._client)
            _paint(self._found, self._warning)
        elif was_told or self._untold != before:
            if was_told:
                self._warner.warn()
            self._print()
        sys.stdout.flush()
        return _patience(self._found, now)

    def _print(self) -> None:
        if self._as_json:
            _print_json(self._found, indent=None)
        else:
            print("\n".join(_table(self._found)) + "\n")


def _may_change_untold(session: Properties) -> bool:
    return bool(session["State"] == "running" and not session.get("Parked"))


def _untold(session: Properties, now: float) -> tuple[Any, ...]:
    if not _may_change_untold(session):
        return (session["Id"],)
    return session["Id"], now >= sessions.idle_from(session), session.get("Frozen")


def _patience(found: list[Properties], now: float) -> float:
    """Until the next of them is idle, and no longer than another may print unnoticed."""
    until_idle = [sessions.idle_from(session) - now for session in found if _may_change_untold(session)]
    return min([_LOOK_AGAIN, *(max(_SETTLE, left) for left in until_idle if left > 0)])


def _paint(found: list[Properties], warning: str) -> None:
    size = render.terminal_size()
    said = [time.strftime("%H:%M:%S"), *filter(None, [warning])]
    lines = [*(cut(line, size.columns) for line in said), *(_table(found) if found else ["no sessions"])]
    # The last line of the screen is the cursor's.
    room = max(1, size.lines - 1)
    if len(lines) > room:
        hidden = min(len(found), len(lines) - room + 1)
        lines[room - 1 :] = [cut(f"and {hidden} more, for which the screen is too small", size.columns)]
    print("\x1b[H\x1b[J" + "\n".join(lines))
