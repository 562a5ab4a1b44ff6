"""amux run"""

import os
from pathlib import Path
from typing import Any

import click

from amuxd.cli import closed_streams, done, failures, render, sessions
from amuxd.cli.client import Client, Properties
from amuxd.cli.environment import directory, environment, umask
from amuxd.cli.failures import Failure, Interrupted, RemoteError, Unanswered, WrongUsage
from amuxd.cli.naming import not_empty, workspace_option
from amuxd.cli.quantities import parse_count, parse_percent, parse_size
from amuxd.cli.text import harmless

_WEIGHTS = click.IntRange(1, 10000)
# After a change of anything it is looked again, this soon and no later than that.
_SETTLE, _LATEST = 0.02, 0.5


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-a", "--agent", metavar="AGENT", type=not_empty, help="The agent to start; COMMAND is added to its own."
)
@click.option("-n", "--name", help="What to call it; amuxd thinks of a name otherwise.")
@click.option("-d", "--description", help="What it is for.")
@click.option(
    "-C",
    "--directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to run it; here otherwise.",
)
@workspace_option("Run it in this workspace.")
@click.option("--create", is_flag=True, help="Make the workspace if there is none of that name.")
@click.option("--queue", is_flag=True, help="Wait for a slot in the workspace if all are taken.")
@click.option("--shell", is_flag=True, help="In a shell, which stays open afterwards.")
@click.option(
    "--resume",
    type=click.Choice(["manual", "auto"]),
    help="auto: after a reboot it comes back by itself.",
)
@click.option("--attach", is_flag=True, help="Take it into this terminal at once.")
@click.option("--wait", is_flag=True, help="Wait until it ends; the exit code is the command's.")
@click.option("-q", "--quiet", is_flag=True, help="Print the id alone.")
@click.option(
    "-e",
    "--env",
    "assignments",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="A variable to set; without a value, as it is here. May be given again.",
)
@click.option("--memory-max", metavar="SIZE", type=parse_size, help="Memory it cannot exceed: 4G, 512M.")
@click.option("--memory-high", metavar="SIZE", type=parse_size, help="Memory above which it is slowed down.")
@click.option(
    "--cpu-quota", metavar="PERCENT", type=parse_percent, help="Share of a processor: 50%; 200% are two."
)
@click.option("--cpu-weight", metavar="1-10000", type=_WEIGHTS, help="Its weight when processors are scarce.")
@click.option(
    "--tasks-max", metavar="N", type=parse_count, help="How many processes and threads it may have."
)
def run(command: tuple[str, ...], attach: bool, wait: bool, quiet: bool, **given: Any) -> int:
    """Start a command in a session of its own; your shell, if there is no COMMAND.

    The options come first: all that follows COMMAND is its own. With -a, what follows -- is added to the
    agent's own command at each start, also when it is resumed: options. A first question comes before them,
    and is asked only once.
    """
    if attach and wait:
        raise WrongUsage("--attach and --wait do not go together", "amux run --attach, or amux run --wait")
    if attach:
        from amuxd.cli.attaching import need_terminal

        need_terminal()
    if given["name"] == "":
        raise WrongUsage("a name must not be empty", "amux run without -n thinks of one")
    _check_workspace(given)
    words = list(command)
    if not words and not given["agent"]:
        words = [os.environ.get("SHELL") or "/bin/sh"]
    options = _options(given, has_command=bool(command))
    client = Client()
    if given["workspace"]:
        from amuxd.cli.workspaces import ensure

        ensure(client, given["workspace"], given["create"])
    if wait or (attach and given["queue"]):
        # Before it is created: it may begin, or end, before the call returns.
        client.subscribe()
    known = given["name"] or "it"
    try:
        path = client.manager("CreateSession", "asa{sv}", words, options, patient=True)[0]
        known = path.rpartition("/")[2]
        session = client.properties(path)
    except KeyboardInterrupt:
        # It was asked for, and nothing takes that back.
        raise Interrupted(f"{known} may have been started", "amux ls") from None
    except (Unanswered, RemoteError, ConnectionResetError) as problem:
        if not failures.may_be_done(problem):
            raise
        sentence = failures.explain(problem).sentence
        raise Unanswered(f"{sentence}; {known} may have been started", "amux ls") from None
    _warn_of_limits(session)
    try:
        return _go_on(client, path, session, attach, wait, quiet)
    except KeyboardInterrupt:
        how, verb = ("has not begun", "wait") if session["State"] == "created" else ("goes on", "attach")
        raise Interrupted(f"{sessions.label(session)} {how}", f"amux {verb} {session['Id']}") from None


def _go_on(client: Client, path: str, session: Properties, attach: bool, wait: bool, quiet: bool) -> int:
    if _could_not_start(session):
        if quiet:
            # Where that cannot be printed, that it did not start is told all the same.
            try:
                print(session["Id"], flush=True)
            except OSError:
                closed_streams.discard_output()
        raise Failure(f"{sessions.label(session)}: {session['Reason'] or 'could not start'}")
    unsaid = _introduce(session, quiet, hint=not attach and not wait)
    # Of one that is waited for, what was asked for is the exit code.
    if unsaid and not wait:
        return unsaid
    if attach:
        from amuxd.cli.attaching import attach_to

        if session["State"] == "created":
            _wait_for_its_turn(client, path, session)
        return attach_to(client, path, has_just_begun=True)
    if wait:
        from amuxd.cli.waiting import ends

        return ends(client, {path: sessions.label(session)})[path]
    return 0


def _wait_for_its_turn(client: Client, path: str, session: Properties) -> None:
    session.update(client.properties(path))
    while session["State"] in ("created", "starting"):
        client.wait_for_change(_SETTLE, _LATEST)
        session.update(client.properties(path))


def _check_workspace(given: dict[str, Any]) -> None:
    if given["workspace"] and given["directory"]:
        raise WrongUsage("-w and -C do not go together", "amux run -w WORKSPACE, or amux run -C DIR")
    for option in ("create", "queue"):
        if given[option] and not given["workspace"]:
            raise WrongUsage(f"--{option} needs a workspace", f"amux run -w WORKSPACE --{option}")


def _options(given: dict[str, Any], has_command: bool) -> dict[str, tuple[str, Any]]:
    options: dict[str, tuple[str, Any]] = {
        "env": ("a{ss}", environment(given["assignments"])),
        "umask": ("u", umask()),
        # A shell alone stays open as it is; of an agent amuxd says that it is not for one.
        "shell": ("b", given["shell"] and (has_command or bool(given["agent"]))),
    }
    if given["workspace"]:
        options["workspace"] = ("s", given["workspace"])
        options["queue"] = ("b", given["queue"])
    else:
        options["cwd"] = ("s", str(directory(given["directory"], "amux run -C DIR")))
    signatures = {
        "name": "s",
        "description": "s",
        "agent": "s",
        "resume": "s",
        "memory_max": "t",
        "memory_high": "t",
        "cpu_quota": "u",
        "cpu_weight": "t",
        "tasks_max": "t",
    }
    for name, signature in signatures.items():
        if given[name] is not None:
            options[name] = (signature, given[name])
    return options


def _introduce(session: Properties, quiet: bool, hint: bool) -> int:
    became = f"started {sessions.label(session)}"
    if session["State"] == "created":
        became = f"created {sessions.label(session)}: {session['Reason']}"
    lines = [session["Id"] if quiet else harmless(became)]
    if hint and not quiet and render.is_terminal() and session["State"] == "running":
        lines.append(render.coloured(f"see it with: amux attach {session['Id']}", "2"))
    return done.tell(became, *lines)


def _warn_of_limits(session: Properties) -> None:
    if limits := sessions.limits_not_enforced(session):
        failures.say(f"amux: nothing enforces {limits}")


def _could_not_start(session: Properties) -> bool:
    """Nor has it left anything that amux run --wait could give."""
    return session["State"] == "failed" and session["ExitCode"] < 0 and not session["ExitSignal"]
