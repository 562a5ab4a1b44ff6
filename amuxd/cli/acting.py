"""amux start, stop, kill, restart, resume, park, archive and rm: one thing done to several at once"""

import signal as signals
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from amuxd.cli import failures, sessions
from amuxd.cli.client import Client
from amuxd.cli.failures import Interrupted, RemoteError, Unreachable
from amuxd.cli.naming import sessions_argument
from amuxd.cli.quantities import parse_duration
from amuxd.cli.text import harmless
from amuxd.signal_names import signal_name, signal_number


class _Asked(NamedTuple):
    label: str
    path: str
    serial: int


def _act(names: Sequence[str], done: str, member: str, signature: str = "", *body: Any) -> int:
    """Asks for all at once, then reports each in the order given; the exit code of the first that failed."""
    client = Client()
    may_have_to_wait = member in ("Start", "Restart", "Resume")
    asked: deque[_Asked | RemoteError] = deque()
    code = 0
    try:
        for name in dict.fromkeys(names):
            _ask(asked, client, name, member, signature, *body)
        while asked:
            one = asked[0]
            try:
                if isinstance(one, RemoteError):
                    raise one
                client.finish(one.serial)
                why_not_yet = sessions.why_not_begun(client.properties(one.path)) if may_have_to_wait else ""
                print(harmless(f"{one.label}: {why_not_yet}" if why_not_yet else f"{done} {one.label}"))
            except (RemoteError, Unreachable) as problem:
                sys.stdout.flush()
                told = failures.tell(problem)
                code = code or told
            asked.popleft()
    except KeyboardInterrupt:
        left = [one.label for one in asked if isinstance(one, _Asked)]
        if not left:
            raise
        raise Interrupted(f"{member.lower()} goes on for {', '.join(left)}", "amux ls -a") from None
    return code


def _ask(
    asked: deque[_Asked | RemoteError], client: Client, name: str, member: str, signature: str, *body: Any
) -> None:
    try:
        path = client.find(name)
        # Asked before, for afterwards it may be gone.
        label = sessions.label(client.properties(path))
    except RemoteError as problem:
        asked.append(problem)
        return
    with _interrupted_later():
        asked.append(_Asked(label, path, client.begin(path, member, signature, *body)))


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """A Ctrl-C between the asking and the note of it would deny what goes on."""
    before = signals.pthread_sigmask(signals.SIG_BLOCK, {signals.SIGINT})
    try:
        yield
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)


@click.command()
@sessions_argument
def start(names: Sequence[str]) -> int:
    """Begin the first run of sessions that were created over D-Bus and not started."""
    return _act(names, "started", "Start")


@click.command()
@sessions_argument
@click.option("--grace", metavar="T", type=parse_duration, help="How long it may take to end by itself.")
def stop(names: Sequence[str], grace: float | None) -> int:
    """End sessions: the command is asked to end, then, after a grace, all that is left is killed.

    One that is being stopped already is waited for, with the grace of who came first.
    """
    options = {} if grace is None else {"grace": ("d", grace)}
    return _act(names, "stopped", "Stop", "a{sv}", options)


def _signal_name(text: str) -> str:
    number = signal_number(text)
    if number is None:
        raise click.BadParameter(f"{text!r} is not a signal such as TERM, SIGINT or 9")
    return signal_name(number)


@click.command()
@sessions_argument
@click.option("-s", "--signal", metavar="SIGNAL", type=_signal_name, default="SIGTERM", show_default=True)
def kill(names: Sequence[str], signal: str) -> int:
    """Send a signal to the command of sessions. What becomes of it then is the command's matter."""
    return _act(names, f"sent {signal} to", "Kill", "s", signal)


@click.command()
@sessions_argument
def restart(names: Sequence[str]) -> int:
    """Begin a new run of sessions: the same command in the same place."""
    return _act(names, "restarted", "Restart")


@click.command()
@sessions_argument
def resume(names: Sequence[str]) -> int:
    """Begin a new run of agents that goes on with their conversation; parked ones are brought back."""
    return _act(names, "resumed", "Resume")


@click.command()
@sessions_argument
def park(names: Sequence[str]) -> int:
    """End the process of agents to free its memory. amux attach and amux send bring them back."""
    return _act(names, "parked", "Park")


@click.command()
@sessions_argument
def archive(names: Sequence[str]) -> int:
    """Put sessions away: lists leave them out, and they are kept until they are removed."""
    return _act(names, "archived", "Archive")


@click.command()
@sessions_argument
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Also one that is live, in a shell that stayed open say: it is stopped first.",
)
def rm(names: Sequence[str], force: bool) -> int:
    """Remove sessions and all their files, their logs too."""
    return _act(names, "removed", "Remove", "a{sv}", {"force": ("b", force)})
