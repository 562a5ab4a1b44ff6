"""amux watch"""

import sys
import time
from typing import Any

import click

from amuxd.addresses import SESSION_INTERFACE
from amuxd.cli import failures, render, sessions
from amuxd.cli.client import Client, Properties, is_owner_change, plain
from amuxd.cli.connection import Signal
from amuxd.cli.failures import RemoteError
from amuxd.cli.text import harmless

_NEEDED = ["Id", "Name", "StateChangedUSec", "Run", "AttentionMessage", *sessions.STATUS]
_OF_SESSION = ("SessionStateChanged", "SessionExited", "AttentionChanged")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="An object a line.")
def watch(as_json: bool) -> None:
    """Tell of every change as it happens, a line each, after a line for each session there is.

    The events: session (it is there, in this state), state, exited, attention (over when its kind is empty)
    and removed. A restart of amuxd is sat through; all that changed meanwhile is told then. An amuxd that
    was stopped is not started again by this.
    """
    client = Client()
    client.subscribe()
    told = _Told(client, as_json)
    # While amuxd is away, and until it was looked at again, what it tells has a gap before it.
    missed: list[Signal] | None = None if _look(client, told, []) else []
    client.look_on()
    while True:
        signal = client.next_signal()
        if signal is None:
            continue
        if is_owner_change(signal):
            missed = missed or []
            if signal.body[2] and _look(client, told, missed):
                missed = None
        elif missed is None:
            told.take_in(signal)
        else:
            missed.append(signal)


def _look(client: Client, told: "_Told", missed: list[Signal]) -> bool:
    try:
        found = client.sessions(properties=("as", _NEEDED), archived=("b", True))
        missed += client.signals_before_reply()
        told.catch_up(found, missed)
    except RemoteError as problem:
        # It left again; it is told when it is back.
        if problem.name != failures.NO_REPLY:
            raise
        return False
    return True


class _Told:
    """What was told so far, so that nothing is told twice."""

    def __init__(self, client: Client, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._has_begun = False
        self._names: dict[str, str] = {}
        self._states: dict[str, tuple[str, int]] = {}
        # All transitions up to this moment are told, and so many after it.
        self._told_until: dict[str, int] = {}
        self._told_since: dict[str, int] = {}
        self._attention: dict[str, tuple[str, str]] = {}
        self._exited: set[tuple[str, int]] = set()

    def catch_up(self, found: list[tuple[str, Properties]], missed: list[Signal]) -> None:
        """Missed was what came after a gap, and before what was found."""
        present = {session["Id"] for _, session in found}
        waits = []
        while missed and self._has_begun:
            signal = missed.pop(0)
            if signal.member not in _OF_SESSION or signal.body[1] not in present:
                self.take_in(signal)
            elif signal.member == "AttentionChanged":
                waits.append(signal)
            # The others are in the history, where there is no gap.
        self._has_begun = True
        for path, session in found:
            if session["Id"] in self._states:
                self._catch_up_one(path, session)
            elif session["State"] != "archived":
                self._appeared(session)
        for signal in waits:
            self.take_in(signal)
        for _, session in found:
            if session["Id"] in self._states:
                self._attend(
                    session["Id"], session["Name"], session["Attention"], session["AttentionMessage"]
                )
        for gone in [key for key in self._states if key not in present]:
            self._removed(gone)

    def take_in(self, signal: Signal) -> None:
        if signal.member in _OF_SESSION and signal.body[1] not in self._states:
            return
        if signal.member == "SessionStateChanged":
            self._state(*signal.body[1:])
        elif signal.member == "SessionExited":
            self._exit(*signal.body[1:])
        elif signal.member == "AttentionChanged":
            self._attend(*signal.body[1:])
        elif signal.member == "InterfacesAdded" and SESSION_INTERFACE in signal.body[1]:
            session = plain(signal.body[1][SESSION_INTERFACE])
            if session["Id"] not in self._states:
                self._appeared(session)
        elif signal.member == "InterfacesRemoved":
            self._removed(signal.body[0].rpartition("/")[2])

    def _catch_up_one(self, path: str, session: Properties) -> None:
        key, name, state, run = session["Id"], session["Name"], session["State"], session["Run"]
        if session["StateChangedUSec"] != self._told_until[key]:
            try:
                self._catch_up_history(path, session)
            except RemoteError as problem:
                if problem.name == failures.NO_REPLY:
                    raise
                # It was removed just now, which is told next.
        if self._states[key] != (state, run):
            self._state(key, name, self._states[key][0], state, session["Reason"], run)
        if state in sessions.EXITED and not sessions.ends_later(session):
            self._exit(key, name, session["ExitCode"], session["ExitSignal"], run)
        self._told_until[key], self._told_since[key] = session["StateChangedUSec"], 0

    def _catch_up_history(self, path: str, session: Properties) -> None:
        key, name, until = session["Id"], session["Name"], session["StateChangedUSec"]
        history = self._client.session(path, "History")[0]
        since = [line for line in history if self._told_until[key] < line[0] <= until]
        told = self._told_since[key]
        for number, (_, run, old, new, reason, _) in enumerate(since):
            if number >= told:
                self._state(key, name, old, new, reason, run)
            is_to_come = run == session["Run"] and sessions.ends_later(session)
            if new in sessions.EXITED and (key, run) not in self._exited and not is_to_come:
                end = self._client.certificate(path, run)
                self._exit(key, name, end.get("exit_code", -1), end.get("signal", ""), run)

    def _appeared(self, session: Properties) -> None:
        key, name, state, run = session["Id"], session["Name"], session["State"], session["Run"]
        self._names[key] = name
        self._states[key] = (state, run)
        self._told_until[key], self._told_since[key] = session["StateChangedUSec"], 0
        self._attention[key] = (session["Attention"], session["AttentionMessage"])
        if state in sessions.ENDED and not sessions.ends_later(session):
            self._exited.add((key, run))
        now = time.time()
        status, why = sessions.status(session, now), sessions.reason(session, now)
        reason, attention = session["Reason"], session["Attention"] or None
        words = f"{status}: {why}" if why else status
        self._tell(
            "session", key, words, state=state, status=status, reason=reason, run=run, attention=attention
        )

    def _state(self, key: str, name: str, old: str, new: str, reason: str, run: int) -> None:
        self._names[key] = name
        self._states[key] = (new, run)
        self._told_since[key] += 1
        self._tell("state", key, old=old, new=new, reason=reason, run=run)

    def _exit(self, key: str, name: str, exit_code: int, signal: str, run: int) -> None:
        self._names[key] = name
        if (key, run) not in self._exited:
            self._exited.add((key, run))
            self._tell(
                "exited", key, exit_code=None if exit_code < 0 else exit_code, signal=signal or None, run=run
            )

    def _attend(self, key: str, name: str, kind: str, message: str) -> None:
        self._names[key] = name
        if self._attention.get(key, ("", "")) != (kind, message):
            self._attention[key] = (kind, message)
            self._tell("attention", key, kind=kind or None, message=message or None)

    def _removed(self, key: str) -> None:
        if key in self._states:
            self._tell("removed", key)
            del self._states[key]

    def _tell(self, event: str, key: str, words: str = "", **details: Any) -> None:
        name = self._names[key]
        if self._as_json:
            at = time.time_ns() // 1000
            render.print_json(
                {"event": event, "at_usec": at, "id": key, "name": name, **details}, indent=None
            )
        else:
            who = harmless(f"{name} ({key})")
            print(f"{time.strftime('%H:%M:%S')}  {who}  {harmless(words or _words(event, details))}")
        sys.stdout.flush()


def _words(event: str, details: dict[str, Any]) -> str:
    because = f": {details['reason']}" if details.get("reason") else ""
    if event == "state":
        return f"{details['old']} → {details['new']}{because}"
    if event == "exited":
        how = details["signal"] or (
            f"code {details['exit_code']}" if details["exit_code"] is not None else "unknown"
        )
        return f"exited: {how}"
    if event == "attention":
        kind, message = details["kind"], details["message"]
        return f"waits for you: {kind}" + (f": {message}" if message else "") if kind else "no longer waits"
    return event
