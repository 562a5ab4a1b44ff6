"""Quantities on the command line: what is wrong with one is a wrong use."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import click

from amuxd import quantities

Quantity = TypeVar("Quantity")


def _argument(parse: Callable[[str], Quantity]) -> Callable[[str], Quantity]:
    @wraps(parse)
    def read(text: str) -> Quantity:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


parse_duration = _argument(quantities.parse_duration)
parse_size = _argument(quantities.parse_size)
parse_percent = _argument(quantities.parse_percent)
parse_count = _argument(quantities.parse_count)
