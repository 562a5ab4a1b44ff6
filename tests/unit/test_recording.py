"""Who takes down the output: what is in the way of that is told once, and tried again without haste."""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import processes, recording
from amuxd.hosts import LoggerMissing
from amuxd.records import Process


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == recording.__name__]


def test_what_is_in_the_way_is_told_once_as_long_as_it_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "RETRY_PAUSE", 0.001)
    reasons = ["no room", "no room", "no room", "no process", "no process", "no room"]

    async def story(world: World) -> None:
        left, over = list(reasons), asyncio.Event()

        async def missing(session_id: str, run: int, server: Process) -> Process | None:
            if left:
                raise LoggerMissing(left.pop(0))
            over.set()
            return None

        monkeypatch.setattr(world.host, "logger", missing)
        entry = await world.create(None, "sleep", "infinity")
        await world.runs.start(entry)
        await asyncio.wait_for(over.wait(), 20)

    with caplog.at_level(logging.WARNING):
        asyncio.run(in_world(tmp_path, story))
    told = [message.rpartition(": ")[2] for message in warnings(caplog)]
    assert told == ["no room", "no process", "no room"]


def test_one_that_cannot_be_watched_is_tried_again_without_haste(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where amuxd may open no more files."""
    refusals, pause = 3, 0.05
    monkeypatch.setattr(recording, "RETRY_PAUSE", pause)
    open_process = processes.open_process
    myself = processes.identify(os.getpid())

    def refused(process: Process) -> int | None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_process(process)

    async def story(world: World) -> None:
        watched = asyncio.Event()

        async def present(session_id: str, run: int, server: Process) -> Process | None:
            return myself

        def watch(pidfd: int, ended: Callable[[], None]) -> None:
            if refusals < 0:
                watched.set()

        entry = await world.create(None, "sleep", "infinity")
        monkeypatch.setattr(world.host, "logger", present)
        monkeypatch.setattr(world.watch, "process", watch)
        monkeypatch.setattr(processes, "open_process", refused)
        began = time.monotonic()
        await world.runs.start(entry)
        await asyncio.wait_for(watched.wait(), 20)
        assert time.monotonic() - began >= 3 * pause

    with caplog.at_level(logging.WARNING):
        asyncio.run(in_world(tmp_path, story))
    [told] = warnings(caplog)
    assert "cannot be watched now: [Errno 24] Too many open files" in told
