"""amux show and amux history"""

import shlex
import time
from typing import Any

import click

from amuxd.cli import misconfigured, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import RemoteError
from amuxd.cli.naming import session_argument
from amuxd.cli.text import harmless, shortened
from amuxd.errors import PREFIX


@click.command()
@session_argument
@click.option("--json", "as_json", is_flag=True, help="One object, with every property.")
def show(name: str, as_json: bool) -> None:
    """Tell everything about a session: its state and why, how it ended, and what can be done next."""
    client = Client()
    path = client.find(name)
    properties = client.properties(path)
    misconfigured.warn(client)
    if as_json:
        render.print_json(sessions.as_json(properties))
        return
    print("\n".join(description(properties, last_end(client, path, properties))))


def last_end(client: Client, path: str, session: Properties) -> Properties:
    """The death certificate of the present run, or nothing."""
    if session["State"] not in sessions.ENDED:
        return {}
    try:
        return client.certificate(path, session["Run"])
    except RemoteError as problem:
        # A session that never ran has no certificate.
        if problem.name.startswith(PREFIX):
            return {}
        raise


def description(session: Properties, certificate: Properties) -> list[str]:
    now = time.time()
    state = sessions.status(session, now)
    reason = sessions.reason(session, now)
    rows = [
        ("Session", f"{session['Name']} ({session['Id']})"),
        ("About", session.get("Description", "")),
        (
            "State",
            render.coloured(state, render.state_colour(state))
            + (f": {harmless(shortened(reason))}" if reason else ""),
        ),
        ("Alive", _not_known(session)),
        ("Since", _moment(session["StateChangedUSec"], now)),
        ("Needs you", session.get("AttentionMessage") or session.get("Attention", "")),
        ("Command", shlex.join(session.get("Command", []))),
        ("Directory", session.get("Directory", "")),
        ("Agent", session.get("Agent", "")),
        ("Workspace", sessions.workspace(session)),
        ("Run", str(session.get("Run") or "")),
        ("Created", _moment(session["CreatedUSec"], now)),
        ("Started", _moment(session.get("StartedUSec", 0), now)),
        ("Last output", _moment(session.get("LastActivityUSec", 0), now)),
        ("Ended", _end(session, certificate, now)),
        ("Process", str(session.get("Pid") or "")),
        ("Attached", str(session.get("Attached") or "")),
        ("Host", session.get("Host", "")),
        ("Unit", session.get("Unit", "")),
        ("Unenforced", sessions.limits_not_enforced(session)),
        ("Log", session.get("LogPath", "")),
        ("Next", f"amux {'|'.join(next_steps(session))} {session['Id']}"),
    ]
    lines = [
        f"{name + ':':<12} {value if name == 'State' else harmless(shortened(value))}"
        for name, value in rows
        if value
    ]
    if last := certificate.get("last_lines"):
        lines += ["", "It last printed:", *(f"  {harmless(line)}" for line in last)]
    return lines


def _not_known(session: Properties) -> str:
    if session["State"] in ("suspended", "running") and session.get("SessionAlive") == "unknown":
        return "not known yet: it could not be looked at, or written down, and amuxd tries it again"
    return ""


def _end(session: Properties, certificate: Properties, now: float) -> str:
    if not certificate:
        return ""
    how = sessions.ended_by(session) or ("" if certificate.get("known", True) else "how is not known")
    if certificate.get("core_dumped"):
        how += ", core dumped"
    when = _moment(certificate.get("ended_usec", 0), now)
    return ", ".join(part for part in (how, when) if part)


def next_steps(session: Properties) -> list[str]:
    state = session["State"]
    runs = state == "running" and not sessions.has_ended_unseen(session)
    steps = ["attach", "send", "stop"] if runs else []
    if session.get("ShellOpen"):
        steps = ["attach", "send", "stop"]
    if state in ("starting", "stale"):
        steps = ["stop"]
    if state == "suspended" and _not_known(session):
        return ["logs"]
    if state == "unknown" and session.get("HostAlive") != "dead":
        return ["stop", "logs"]
    if session.get("LogPath"):
        steps.append("logs")
    if sessions.can_restart(session):
        steps.append("restart")
    if session.get("Resumable"):
        steps.append("resume")
    if sessions.can_archive(state):
        steps.append("archive")
    if not sessions.is_live(state):
        steps.append("rm")
    return steps


def _moment(microseconds: int, now: float) -> str:
    if not microseconds:
        return ""
    return f"{_clock(microseconds)} ({sessions.since(microseconds, now)} ago)"


def _clock(microseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(microseconds / 1e6))


@click.command()
@session_argument
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def history(name: str, as_json: bool) -> None:
    """Tell every change of a session's state, oldest first: when, which run, from, to, why, by whom."""
    client = Client()
    transitions = client.session(client.find(name), "History")[0]
    if as_json:
        render.print_json([_transition(*transition) for transition in transitions])
        return
    table = render.Table(
        ("WHEN", "RUN", "FROM", "TO", "REASON", "BY"),
        yielding=("REASON",),
        colour_of={"TO": render.state_colour},
    )
    for at, run, old, new, reason, by in transitions:
        table.add(_clock(at), str(run), old, new, reason, by)
    print("\n".join(table.lines()))


def _transition(at: int, run: int, old: str, new: str, reason: str, by: str) -> dict[str, Any]:
    return {"at_usec": at, "run": run, "from": old, "to": new, "reason": reason, "by": by}
