"""What was measured, beside its floor and its goal."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

MB = 1_000_000
HEAD = ("what", "floor", "amux", "ratio", "goal", "met")


@dataclass(frozen=True)
class Row:
    what: str
    amux: str
    floor: str = ""
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        met = {True: "yes", False: "NO", None: ""}[self.met]
        return self.what, self.floor, self.amux, ratio, self.goal, met


class Floor(NamedTuple):
    name: str
    seconds: float


def against(what: str, floor: Floor, amux: float, at_most: float | None = None) -> Row:
    """The goal is a ratio."""
    ratio = amux / floor.seconds
    goal = "" if at_most is None else f"≤ {at_most:g} times"
    return Row(what, ms(amux), _said(floor), ratio, goal, None if at_most is None else ratio <= at_most)


def within(what: str, floor: Floor, amux: float, at_most: float) -> Row:
    """The goal is a time."""
    return Row(what, ms(amux), _said(floor), amux / floor.seconds, f"≤ {ms(at_most)}", amux <= at_most)


def beyond(what: str, floor: Floor, amux: float, at_most: float) -> Row:
    """The goal is a time more than the floor."""
    goal = f"≤ {ms(at_most)} more"
    return Row(what, ms(amux), _said(floor), amux / floor.seconds, goal, amux - floor.seconds <= at_most)


def _said(floor: Floor) -> str:
    return f"{ms(floor.seconds)} {floor.name}"


def processor(what: str, floor: float, amux: float, at_most: float) -> Row:
    """Each is a share of a core, as the goal is."""
    said = f"{_share(floor)} a bare loop that watches the same"
    return Row(what, f"{_share(amux)} of a core", said, amux / floor, f"≤ {at_most:.1%}", amux <= at_most)


def _share(share: float) -> str:
    return f"{share:.3%}"


def memory(what: str, amux: tuple[int, int], floor: tuple[int, int], at_most: int) -> Row:
    """Each is what is resident and its proportional share; the goal, in MB, is for all that is resident."""
    return Row(
        what,
        _megabytes(amux),
        _megabytes(floor),
        amux[0] / floor[0],
        f"≤ {at_most} MB",
        amux[0] <= at_most * MB,
    )


def _megabytes(sizes: tuple[int, int]) -> str:
    resident, share = sizes
    return f"{resident / MB:.1f} MB (PSS {share / MB:.1f})"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def table(rows: Iterable[Row]) -> list[str]:
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in lines]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    return sum(unicodedata.combining(character) == 0 for character in text)
