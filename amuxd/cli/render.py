"""Tables and colours, for people and for pipes."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from amuxd.cli.text import cut, harmless, padded, width

_GAP = "  "
_NARROWEST = 8
_COLOURS = {
    "running": "32",
    "starting": "33",
    "stopping": "33",
    "stale": "33",
    "suspended": "33",
    "failed": "31",
    "orphaned": "31",
    "completed": "2",
    "stopped": "2",
    "archived": "2",
}


def is_terminal() -> bool:
    return sys.stdout.isatty()


def has_colour() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def terminal_size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        size = os.terminal_size((0, 0))
    # A terminal that nobody told its size says 0.
    return os.terminal_size((size.columns or 80, size.lines or 24))


def coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colour() else text


def state_colour(status: str) -> str:
    if "(waiting" in status:
        return "1;35"
    return _COLOURS.get(status.partition(" ")[0], "")


class Table:
    """Where the terminal is narrow columns give way, the first one named first: those in `yielding` are cut,
    then those in `dropped` are left out, and where even that is not enough the details in `last` are cut.
    """

    def __init__(
        self,
        columns: Sequence[str],
        yielding: Sequence[str] = (),
        dropped: Sequence[str] = (),
        last: str = "",
        colour_of: dict[str, Callable[[str], str]] | None = None,
    ) -> None:
        self._columns = columns
        self._yielding = yielding
        self._dropped = dropped
        self._last = last
        self._colour_of = colour_of or {}
        self._rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        self._rows.append([harmless(cell) for cell in cells])

    def lines(self) -> list[str]:
        return self._for_people() if is_terminal() else self._for_programs()

    def _for_programs(self) -> list[str]:
        """Tabs between columns, which no cell can hold, and a dash for nothing: cut and awk see columns."""
        return ["\t".join(cell or "-" for cell in row) for row in [list(self._columns), *self._rows]]

    def _for_people(self) -> list[str]:
        widths = {
            name: max(width(name), *(width(row[at]) for row in self._rows))
            for at, name in enumerate(self._columns)
            if any(row[at] for row in self._rows)
        }
        self._narrow(widths)
        shown = [at for at, name in enumerate(self._columns) if name in widths]
        head = [self._columns[at] for at in shown]
        rows = [[row[at] for at in shown] for row in self._rows]
        colour = has_colour()
        lines = [_joined(head, list(widths.values()), ["1"] * len(head) if colour else [])]
        for row in rows:
            colours = [
                self._colour_of.get(name, _no_colour)(cell) for name, cell in zip(head, row, strict=True)
            ]
            lines.append(_joined(row, list(widths.values()), colours if colour else []))
        return lines

    def _narrow(self, widths: dict[str, int]) -> None:
        wanted = dict(widths)
        for name in filter(widths.__contains__, self._yielding):
            widths[name] -= min(max(0, _surplus(widths)), max(0, widths[name] - _NARROWEST))
        for name in self._dropped:
            if _surplus(widths) > 0:
                widths.pop(name, None)
        if self._last in widths:
            # The first word says what no reader must miss.
            at = self._columns.index(self._last)
            least = max(width(row[at].partition(" ")[0]) for row in self._rows) + 1
            widths[self._last] -= min(max(0, _surplus(widths)), max(0, widths[self._last] - least))
        for name in reversed([name for name in self._yielding if name in widths]):
            # What was left out may have been wider than it had to be.
            widths[name] += min(max(0, -_surplus(widths)), wanted[name] - widths[name])


def _surplus(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - terminal_size().columns


def _no_colour(_cell: str) -> str:
    return ""


def _joined(cells: list[str], widths: list[int], colours: list[str]) -> str:
    last = len(cells) - 1
    shown = []
    for at, cell in enumerate(cells):
        text = cut(cell, widths[at])
        text = text if at == last else padded(text, widths[at])
        shown.append(f"\x1b[{colours[at]}m{text}\x1b[0m" if colours and colours[at] else text)
    return _GAP.join(shown)


def print_json(value: Any, indent: int | None = 2) -> None:
    import json

    # Not ASCII alone: an emoji in a name is as readable here as it is in the list.
    print(json.dumps(value, indent=indent, ensure_ascii=False))
