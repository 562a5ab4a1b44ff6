"""amux logs"""

import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click

from amuxd.cli import failures, sessions
from amuxd.cli.client import Client, Properties, is_owner_change
from amuxd.cli.connection import Signal
from amuxd.cli.failures import Failure, RemoteError, WrongUsage
from amuxd.cli.follow import Growth, Printed, blocks, is_beginning_dropped, opened
from amuxd.cli.naming import session_argument
from amuxd.cli.text import harmless
from amuxd.logs import END_OF_LOG, shell_mark

# Who tells of the end is not who writes the log: it is complete once it was quiet this long.
_QUIET_MILLISECONDS = 200


@click.command()
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, until the run ends.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option("--run", "run", metavar="N", type=click.IntRange(min=1), help="Of an earlier run.")
def logs(name: str, follow: bool, lines: int | None, run: int | None) -> None:
    """Print what a session printed, byte for byte."""
    client = Client()
    if follow:
        client.subscribe()
    path = client.find(name)
    session = client.properties(path)
    log = _log(session, run)
    if follow and run in (None, session["Run"]) and log.parent.is_dir():
        _follow(client, path, session, log, lines)
        return
    files = _opened(session, run, log, lines)
    printed = Printed(_marks(session, run))
    for file in files:
        _write(printed.of(blocks(file)))
    _write([printed.rest()])


def _log(session: Properties, run: int | None) -> Path:
    if not session["LogPath"]:
        raise Failure(f"{sessions.label(session)} has not run yet")
    log = Path(session["LogPath"])
    return log if run is None else log.parent.parent / str(run) / log.name


def _marks(session: Properties, run: int | None) -> tuple[bytes, bytes]:
    return END_OF_LOG, shell_mark(session["Id"], run or session["Run"])


def _opened(session: Properties, run: int | None, log: Path, lines: int | None) -> list[BinaryIO]:
    files = opened(log, lines, _marks(session, run))
    if not files:
        label = sessions.label(session)
        if run is not None and run > session["Run"] and session["State"] != "unknown":
            raise WrongUsage(f"there is no run {run} of {label}: the latest is run {session['Run']}")
        if run is not None:
            raise Failure(f"{label} has no output of run {run}")
        if session["State"] == "created":
            raise Failure(f"{label} has not begun, and printed nothing yet", f"amux show {session['Id']}")
        if sessions.may_have_printed(session):
            raise Failure(f"the log of {label} is gone")
    elif files[0].tell() == 0 and is_beginning_dropped(log):
        _note(f"the beginning of what {sessions.label(session)} printed is no longer kept: its log was full")
    return files


def _note(sentence: str) -> None:
    failures.say(harmless(f"amux: {sentence}"))


def _follow(client: Client, path: str, session: Properties, log: Path, lines: int | None) -> None:
    # Before anything is read, so that nothing is printed unnoticed in between.
    growth = Growth(log)
    files = _opened(session, None, log, lines)
    printed = Printed(_marks(session, None))
    for file in files:
        _write(printed.of(blocks(file)))
        growth.after(file)
    run = session["Run"]
    ended = session["State"] in sessions.ENDED
    poll = select.poll()
    poll.register(growth.fileno(), select.POLLIN)
    client.look_on()
    for descriptor, events in client.filenos().items():
        poll.register(descriptor, events)
    while not ended:
        while signal := client.next_signal(0):
            ended = ended or _is_end(client, signal, path, run)
        if not ended:
            poll.poll(None if client.patience is None else client.patience * 1000)
            client.look_after()
            _go_on(growth, printed)
    for descriptor in client.filenos():
        poll.unregister(descriptor)
    _go_on(growth, printed)
    while poll.poll(_QUIET_MILLISECONDS):
        _go_on(growth, printed)
    _write([printed.rest()])


def _go_on(growth: Growth, printed: Printed) -> None:
    _write(printed.of(growth.blocks()))
    if growth.may_have_missed:
        growth.may_have_missed = False
        _note("it was printed faster than it was read here, and some of it may be missing")


def _write(output: Iterable[bytes]) -> None:
    for block in output:
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _is_end(client: Client, signal: Signal, path: str, run: int) -> bool:
    if signal.member == "SessionStateChanged":
        return bool(signal.body[0] == path and (signal.body[4] in sessions.ENDED or signal.body[6] != run))
    if signal.member == "InterfacesRemoved":
        return bool(signal.body[0] == path)
    if is_owner_change(signal) and signal.body[2]:
        return _has_ended(client, path, run)
    return False


def _has_ended(client: Client, path: str, run: int) -> bool:
    """Looks, for what happened while amuxd was away was told to nobody."""
    try:
        session = client.properties(path)
    except RemoteError as problem:
        if problem.name == failures.NO_REPLY:
            return False
        if problem.name == failures.UNKNOWN_OBJECT:
            return True
        raise
    return session["State"] in sessions.ENDED or session["Run"] != run
