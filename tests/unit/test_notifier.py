"""What a notification is about may be over before its last line was read."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amuxd.bus.connection import Bus
from amuxd.notify import Notifier
from amuxd.records import RunState, Session
from amuxd.registry import Entry, Registry
from amuxd.runs import Runs
from amuxd.states import State, Transition


class Recording:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, *arguments: Any, **_options: Any) -> list[Any]:
        self.asked.append(arguments[3])
        return [[]] if arguments[3] == "GetCapabilities" else [7]


def leave_as_it_is(_registry: Registry, _entry: Entry) -> None:
    pass


def remove(registry: Registry, entry: Entry) -> None:
    registry.discard(entry)


def attach(_registry: Registry, entry: Entry) -> None:
    entry.attached = 1


@pytest.mark.parametrize(("meanwhile", "told"), [(leave_as_it_is, True), (remove, False), (attach, False)])
def test_what_is_over_by_then_is_not_told(
    tmp_path: Path, meanwhile: Callable[[Registry, Entry], None], told: bool
) -> None:
    async def main() -> list[str]:
        state = RunState("a", State.FAILED, 1, 1, 1, "boot", "exited with code 1")
        entry = Entry(Session("a", "a", ["false"], "/", 1), state)
        registry, tasks = Registry(), list[asyncio.Task[Any]]()
        registry.add(entry)

        async def on_disk(*_: object) -> list[str]:
            meanwhile(registry, entry)
            return []

        def spawn(work: Any) -> asyncio.Task[Any]:
            tasks.append(asyncio.ensure_future(work))
            return tasks[-1]

        store = SimpleNamespace(log=lambda *_: tmp_path / "output.log")
        supervisor = SimpleNamespace(registry=registry, store=store, on_disk=on_disk, spawn=spawn)
        bus, runs = Recording(), cast(Runs, SimpleNamespace(supervisor=supervisor))
        kept = tmp_path / "notifications.json"
        notifier = Notifier(cast(Bus, bus), runs, kept, frozenset({"failed"}), "amux", cast(Any, None))
        notifier.moved(entry, Transition(State.RUNNING, State.FAILED, "exited with code 1", 1))
        while tasks:
            await tasks.pop(0)
        return bus.asked

    assert ("Notify" in asyncio.run(main())) == told
