"""What names something: never empty, and completed in the shell."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from amuxd.cli.client import Client, Properties

_F = TypeVar("_F", bound=Callable[..., Any])


def not_empty(text: str) -> str:
    """For an option: a variable that is not set, in a script, is not one that was not given."""
    if not text:
        raise click.BadParameter("it must not be empty")
    return text


def _complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    return _completed(incomplete, _sessions, "State")


def _complete_workspace(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    return _completed(incomplete, _workspaces, "Directory")


def _sessions(client: "Client") -> list["Properties"]:
    only = {"properties": ("as", ["Id", "Name", "State"]), "archived": ("b", True)}
    return [properties for _, properties in client.sessions(**only)]


def _workspaces(client: "Client") -> list["Properties"]:
    return client.workspaces(properties=("as", ["Id", "Name", "Directory"]))


def _completed(incomplete: str, ask: Callable[["Client"], list["Properties"]], told: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from amuxd.cli.client import Client

    try:
        found = ask(Client(start=False, timeout=2))
    except Exception:
        # There is nowhere to complain to while somebody types.
        return []
    return [
        CompletionItem(word, help=properties[told])
        for key in ("Name", "Id")
        for properties in found
        if (word := properties[key]).startswith(incomplete) and (key == "Name" or incomplete)
    ]


def session_argument(function: _F) -> _F:
    return click.argument("name", metavar="S", shell_complete=_complete_session)(function)


def sessions_argument(function: _F) -> _F:
    return click.argument("names", metavar="S...", nargs=-1, required=True, shell_complete=_complete_session)(
        function
    )


def workspace_argument(function: _F) -> _F:
    return click.argument("name", metavar="W", shell_complete=_complete_workspace)(function)


def workspaces_argument(function: _F) -> _F:
    return click.argument(
        "names", metavar="W...", nargs=-1, required=True, shell_complete=_complete_workspace
    )(function)


def workspace_option(help: str) -> Callable[[_F], _F]:
    return click.option(
        "-w", "--workspace", metavar="W", type=not_empty, shell_complete=_complete_workspace, help=help
    )
