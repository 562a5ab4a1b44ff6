"""The argument that names a session, completed in the shell."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from amuxd.cli.client import Client

    try:
        only = {"properties": ("as", ["Id", "Name", "State"]), "archived": ("b", True)}
        sessions = [properties for _, properties in Client(start=False, timeout=2).sessions(**only)]
    except Exception:
        # There is nowhere to complain to while somebody types.
        return []
    return [
        CompletionItem(word, help=session["State"])
        for key in ("Name", "Id")
        for session in sessions
        if (word := session[key]).startswith(incomplete) and (key == "Name" or incomplete)
    ]


def session_argument(function: _F) -> _F:
    return click.argument("name", metavar="S", shell_complete=_complete)(function)


def sessions_argument(function: _F) -> _F:
    return click.argument("names", metavar="S...", nargs=-1, required=True, shell_complete=_complete)(
        function
    )
