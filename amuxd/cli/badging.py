"""amux badge"""

import json
import sys
from collections import Counter
from html import escape
from typing import Any

import click

from amuxd.cli import failures, misconfigured, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import RemoteError
from amuxd.cli.text import harmless

_NEEDED = ["Id", "Name", "State", "Reason", "Attention", "AttentionMessage"]
COUNTED = ("starting", "running", "stale", "suspended")
_SETTLE = 0.05
_LATEST = 0.5
_NAMED = 10


@click.command()
@click.option("-f", "--follow", is_flag=True, help="A line at every change, until Ctrl-C.")
@click.option("--waybar", is_flag=True, help="As --follow, a line of JSON each, as Waybar wants it.")
def badge(follow: bool, waybar: bool) -> None:
    """Print how many sessions are starting, running, stale or suspended, and !N if N wait for you."""
    client = Client()
    warner = misconfigured.Warner(client)
    if not (follow or waybar):
        print(_text(_found(client)))
        warner.warn()
        return
    client.subscribe()
    last = ""
    while True:
        try:
            found = _found(client)
            warner.warn()
        except RemoteError as problem:
            # amuxd left again: what was said holds until it is back.
            if problem.name != failures.NO_REPLY:
                raise
        else:
            line = json.dumps(for_waybar(found), ensure_ascii=False) if waybar else _text(found)
            if line != last:
                print(line)
                sys.stdout.flush()
                last = line
        client.look_on()
        client.wait_for_change(_SETTLE, _LATEST)


def _found(client: Client) -> list[Properties]:
    return [session for _, session in client.sessions(properties=("as", _NEEDED))]


def _waiting(found: list[Properties]) -> list[Properties]:
    return [session for session in found if session["Attention"]]


def _text(found: list[Properties]) -> str:
    count = sum(session["State"] in COUNTED for session in found)
    waiting = len(_waiting(found))
    return f"{count} !{waiting}" if waiting else str(count)


def for_waybar(found: list[Properties]) -> dict[str, Any]:
    """The classes are for the bar's style sheet, the first is also its alt; the tooltip is Pango markup."""
    waiting, failed = _waiting(found), [s for s in found if s["State"] == "failed"]
    active = any(session["State"] in COUNTED for session in found)
    classes = [
        name
        for name, holds in (
            ("attention", waiting),
            ("failed", failed),
            ("active", active),
            ("idle", not active),
        )
        if holds
    ]
    lines = [f"{s['Name']} waits: {s['Attention']} {s['AttentionMessage']}".rstrip() for s in waiting]
    lines += [f"{s['Name']} failed: {s['Reason']}" for s in failed]
    if len(lines) > _NAMED:
        lines[_NAMED:] = [f"and {len(lines) - _NAMED} more"]
    counts = Counter(session["State"] for session in found)
    lines.append(", ".join(f"{counts[s]} {s}" for s in sessions.STATES if counts[s]) or "no sessions")
    tooltip = "\n".join(escape(harmless(line), quote=False) for line in lines)
    return {"text": _text(found), "alt": classes[0], "tooltip": tooltip, "class": classes}
