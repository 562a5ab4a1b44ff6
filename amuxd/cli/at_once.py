"""The lists, asked for by their names alone: without click, which is most of what a command loads."""

import os
from collections.abc import Callable, Sequence

from amuxd.cli import way_out


def command(arguments: Sequence[str]) -> Callable[[], None] | None:
    """None: it takes click to know what is wanted."""
    if "_AMUX_COMPLETE" in os.environ:
        return None
    *names, last = arguments or [""]
    as_json = last == "--json"
    match [*names] if as_json else [*names, last]:
        case ["ls"]:
            return lambda: _sessions(as_json)
        case ["ws", "ls"]:
            return lambda: _workspaces(as_json)
    return None


def _sessions(as_json: bool) -> None:
    from amuxd.cli import overview

    way_out.loaded()
    overview.show(as_json=as_json)


def _workspaces(as_json: bool) -> None:
    from amuxd.cli import standing

    way_out.loaded()
    standing.show_all(as_json)
