"""What is asked of a session just as the end of its run is told comes after all that follows the end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd.records import Process, Session
from amuxd.registry import Entry
from amuxd.states import State, Transition

LINGERS = ["sh", "-c", "echo line; read word; exit 3"]

Ask = Callable[[World, Entry], Awaitable[None]]


async def restart(world: World, entry: Entry) -> None:
    async def looked(entry: Entry) -> bool:
        """At once: what it finds is not what this is about."""
        return True

    world.runs.places.look = looked  # type: ignore[method-assign]
    await world.runs.restart(entry)


async def archive(world: World, entry: Entry) -> None:
    await world.runs.archive(entry)


async def remove(world: World, entry: Entry) -> None:
    await world.runs.remove(entry, force=True)


def end(world: World) -> None:
    process = world.host.processes[0]
    assert process.stdin
    process.stdin.close()


def ask_as_it_is_told(world: World, ask: Ask) -> list[asyncio.Task[None]]:
    asked: list[asyncio.Task[None]] = []
    moved = world.changes.moved

    def told(entry: Entry, transition: Transition) -> None:
        if transition.target is State.FAILED:
            asked.append(asyncio.get_running_loop().create_task(_ask(world, entry, ask)))
        moved(entry, transition)

    world.changes.moved = told  # type: ignore[method-assign]
    return asked


async def _ask(world: World, entry: Entry, ask: Ask) -> None:
    await ask(world, entry)


def note_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    steps: list[str] = []
    launch, certify = world.host.launch, world.store.certify

    async def drain(session_id: str, run: int, server: Process | None) -> None:
        await asyncio.sleep(0.05)
        steps.append(f"drained {run}")

    async def tear_down(session_id: str, at_once: bool = False) -> None:
        steps.append("torn down")

    async def launched(session: Session, run: int, keep_terminal: bool) -> Any:
        steps.append(f"launched {run}")
        return await launch(session, run, keep_terminal)

    def certified(certificate: Any) -> None:
        certify(certificate)
        assert certificate.complete
        assert certificate.last_lines == ["line"]
        steps.append(f"certified {certificate.run}")

    monkeypatch.setattr(world.host, "drain", drain)
    monkeypatch.setattr(world.host, "tear_down", tear_down)
    monkeypatch.setattr(world.host, "launch", launched)
    monkeypatch.setattr(world.store, "certify", certified)
    return steps


@pytest.mark.parametrize("ask", [restart, archive, remove])
def test_it_waits_for_all_that_follows_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    async def story(world: World) -> None:
        steps = note_steps(world, monkeypatch)
        entry = await world.create(None, *LINGERS)
        await world.runs.start(entry)
        asked = ask_as_it_is_told(world, ask)
        end(world)
        await world.until(lambda: asked)
        await asked[0]
        followed = ["launched 1", "drained 1", "torn down", "certified 1"]
        assert steps == ([*followed, "launched 2"] if ask is restart else followed)
        if ask is not remove:
            certificate = world.store.certificate(entry.id, 1)
            assert certificate
            assert certificate.complete

    asyncio.run(in_world(tmp_path, story))
