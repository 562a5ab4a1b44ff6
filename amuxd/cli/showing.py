"""amux show and amux history"""

import shlex
import time
from pathlib import Path
from typing import Any

import click

from amuxd.cli import misconfigured, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import RemoteError
from amuxd.cli.naming import session_argument
from amuxd.cli.text import harmless, shortened
from amuxd.errors import PREFIX
from amuxd.logs import aside_of


@click.command()
@session_argument
@click.option("--run", type=click.IntRange(1), metavar="N", help="How run N ended, also an earlier one.")
@click.option("--json", "as_json", is_flag=True, help="One object, with every property.")
def show(name: str, run: int | None, as_json: bool) -> None:
    """Tell everything about a session: its state and why, how it ended, and what can be done next."""
    client = Client()
    path = client.find(name)
    properties = client.properties(path)
    misconfigured.warn(client)
    if run is not None:
        _show_end_of(run, client.certificate(path, run), properties, as_json)
        return
    if as_json:
        render.print_json(sessions.as_json(properties))
        return
    print("\n".join(description(properties, last_end(client, path, properties))))


def _show_end_of(run: int, certificate: Properties, session: Properties, as_json: bool) -> None:
    if as_json:
        code, signal = certificate["exit_code"], certificate["signal"]
        render.print_json(
            {
                "id": session["Id"],
                "name": session["Name"],
                **certificate,
                "exit_code": None if code < 0 else code,
                "signal": signal or None,
            }
        )
        return
    now = time.time()
    is_known = certificate["known"] or (run == session["Run"] and _never_began(session, certificate))
    how = certificate["reason"] + ("" if is_known else "; how is not known")
    rows = [
        ("Session", f"{session['Name']} ({session['Id']})"),
        ("Run", str(run)),
        ("Ended", f"{how}, {_when(certificate, now)}"),
        ("Talked in", certificate.get("conversation", "")),
        ("Log", _kept(certificate.get("log_path", ""), "no output is kept")),
    ]
    print("\n".join([*_lines(rows), *_last_printed(certificate)]))


def last_end(client: Client, path: str, session: Properties) -> Properties:
    """The death certificate of the present run, or nothing."""
    if session["State"] not in sessions.ENDED or sessions.ends_later(session):
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
        ("Since", _since(session, certificate, now)),
        ("Needs you", session.get("AttentionMessage") or session.get("Attention", "")),
        ("Command", shlex.join(session.get("Command", []))),
        ("Directory", session.get("Directory", "")),
        ("Agent", session.get("Agent", "")),
        ("Resume", f"not possible: {why}" if (why := sessions.why_not_resumable(session)) else ""),
        (
            "By itself",
            f"neither parked nor resumed: {why}" if (why := session.get("WhyNotByItself", "")) else "",
        ),
        ("Workspace", sessions.workspace(session)),
        ("Run", _run(session, certificate)),
        ("Created", _moment(session["CreatedUSec"], now)),
        ("Started", _moment(session.get("StartedUSec", 0), now)),
        ("Last output", _moment(session.get("LastActivityUSec", 0), now)),
        ("Ended", _end(session, certificate, now)),
        ("Talked in", certificate.get("conversation", "")),
        ("Process", str(session.get("Pid") or "")),
        ("Attached", str(session.get("Attached") or "")),
        ("Host", session.get("Host", "")),
        ("Unit", session.get("Unit", "")),
        ("Unenforced", sessions.limits_not_enforced(session)),
        ("Log", _kept(session.get("LogPath", ""), "gone" if sessions.may_have_printed(session) else "")),
        ("Next", f"amux {'|'.join(next_steps(session))} {session['Id']}"),
    ]
    return [*_lines(rows), *_last_printed(certificate)]


def _lines(rows: list[tuple[str, str]]) -> list[str]:
    return [
        f"{name + ':':<12} {value if name == 'State' else harmless(shortened(value))}"
        for name, value in rows
        if value
    ]


def _kept(log: str, otherwise: str = "") -> str:
    """The path of a log of which something is there, or where nobody can look."""
    path = Path(log)
    return otherwise if log and not any(map(_may_be_there, (path, aside_of(path)))) else log


def _may_be_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _last_printed(certificate: Properties) -> list[str]:
    last = certificate.get("last_lines")
    return ["", "It last printed:", *(f"  {harmless(line)}" for line in last)] if last else []


def _not_known(session: Properties) -> str:
    if session["State"] in ("suspended", "running") and session.get("SessionAlive") == "unknown":
        return "not known yet: it could not be looked at, or written down, and amuxd tries it again"
    return ""


def _since(session: Properties, certificate: Properties, now: float) -> str:
    changed = session["StateChangedUSec"]
    is_bound = bool(_earliest(certificate)) and changed == certificate["ended_usec"]
    return _moment(changed, now) + (", at the latest" if is_bound else "")


def _earliest(certificate: Properties) -> str:
    """After which it ended, where that is all that is known; empty where the two bounds are the same."""
    after = certificate.get("ended_after_usec", 0)
    return _clock(after) if after and _clock(after) != _clock(certificate["ended_usec"]) else ""


def _end(session: Properties, certificate: Properties, now: float) -> str:
    if sessions.ends_later(session):
        return "not told yet: its process is being ended"
    if not certificate or _never_began(session, certificate):
        return ""
    how = sessions.ended_by(session) if certificate.get("known", True) else "how is not known"
    if certificate.get("core_dumped"):
        how += ", core dumped"
    return ", ".join(part for part in (how, _when(certificate, now)) if part)


def _never_began(session: Properties, certificate: Properties) -> bool:
    """Orphaned while it waited for a slot, say: its run is over, and nothing has ended."""
    return not session["StartedUSec"] and not certificate.get("known", True)


def _run(session: Properties, certificate: Properties) -> str:
    """Empty where none began: it is numbered before that."""
    may_begin_later = session["State"] in ("created", "archived")
    never_began = may_begin_later and session.get("Run") == 1 and not session.get("StartedUSec")
    return "" if never_began and not certificate else str(session.get("Run") or "")


def _when(certificate: Properties, now: float) -> str:
    when = _moment(certificate.get("ended_usec", 0), now)
    earliest = _earliest(certificate)
    return f"between {earliest} and {when}" if earliest else when


def next_steps(session: Properties) -> list[str]:
    steps = {
        "attach": _has_terminal(session),
        "send": _has_terminal(session),
        # What starts is stopped once it runs.
        "stop": sessions.can(session, "stop") or session["State"] == "starting",
        "start": sessions.can(session, "start"),
        "logs": bool(_kept(session.get("LogPath", ""))) and sessions.may_have_printed(session),
        **{verb: sessions.can(session, verb) for verb in ("restart", "resume", "archive", "rm")},
        "rm -f": session["State"] == "unknown" and not sessions.can(session, "stop"),
    }
    return [step for step, is_possible in steps.items() if is_possible]


def _has_terminal(session: Properties) -> bool:
    if session.get("ShellOpen"):
        return True
    comes_back = session.get("Parked") and session.get("Resumable") and not session.get("WhyNotByItself")
    is_watched = session.get("SessionAlive") == "alive" and not session.get("Frozen")
    return session["State"] == "running" and bool(comes_back or is_watched)


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
    """Tell every change of a session's state, oldest first: when, which run, from, to, why, by whom.

    Of an end that nobody saw the time is the one at which amuxd found it; amux show tells since when it may
    have ended. What leaves a running session running is no change of state: that it is parked, comes back,
    or waits for you.
    """
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
