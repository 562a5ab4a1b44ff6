"""A log is watched through its rotations."""

import asyncio
from pathlib import Path

import pytest

from amuxd import watch


def test_a_quiet_log_that_is_rotated_late_is_watched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BEAT", 0.01)
    log = tmp_path / "output.log"
    log.write_bytes(b"full")

    async def main() -> None:
        sizes: asyncio.Queue[int] = asyncio.Queue()
        watching = watch.Watch()

        async def quiet_at(size: int) -> None:
            assert await asyncio.wait_for(sizes.get(), 20) == size
            while watching._busy:  # noqa: ASYNC110
                await asyncio.sleep(watch.BEAT)

        watching.log("a", log, lambda at, hash: sizes.put_nowait(log.stat().st_size))
        await quiet_at(4)
        log.rename(tmp_path / "output.log.1")
        log.write_bytes(b"")
        await quiet_at(0)
        with log.open("ab") as more:
            more.write(b"on")
        await quiet_at(2)
        watching.close()

    asyncio.run(main())


def test_what_is_printed_after_a_quiet_time_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BEAT", 1000.0)
    log = tmp_path / "output.log"
    log.touch()

    async def main() -> None:
        told = asyncio.Event()
        watching = watch.Watch()
        watching.log("a", log, lambda at, hash: told.set())
        log.write_bytes(b"printed")
        await asyncio.wait_for(told.wait(), 20)
        watching.close()

    asyncio.run(main())
