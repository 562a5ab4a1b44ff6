"""amux ws add, ls, show, setup and rm"""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import click

from amuxd.cli import done, failures, misconfigured, render, sessions, standing
from amuxd.cli.client import LONG, Client, Properties, plain
from amuxd.cli.environment import directory, environment, umask
from amuxd.cli.failures import Failure, Interrupted, NotPossible, RemoteError, WrongUsage
from amuxd.cli.naming import not_empty, workspace_argument, workspaces_argument
from amuxd.cli.text import harmless
from amuxd.errors import PREFIX

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
# git is given ten minutes to check files out, and who wants the same repository waits for that.
CHECKOUT = 600.0 + LONG
# While another makes the same workspace, of whose failure nothing is told.
_LOOK_AGAIN = 0.5
_ONE_BY_ONE = "still waiting: git makes and removes the worktrees of a repository one after the other"
_WAITS_TO_ADD = f"{_ONE_BY_ONE}, and large files take their time, as does a disk that does not answer"
_WAITS_TO_REMOVE = f"{_ONE_BY_ONE}, and what is in one may take its time to end, or its disk to answer"


@click.group(invoke_without_command=True)
@click.pass_context
def ws(context: click.Context) -> None:
    """Workspaces: directories that sessions work in, one beside the other.

    W is a workspace's name, its id, or the beginning of its id.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@ws.command()
@click.argument("name")
@click.option("--repo", metavar="DIR", type=_DIRECTORY, help="The repository; the one around here otherwise.")
@click.option(
    "--branch", metavar="BRANCH", type=not_empty, help="A new branch or an existing one; NAME otherwise."
)
@click.option(
    "--base",
    metavar="COMMIT",
    type=not_empty,
    help="What a new branch begins from; otherwise the branch of that name on a remote, or where you are.",
)
@click.option("--path", metavar="DIR", type=_DIRECTORY, help="Take this directory as it is: no worktree.")
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 0xFFFFFFFF), help="How many sessions can be live in it."
)
@click.option("--allow-setup", is_flag=True, help="Run the repository's set-up command without asking.")
@click.option("--no-setup", is_flag=True, help="Do not run it.")
def add(name: str, path: Path | None, allow_setup: bool, no_setup: bool, **given: Any) -> int:
    """Make a worktree of a git repository, on a branch of its own, for sessions to work in."""
    if path and any(given[option] for option in ("repo", "branch", "base")):
        raise WrongUsage("--path takes a directory as it is: it has no --repo, --branch or --base")
    client = Client()
    with client.telling("" if path else _WAITS_TO_ADD):
        where, found = make(client, name, path, **given)
    added = f"added {name}: {found['Directory']}"
    unsaid = done.tell(added, harmless(added))
    _tell_hook_failure(found)
    if not no_setup:
        unsaid = _set_up_if_allowed(client, where, found, allow_setup) or unsaid
    # As git itself ends then.
    return 1 if found["HookFailure"] else unsaid


def make(client: Client, name: str, path: Path | None = None, **given: Any) -> tuple[str, Properties]:
    """The workspace, which is not set up yet."""
    # Which may lack what the user has written down for it.
    misconfigured.warn(client)
    options = _surroundings()
    if path:
        options["path"] = ("s", str(path.absolute()))
    else:
        options["repo"] = ("s", str(directory(given.get("repo"), f"amux ws add --repo DIR {name}")))
    for option in ("branch", "base"):
        if given.get(option):
            options[option] = ("s", given[option])
    if given.get("slots"):
        options["slots"] = ("u", given["slots"])
    with _going_on(f"{name} may be made all the same", f"amux ws show {shlex.quote(name)}"):
        where = client.manager("AddWorkspace", "sa{sv}", name, options, patient=True)[0]
        return where, client.workspace_properties(where)


@contextmanager
def _going_on(sentence: str, hint: str) -> Iterator[None]:
    """Ctrl-C takes nothing back that amuxd has begun."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(sentence, hint) from None


def _tell_hook_failure(found: Properties) -> None:
    if found["HookFailure"]:
        failures.say(harmless(f"amux: {found['HookFailure']}"))


def _surroundings() -> dict[str, tuple[str, Any]]:
    """The caller's, for what is made for the caller."""
    return {"env": ("a{ss}", environment(())), "umask": ("u", umask())}


def _set_up_if_allowed(client: Client, where: str, found: Properties, allow: bool) -> int:
    command = found["SetupCommand"]
    if not command:
        return 0
    if not found["SetupAllowed"] and not allow:
        if not (sys.stdin.isatty() and render.is_terminal()):
            failures.say(harmless(f"amux: not set up: nobody has allowed {command!r} yet"))
            failures.say(harmless(f"      {_how_to_allow(found)}"))
            return 0
        question = f"Run {command!r} in it, and from now on in each new worktree of {found['Repository']}?"
        allow = click.confirm(harmless(question))
        if not allow:
            return 0
    return _set_up(client, where, found, allow)


def _how_to_allow(found: Properties) -> str:
    return f"amux ws setup --allow {found['Id']}"


def _set_up(client: Client, where: str, found: Properties, allow: bool) -> int:
    from amuxd.cli.waiting import ends

    client.subscribe()
    # What was shown, and no other that the configuration may have by now.
    options = {"allow": ("b", allow), "command": ("s", found["SetupCommand"]), **_surroundings()}
    try:
        session = client.workspace(where, "Setup", "a{sv}", options, patient=True)[0]
    except RemoteError as problem:
        if problem.name != PREFIX + "SetupNotAllowed":
            raise
        raise NotPossible(failures.explain(problem).sentence, _how_to_allow(found)) from None
    properties = client.properties(session)
    whose = ", ".join(filter(None, (found["Name"], sessions.why_not_begun(properties))))
    begun = f"setting up {whose}: {found['SetupCommand']}"
    unsaid = done.tell(begun, harmless(begun))
    if ends(client, {session: sessions.label(properties)})[session]:
        properties = client.properties(session)
        for line in client.certificate(session, properties["Run"]).get("last_lines", []):
            failures.say(harmless(f"  {line}"))
        raise Failure(
            f"the set-up of {found['Name']} failed: {properties['Reason']}", f"amux logs {properties['Id']}"
        )
    return unsaid


@ws.command()
@workspace_argument
@click.option("--allow", is_flag=True, help="Allow the command, here and in new worktrees of the repository.")
def setup(name: str, allow: bool) -> int:
    """Run the set-up command that the configuration has for the workspace's repository."""
    client = Client()
    where = client.find_workspace(name)
    misconfigured.warn(client)
    return _set_up(client, where, client.workspace_properties(where), allow)


@ws.command()
@click.option("--json", "as_json", is_flag=True, help="A list of objects, with what git status says of each.")
def ls(as_json: bool) -> None:
    """List the workspaces, with what git says of each.

    AHEAD and BEHIND are against the upstream or, without one, the base; SESSIONS is how many are live in it,
    of how many slots.
    """
    standing.show_all(as_json)


@ws.command()
@workspace_argument
@click.option("--json", "as_json", is_flag=True, help="One object, with every property.")
def show(name: str, as_json: bool) -> None:
    """Tell everything about a workspace, and what its removal would throw away."""
    client = Client()
    where = client.find_workspace(name)
    found = client.workspace_properties(where)
    found["Status"] = plain(client.workspace(where, "Status", patient=True)[0])
    if as_json:
        render.print_json(standing.properties_in_json(found))
        return
    needed = ("as", ["Id", "Name", *sessions.STATUS])
    inside = client.sessions(workspace=("s", found["Id"]), properties=needed)
    print("\n".join(standing.description(found, [session for _, session in inside])))


@ws.command()
@workspaces_argument
@click.option("-f", "--force", is_flag=True, help="Throw away what is in it; it says first what that is.")
@click.option(
    "--ignored",
    is_flag=True,
    help="Throw away what git ignores, and nothing else; it names that first.",
)
def rm(names: Sequence[str], force: bool, ignored: bool) -> int:
    """Remove workspaces and their worktrees, unless that would lose work.

    A directory that was given with --path stays where it is. A directory that git ignores and that a tool
    makes again, node_modules say, goes with the worktree, and is named. One whose directory is not there,
    unmounted or moved, is removed by force alone. With --force, commits can be had back from
    refs/amux/removed/ in the repository.
    """
    client = Client()
    code = 0
    with client.telling(_WAITS_TO_REMOVE):
        for name in dict.fromkeys(names):
            try:
                told = _remove(client, name, force, ignored)
            except RemoteError as problem:
                told = failures.tell(problem)
            code = code or told
    return code


def _remove(client: Client, name: str, force: bool, ignored: bool) -> int:
    where = client.find_workspace(name)
    found = client.workspace_properties(where)
    options = {"force": ("b", force), "ignored": ("b", ignored)}
    told: list[str] = []
    if force or ignored:
        asked = options | {"dry_run": ("b", True)}
        told = client.workspace(where, "Remove", "a{sv}", asked, patient=True)[0]
        for loss in told:
            print(harmless(f"{found['Name']}: throwing away {loss}"), flush=True)
    with _going_on(f"{found['Name']} may be removed all the same", "amux ws ls"):
        lost, kept = client.workspace(where, "Remove", "a{sv}", options, patient=True)
    # What goes without a word of force, or has come since it was asked what that would be.
    threw_away = [f"threw away {loss}" for loss in lost if loss not in told]
    removed = f"removed {found['Name']}"
    lines = [
        *(f"{found['Name']}: {loss}" for loss in threw_away),
        removed,
        *(f"  kept {what}" for what in kept),
    ]
    became = "; ".join([removed, *threw_away, *(f"kept {what}" for what in kept)])
    return done.tell(became, *map(harmless, lines))


def ensure(client: Client, name: str, create: bool) -> None:
    """For amux run: the workspace is there, or made and set up now if that is wanted."""
    if _is_there(client, name, may_lack=create):
        return
    client.subscribe()
    with client.telling(_WAITS_TO_ADD):
        made = _made_by_us(client, name)
    if made:
        where, found = made
        _tell_hook_failure(found)
        _set_up_for_command(client, where, found)


def _made_by_us(client: Client, name: str) -> tuple[str, Properties] | None:
    """None: another has made it meanwhile."""
    deadline = monotonic() + CHECKOUT
    while True:
        try:
            return make(client, name)
        except RemoteError as problem:
            if problem.name != PREFIX + "NameTaken" or monotonic() >= deadline:
                raise
        # Another makes it in this moment, which may still fail: then it is our turn.
        if _is_there(client, name, may_lack=True):
            return None
        client.tell_if_late()
        client.next_signal(_LOOK_AGAIN)


def _set_up_for_command(client: Client, where: str, found: Properties) -> None:
    try:
        _set_up_if_allowed(client, where, found, allow=False)
    except (Failure, RemoteError) as problem:
        failure = failures.explain(problem)
        failure.sentence += f"; {found['Name']} was made, and the command was not started"
        raise failure from None


def _is_there(client: Client, name: str, may_lack: bool) -> bool:
    try:
        where = client.find_workspace(name)
    except RemoteError as problem:
        if problem.name != PREFIX + "NoSuchWorkspace" or not may_lack:
            raise
        return False
    if not may_lack:
        return True
    # What is to be made may begin as the id of another does.
    found = client.workspace_properties(where)
    return name in (found["Name"], found["Id"])
