"""A certificate that a full disk held up."""

import asyncio
import threading
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import supervisor
from amuxd.records import Certificate
from amuxd.states import State
from amuxd.store import StoreError


def test_it_is_not_taken_for_that_of_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RETRY_PAUSE", 0.01)
    refused, reading, go_on, certified = (threading.Event() for _ in range(4))
    certify = None

    def refuse_once(certificate: Certificate) -> None:
        if not refused.is_set():
            refused.set()
            monkeypatch.setattr(supervisor, "last_lines", slowly)
            raise StoreError("it could not be certified: No space left on device")
        assert certify
        certify(certificate)
        certified.set()

    def slowly(*_: object) -> list[str]:
        reading.set()
        assert go_on.wait(30)
        return []

    async def story(world: World) -> None:
        nonlocal certify
        certify = world.store.certify
        monkeypatch.setattr(world.store, "certify", refuse_once)
        script = tmp_path / "script"
        script.write_text("true")
        entry = await world.create(None, "sh", str(script))
        await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.COMPLETED)
        assert await asyncio.to_thread(reading.wait, 20)
        script.write_text("exec sleep 1000")
        await world.runs.restart(entry)
        go_on.set()
        assert await asyncio.to_thread(certified.wait, 20)
        async with entry.writing:
            assert (entry.state.run, entry.certificate) == (2, None)
        written = world.store.certificate(entry.id, 1)
        assert written
        assert written.complete

    asyncio.run(in_world(tmp_path, story))
