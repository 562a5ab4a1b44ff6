"""amux wait"""

import sys
from collections.abc import Iterable, Sequence
from time import monotonic

import click

from amuxd.cli import failures, sessions
from amuxd.cli.client import Client, Properties, is_owner_change, plain
from amuxd.cli.connection import Signal
from amuxd.cli.failures import Failure, Interrupted, NotStarted, RemoteError, Unanswered
from amuxd.cli.naming import sessions_argument
from amuxd.cli.quantities import parse_duration
from amuxd.cli.text import harmless
from amuxd.quantities import format_duration
from amuxd.signal_names import signal_number

# How long amuxd may be away before we ask for it ourselves: its service manager starts it again sooner.
_PATIENCE = 5.0
# Among the states: its end is known, and cannot be written down yet.
_UNWRITTEN = "unwritten"


@click.command()
@sessions_argument
@click.option("--any", "any_one", is_flag=True, help="Until the first of them ends; prints its id.")
@click.option(
    "--timeout", metavar="T", type=parse_duration, help="Give up after this long, with exit code 124."
)
def wait(names: Sequence[str], any_one: bool, timeout: float | None) -> int:
    """Wait until sessions end.

    The exit code is the command's own, 128+N where signal N ended it; 0 for a session that was stopped and
    left no code, 1 for one that could not start, was lost, or was archived before it ended. Of several, the
    first that is not 0, in the order given. A suspended session has not ended, nor has an orphaned one whose
    process lives; and an end that cannot be written down, on a full disk say, is waited for until it is:
    before that it is no more than what amuxd has seen.
    """
    until = None if timeout is None else monotonic() + timeout
    try:
        client = Client(until=until)
        client.subscribe()
        waited = {}
        for name in names:
            path = client.find(name)
            waited[path] = sessions.label(client.properties(path))
        codes = ends(client, waited, any_one, timeout)
    except (Unanswered, NotStarted) as problem:
        if until is None or monotonic() < until:
            raise
        raise Failure(problem.sentence, problem.hint, failures.TIMED_OUT) from None
    if any_one:
        path, code = next(iter(codes.items()))
        print(client.properties(path)["Id"])
        return code
    return next((codes[path] for path in waited if codes[path]), 0)


def ends(
    client: Client, waited: dict[str, str], any_one: bool = False, timeout: float | None = None
) -> dict[str, int]:
    """The exit code of each, by its path, the first that ended first.

    The client is subscribed already, and knows when the time is over.
    """
    codes: dict[str, int] = {}
    states: dict[str, str] = {}
    said: set[str] = set()
    # What was said so far is seen while we wait.
    sys.stdout.flush()
    back_by = _look(client, waited, states, codes, said)
    try:
        while len(codes) < (1 if any_one else len(waited)):
            now = monotonic()
            if client.until is not None and now >= client.until:
                raise Failure(
                    f"{_still(waited, states, codes)} after {_waited(timeout)}", exit_code=failures.TIMED_OUT
                )
            if back_by is not None and now >= back_by:
                back_by = _look(client, waited, states, codes, said)
                continue
            times = [moment - now for moment in (client.until, back_by) if moment is not None]
            signal = client.next_signal(min(times) if times else None)
            if signal and is_owner_change(signal):
                back_by = _look(client, waited, states, codes, said) if signal.body[2] else now + _PATIENCE
            elif signal:
                _take_in(signal, waited, states, codes, said)
    except KeyboardInterrupt:
        left = [path for path in waited if path not in codes]
        verb = "wait" if states.get(left[0]) in ("created", _UNWRITTEN) else "attach"
        raise Interrupted(
            _still(waited, states, codes), f"amux {verb} {left[0].rpartition('/')[2]}"
        ) from None
    return codes


def _waited(timeout: float | None) -> str:
    seconds = timeout or 0
    return format_duration(seconds) if seconds >= 1 else f"{seconds:g}s"


def _still(waited: dict[str, str], states: dict[str, str], codes: Iterable[str]) -> str:
    going: list[str] = []
    not_begun: list[str] = []
    unwritten: list[str] = []
    lists = {"created": not_begun, _UNWRITTEN: unwritten}
    for path, label in waited.items():
        if path not in codes:
            lists.get(states.get(path, ""), going).append(label)
    clauses = []
    if going:
        clauses.append(", ".join(going) + (" goes on" if len(going) == 1 else " go on"))
    if not_begun:
        clauses.append(", ".join(not_begun) + (" has" if len(not_begun) == 1 else " have") + " not begun")
    if unwritten:
        verb = "has" if len(unwritten) == 1 else "have"
        clauses.append(f"{', '.join(unwritten)} {verb} ended, and that is not written down")
    return "; ".join(clauses)


def _look(
    client: Client,
    waited: dict[str, str],
    states: dict[str, str],
    codes: dict[str, int],
    said: set[str],
) -> float | None:
    """Asks for each; when amuxd has to be back by, if it left meanwhile."""
    for path in waited:
        if path in codes:
            continue
        try:
            session = client.properties(path)
        except RemoteError as problem:
            if problem.name == failures.NO_REPLY:
                return monotonic() + _PATIENCE
            raise
        states[path] = session["State"]
        if session["State"] in sessions.ENDED and not sessions.ends_later(session):
            state = _archived_from(client, path) if session["State"] == "archived" else session["State"]
            codes[path] = _code(state, session["ExitCode"], session["ExitSignal"])
        else:
            _say_unwritten(path, waited, states, session, said)
    return None


def _archived_from(client: Client, path: str) -> str:
    """The state that tells how it ended, or that it has not."""
    transitions = client.session(path, "History")[0]
    return next((old for _, _, old, new, _, _ in reversed(transitions) if new == "archived"), "")


def _say_unwritten(
    path: str, waited: dict[str, str], states: dict[str, str], told: Properties, said: set[str]
) -> None:
    """Once: it has ended, say, and yet we go on waiting, as for everybody its state is the written one."""
    unwritten = told.get("Unwritten", "")
    has_ended = bool(unwritten and told.get("SessionAlive") == "dead")
    if has_ended:
        states[path] = _UNWRITTEN
    if unwritten and path not in said:
        said.add(path)
        why = "waiting until its end is written" if has_ended else "still waiting"
        failures.say(f"amux: {harmless(waited[path])}: {harmless(unwritten)}; {why}")


def _take_in(
    signal: Signal,
    waited: dict[str, str],
    states: dict[str, str],
    codes: dict[str, int],
    said: set[str],
) -> None:
    if signal.member == "SessionStateChanged":
        path, old, new = signal.body[0], signal.body[3], signal.body[4]
        states[path] = new
        if path in waited and new == "archived":
            codes.setdefault(path, _code(old, -1, ""))
    elif signal.member == "SessionExited":
        path, _, _, exit_code, name, _ = signal.body
        if path in waited:
            codes.setdefault(path, _code(states.get(path, "failed"), exit_code, name))
    elif signal.member == "PropertiesChanged":
        if signal.path in waited and signal.path not in codes:
            _say_unwritten(signal.path, waited, states, plain(signal.body[1]), said)
    elif signal.member == "InterfacesRemoved":
        path = signal.body[0]
        if path in waited and path not in codes:
            raise Failure(f"{waited[path]} was removed", exit_code=failures.NO_SUCH_SESSION)


def _code(state: str, exit_code: int, signal: str) -> int:
    if exit_code >= 0:
        return exit_code
    if number := signal_number(signal):
        return 128 + number
    return 0 if state in ("completed", "stopped") else 1
