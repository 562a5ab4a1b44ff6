"""amux attach and amux send"""

import os
import sys
import time
from time import monotonic

import click

from amuxd.cli import sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import DID_NOT_WORK, Failure, NotPossible, RemoteError, Unreachable, WrongUsage
from amuxd.cli.naming import session_argument
from amuxd.cli.text import harmless

# Who has left is told how the session stands, if that is known so soon; and whoever was thrown out, if amuxd
# sees so soon what happened.
_AFTER_LEAVING, _AFTER_A_LOSS = 2.0, 10.0
# What can be started has no conversation yet to resume.
_OFFERS = {
    "start": "[S] Start",
    "resume": "[S] Resume",
    "restart": "[R] Restart",
    "archive": "[T] Teardown (archive for good)",
}
# No way leads back from it, and a small letter is soon pressed by mistake.
_DELIBERATE = "T"


@click.command()
@session_argument
def attach(name: str) -> int:
    """Take a session into this terminal; Ctrl-B d leaves it again. It goes on either way."""
    client = Client()
    return attach_to(client, client.find(name))


def attach_to(client: Client, path: str, has_just_begun: bool = False) -> int:
    """The exit code. The client is not to be used any more."""
    while _has_terminal(session := _look(client, path)):
        if os.environ.get("AMUX_SESSION_ID") == session["Id"]:
            raise NotPossible(f"this terminal is {sessions.label(session)} itself")
        code = _take(client, path)
        if code is not None:
            return code
        client = Client()
    if has_just_begun and session["State"] in sessions.ENDED:
        # Nobody who has begun it a moment ago is asked whether to begin it again.
        return _tell_end(client, path, session)
    why_no_more = sessions.why_not_resumable(session)
    what = _standing(session) + (f"; it cannot be resumed: {why_no_more}" if why_no_more else "")
    if not _is_at_terminal():
        raise NotPossible(what, _possible(session))
    return _offer(client, path, session, what)


def _look(client: Client, path: str) -> Properties:
    session = client.properties(path)
    if session["State"] in sessions.ENDED and session["HostAlive"] == "alive":
        # It has just ended, or its terminal stays, with an open shell say. Asking how it ended waits until
        # that is clear.
        client.certificate(path, 0)
        session = client.properties(path)
    return session


def _has_terminal(session: Properties) -> bool:
    return bool(session["State"] == "running" or session["HostAlive"] == "alive")


def _standing(session: Properties) -> str:
    now = time.time()
    status = sessions.status(session, now)
    # Why it runs is no news.
    reason = "" if session["State"] == "running" else sessions.reason(session, now)
    return f"{sessions.label(session)} is {status}" + (f": {reason}" if reason else "")


def _is_at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def need_terminal() -> None:
    if not _is_at_terminal():
        raise Failure("attach needs a terminal", "amux logs -f shows what it prints, amux send types into it")


def _take(client: Client, path: str) -> int | None:
    """The exit code; None: it had ended before it could be taken."""
    need_terminal()
    from amuxd.cli.lending import lend

    try:
        # One that was parked begins again for it.
        command = client.session(path, "AttachCommand", patient=True)[0]
    except RemoteError:
        if _has_ended(_look(client, path)):
            return None
        raise
    # It may take days: nobody would read what the bus has for us.
    client.close()
    # A terminal inside tmux counts as nested; this one is meant.
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
    try:
        returned = lend(command, environment)
    except OSError as problem:
        raise Failure(f"{command[0]}: {problem.strerror}") from None
    # Whoever had the terminal says with what it gave that back.
    was_taken = bool(returned.said)
    sys.stdout.write(returned.said)
    if was_taken and returned.code == 0:
        return _after_leaving(path)
    return _after_loss(path, was_taken, returned.complaints)


def _has_ended(session: Properties) -> bool:
    return session["State"] in sessions.ENDED and not _has_terminal(session)


def _after_leaving(path: str) -> int:
    try:
        session = Client(timeout=_AFTER_LEAVING).properties(path)
    except (OSError, RemoteError, Unreachable):
        # It was left all the same.
        return 0
    print(harmless(_standing(session)))
    return 0


def _after_loss(path: str, was_taken: bool, complaints: str) -> int | None:
    """The exit code; None: there was no terminal any more to be taken."""
    session = None
    try:
        client = Client()
        client.subscribe()
        session = _once_over(client, path)
    finally:
        is_too_late = session is not None and _has_ended(session) and not was_taken
        if not is_too_late:
            sys.stderr.write(complaints)
    return None if is_too_late else _tell_end(client, path, session)


def _once_over(client: Client, path: str) -> Properties:
    session = client.properties(path)
    if session["State"] == "stopping" or (session["State"] == "running" and not _answers(client, path)):
        deadline = monotonic() + _AFTER_A_LOSS
        while session["State"] in ("running", "stopping") and client.next_signal(
            max(0.0, deadline - monotonic())
        ):
            session = client.properties(path)
    return _look(client, path)


def _tell_end(client: Client, path: str, session: Properties) -> int:
    """What it last printed went with its terminal; of one that somebody stopped nobody asks for that."""
    if session["State"] in ("completed", "failed") and not _has_terminal(session):
        _print_last_lines(client, path, session)
    print(harmless(_standing(session)))
    return 0 if session["State"] in ("stopped", "completed", "archived") else DID_NOT_WORK


def _print_last_lines(client: Client, path: str, session: Properties) -> None:
    from amuxd.cli import render, showing
    from amuxd.logs import LINES

    lines = showing.last_end(client, path, session).get("last_lines", [])
    for line in lines:
        print(harmless(line))
    if len(lines) >= LINES:
        print(render.coloured(f"all of it: amux logs {session['Id']}", "2"))


def _answers(client: Client, path: str) -> bool:
    """Whether its terminal is there: it was the client alone that failed."""
    try:
        client.session(path, "Capture", "u", 1)
    except RemoteError:
        return False
    return True


def _possible(session: Properties) -> str:
    steps = [verb for verb in _OFFERS if sessions.can(session, verb)]
    return ", ".join(f"amux {verb} {session['Id']}" for verb in steps)


def _offer(client: Client, path: str, session: Properties, what: str) -> int:
    offers = {verb: offer for verb, offer in _OFFERS.items() if sessions.can(session, verb)}
    if not offers:
        raise NotPossible(what)
    print(harmless(what))
    question = "  ".join([*offers.values(), "[C] Cancel"]) + " "
    print(question, end="", flush=True)
    verbs = {offer[1]: verb for verb, offer in offers.items()}
    key = _chosen(set(verbs), question)
    print(key)
    verb = verbs.get(key)
    if verb == "archive":
        client.session(path, "Archive", patient=True)
        print(harmless(f"archived {sessions.label(session)}"))
    elif verb:
        client.session(path, verb.capitalize(), patient=True)
        return attach_to(client, path, has_just_begun=True)
    return 0


def _chosen(offered: set[str], question: str) -> str:
    """One of the keys on offer, or C."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        # Whoever is quick has typed already: that must not be thrown away.
        tty.setcbreak(terminal, termios.TCSADRAIN)
        while True:
            typed = os.read(terminal, 16).decode(errors="replace")
            for pressed in typed:
                key = pressed.upper()
                if key in offered and key == _DELIBERATE != pressed:
                    print(f"{pressed}\nonly a capital {key} does that\n{question}", end="", flush=True)
                elif key in offered:
                    return key
                elif key in "CQ\x1b\x04":
                    return "C"
            if not typed:
                return "C"
    except KeyboardInterrupt:
        return "C"
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@click.command()
@session_argument
@click.argument("text")
@click.option("--no-enter", is_flag=True, help="Do not press Enter after it.")
def send(name: str, text: str, no_enter: bool) -> None:
    """Type TEXT into a session, and Enter after it; - takes the text from standard input."""
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise WrongUsage("standard input is not valid UTF-8") from None
        except OSError as problem:
            raise WrongUsage(f"standard input cannot be read: {problem.strerror}") from None
        if not no_enter:
            # The line's own end is the Enter that follows.
            text = text.removesuffix("\n")
    client = Client()
    client.session(client.find(name), "Send", "sb", text, not no_enter, patient=True)
