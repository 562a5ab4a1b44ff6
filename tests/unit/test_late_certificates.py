"""A certificate that a full disk held up."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import past, supervisor
from amuxd.agents import CONVERSATION, Agent
from amuxd.records import Certificate
from amuxd.states import End, State
from amuxd.store import StoreError


def test_it_is_not_taken_for_that_of_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RETRY_PAUSE", 0.01)
    refused, reading, go_on, certified = (threading.Event() for _ in range(4))
    certify: Callable[[Certificate], None] | None = None

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


def is_complete(world: World, session_id: str, run: int) -> bool:
    written = world.store.certificate(session_id, run)
    return written is not None and written.complete


def test_it_is_written_also_where_the_next_run_has_begun_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RETRY_PAUSE", 0.05)

    async def story(world: World) -> None:
        certify = world.store.certify
        script = tmp_path / "script"
        script.write_text("echo line; exit 3")
        entry = await world.create(None, "sh", str(script))

        def refuse_at_first(certificate: Certificate) -> None:
            if entry.state.run == 1:
                raise StoreError("it could not be certified: No space left on device")
            certify(certificate)

        monkeypatch.setattr(world.store, "certify", refuse_at_first)
        await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.FAILED)
        script.write_text("exec sleep 1000")
        await world.runs.restart(entry)
        await world.until(lambda: is_complete(world, entry.id, 1))
        assert (entry.state.run, entry.certificate) == (2, None)
        written = world.store.certificate(entry.id, 1)
        assert written
        assert written.last_lines == ["line"]

    asyncio.run(in_world(tmp_path, story))


TALKER = Agent("talker", ("sh", "-c", "read word"), resume=("sleep", "1000", CONVERSATION))


@pytest.mark.parametrize("moment", ["while it is settled", "after that", "on a full disk"])
def test_it_names_the_conversation_that_was_learnt_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(supervisor, "RETRY_PAUSE", 0.01)

    async def story(world: World) -> None:
        entry = await world.start(TALKER)
        is_told, goes_on = asyncio.Event(), asyncio.Event()
        certify = world.store.certify

        async def drain(*_: object) -> None:
            is_told.set()
            await goes_on.wait()

        def refuse_once(certificate: Certificate) -> None:
            monkeypatch.setattr(world.store, "certify", certify)
            raise StoreError("it could not be certified: No space left on device")

        def named() -> str:
            written = world.store.certificate(entry.id, 1)
            return written.conversation_id if written and written.complete else ""

        monkeypatch.setattr(world.host, "drain", drain)
        world.host.processes[0].communicate()
        async with asyncio.timeout(20):
            await is_told.wait()
        if moment == "while it is settled":
            assert await world.runs.homes.learn_conversation(entry, "learnt late", 1)
        goes_on.set()
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        if moment != "while it is settled":
            assert named() != "learnt late"
            if moment == "on a full disk":
                monkeypatch.setattr(world.store, "certify", refuse_once)
            assert await world.runs.homes.learn_conversation(entry, "learnt late", 1)
        await world.until(lambda: named() == "learnt late")
        assert entry.certificate == world.store.certificate(entry.id, 1)

    asyncio.run(in_world(tmp_path, story))


def test_one_of_an_earlier_run_that_was_never_written_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sh", "-c", "echo line; exit 3")
        for run in (1, 2):
            await (world.runs.start(entry) if run == 1 else world.runs.restart(entry))
            await world.until(partial(is_complete, world, entry.id, run))
        left = Certificate(entry.id, 1, 2000, "exited with code 3", End(code=3))
        world.store.certify(left)
        told = await past.certificate(world.runs, entry, 1)
        assert told
        assert (told.complete, told.last_lines, told.end) == (True, ["line"], End(code=3))
        assert world.store.certificate(entry.id, 1) == told
        assert entry.certificate == world.store.certificate(entry.id, 2)

    asyncio.run(in_world(tmp_path, story))
