"""The one amuxd that looks after a state directory."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from amuxd import daemon


def test_one_that_has_not_yet_written_who_it_is_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serving(_: object) -> str:
        return ""

    monkeypatch.setattr(daemon, "_serving", serving)
    other = os.open(tmp_path / "amuxd.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    bus: Any = None

    async def become() -> int:
        # It ends while it is waited for.
        asyncio.get_running_loop().call_later(0.1, os.close, other)
        return await daemon._become_sole_keeper(tmp_path, bus)

    kept = asyncio.run(become())
    assert (tmp_path / "amuxd.lock").read_text() == f"{os.getpid()}\n"
    os.close(kept)
