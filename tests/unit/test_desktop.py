"""The desktop's server where there is none."""

import asyncio
from typing import Any, cast

import pytest

from amuxd.board import NORMAL, Note
from amuxd.bus.connection import Bus, BusError, BusTimeout
from amuxd.desktop import Desktop

NOTE = Note("failed", "a", "a failed", "why", NORMAL)


class Refusing:
    def __init__(self, error: BusError) -> None:
        self._error = error
        self.asked = 0

    async def add_match(self, *_: object) -> None:
        return

    async def call(self, *_arguments: Any, **_options: Any) -> list[Any]:
        self.asked += 1
        raise self._error


@pytest.mark.parametrize(("error", "asked"), [(BusError("x", "no"), 3), (BusTimeout("slow"), 2)])
def test_a_server_that_refuses_or_hangs_costs_a_notification_and_nothing_else(
    error: BusError, asked: int
) -> None:
    async def main() -> None:
        bus = Refusing(error)
        desktop = Desktop(cast(Bus, bus), lambda *_: None, lambda _: None, lambda: None)
        await desktop.begin()
        assert desktop.owner == ""
        assert await desktop.show(NOTE, 0) == 0
        await desktop.close(7)
        # Asked for its owner, then for a notification; after it hung it was left alone.
        assert bus.asked == asked

    asyncio.run(main())
