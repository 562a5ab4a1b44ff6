"""The desktop's server where there is none, and output that is not there."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from amuxd.attending import Output
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


def test_output_that_is_not_there_calls_nobody(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    output = Output(log, 0)
    assert output.listen() == []
    log.write_bytes(b"\x1b]9;half")
    assert output.listen() == []
    log.rename(tmp_path / "output.log.1")
    assert output.listen() == []
    log.write_bytes(b" and half\x07")
    assert output.listen() == ["half and half"]
