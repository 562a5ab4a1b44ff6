"""What a session's properties mean: the words for a state, and the JSON."""

import re
from math import inf
from typing import Any

from amuxd.cli.client import Properties
from amuxd.quantities import format_duration

STATES = (
    "created",
    "starting",
    "running",
    "stale",
    "suspended",
    "stopping",
    "stopped",
    "completed",
    "failed",
    "orphaned",
    "archived",
)
# The same sets as in states.py, which takes longer to import than a whole call should.
EXITED = frozenset({"stopped", "completed", "failed", "orphaned"})
ENDED = EXITED | {"archived"}
# What status() and reason() go by.
STATUS = (
    *("State", "Reason", "Unwritten", "SessionAlive", "StartedUSec", "ExitCode", "ExitSignal", "HowEnded"),
    *("OomKilled", "Parked", "ParkedUSec", "Resumable", "IdleAfterUSec"),
    *("Attention", "Frozen", "ShellOpen", "LastActivityUSec"),
)
IDLE_AFTER = 60_000_000
# How the reason of one begins that is in the queue of its workspace.
_QUEUED = "waiting for a slot"

# What each property says where there is nothing to say.
_NOTHING = {
    "Agent": "",
    "Unit": "",
    "Workspace": "/",
    "WorkspaceName": "",
    "Pid": 0,
    "ParkedUSec": 0,
    "StartedUSec": 0,
    "EndedUSec": 0,
    "EndedAfterUSec": 0,
    "LastActivityUSec": 0,
    "LastCheckedUSec": 0,
    "ExitCode": -1,
    "ExitSignal": "",
    "HowEnded": "",
    "Unwritten": "",
    "Attention": "",
    "AttentionMessage": "",
}
_ALIVE = {"alive": True, "dead": False}


def label(session: Properties) -> str:
    return f"{session['Name']} ({session['Id']})"


def can(session: Properties, verb: str) -> bool:
    """Whether amuxd would do it now."""
    return verb in session.get("Possible", ())


def why_not_begun(session: Properties) -> str:
    """It waits for a slot, say; empty for one that has begun."""
    return str(session["Reason"] or "created") if session["State"] == "created" else ""


def may_have_printed(session: Properties) -> bool:
    """In its present run. Of one that cannot be read it is not known when it began."""
    return bool(session.get("StartedUSec")) or session["State"] == "unknown"


def ended_by(session: Properties) -> str:
    """In a word or two; empty where nothing is known."""
    if how := session.get("HowEnded"):
        return str(how)
    # An amuxd from before an upgrade does not tell it.
    if session.get("OomKilled"):
        return "out of memory"
    if signal := session.get("ExitSignal"):
        return str(signal)
    code = session.get("ExitCode", -1)
    return f"exit {code}" if code >= 0 else ""


def has_ended_unseen(session: Properties) -> bool:
    """Its state says so only once that is written."""
    alive = session.get("SessionAlive")
    return bool(session["State"] == "running" and alive == "dead" and not session.get("Parked"))


def ends_later(session: Properties) -> bool:
    """An orphan is told to be one at once, and its end when its process has ended."""
    return session["State"] == "orphaned" and session.get("SessionAlive") in ("alive", "unknown")


def status(session: Properties, now: float) -> str:
    state = str(session["State"])
    details = [
        _detail(session, now),
        "not written" if session.get("Unwritten") else "",
        "shell open" if session.get("ShellOpen") else "",
    ]
    detail = ", ".join(filter(None, details))
    return f"{state} ({detail})" if detail else state


def reason(session: Properties, now: float) -> str:
    """Why it is in its state, without the words that its status says already."""
    if unwritten := session.get("Unwritten"):
        return str(unwritten)
    if session["State"] == "running" and session.get("Parked"):
        if not session.get("Resumable", True):
            return "its process has ended, and nothing brings it back as it is; amux stop ends it"
        return "its process has ended; amux attach, send and resume bring it back"
    text = str(session.get("Reason", ""))
    for said in (session["State"], _detail(session, now)):
        rest = text.removeprefix(said) if said else text
        if rest[:1] in (":", ";", ""):
            text = rest.lstrip(":; ")
    return text


def _detail(session: Properties, now: float) -> str:
    if session["State"] == "running":
        return _running_detail(session, now)
    if session["State"] == "failed":
        return ended_by(session)
    queued = session["State"] == "created" and str(session.get("Reason", "")).startswith(_QUEUED)
    return _QUEUED if queued else ""


def _running_detail(session: Properties, now: float) -> str:
    if session.get("Parked"):
        parked = f"parked {since(session.get('ParkedUSec', 0), now)}"
        return ", ".join(filter(None, (parked, _waiting(session))))
    if has_ended_unseen(session):
        return "ended"
    if session.get("SessionAlive") == "unknown":
        return "not known whether alive"
    if waiting := _waiting(session):
        return waiting
    if session.get("Frozen"):
        return "frozen"
    return f"idle {since(_active_at(session), now)}" if now >= idle_from(session) else ""


def _active_at(session: Properties) -> int:
    return int(session.get("LastActivityUSec", 0) or session.get("StartedUSec", 0))


def idle_from(session: Properties) -> float:
    """When a running session is idle, unless it prints something until then."""
    active = _active_at(session)
    return (active + session.get("IdleAfterUSec", IDLE_AFTER)) / 1e6 if active else inf


def _waiting(session: Properties) -> str:
    attention = session.get("Attention")
    return f"waiting: {attention}" if attention else ""


def since(microseconds: int, now: float) -> str:
    return format_duration(now - microseconds / 1e6) if microseconds else ""


def why_not_resumable(session: Properties) -> str:
    """Empty where it is no agent, and of what runs: nobody asks for that."""
    runs = session["State"] == "running" and not session.get("Parked")
    return str(session.get("WhyNotResumable", "")) if session.get("Agent") and not runs else ""


def limits_not_enforced(session: Properties) -> str:
    """Which, and why."""
    names = ", ".join(session.get("LimitsNotEnforced", []))
    why = "systemd has no controller for it here" if session.get("Unit") else "there is no systemd here"
    return f"{names}: {why}" if names else ""


def workspace(session: Properties) -> str:
    return str(session.get("WorkspaceName", ""))


def as_json(session: Properties) -> dict[str, Any]:
    return {snake_case(name): _json_value(name, value) for name, value in session.items()}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _json_value(name: str, value: Any) -> Any:
    if name in ("SessionAlive", "HostAlive"):
        return _ALIVE.get(value)
    if name in _NOTHING and value == _NOTHING[name]:
        return None
    return value
