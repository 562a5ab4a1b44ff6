"""What a notification is about may be over before its last line was read."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amuxd.bus.connection import Bus
from amuxd.logs import last_lines
from amuxd.notify import Notifier
from amuxd.records import RunState, Session
from amuxd.registry import Entry, Registry
from amuxd.runs import Runs
from amuxd.states import State, Transition
from amuxd.supervisor import Supervisor


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


def answer(_registry: Registry, entry: Entry) -> None:
    entry.state = replace(entry.state, attention="")


def begin_again(_registry: Registry, entry: Entry) -> None:
    entry.state = replace(entry.state, run=2)


def fail(notifier: Notifier, entry: Entry) -> None:
    entry.state = replace(entry.state, state=State.FAILED)
    notifier.moved(entry, Transition(State.RUNNING, State.FAILED, "exited with code 1", 1))


def wait(notifier: Notifier, entry: Entry) -> None:
    entry.state = replace(entry.state, attention="permission", attention_message="rm?")
    notifier.attention_changed(entry)


async def asked(
    kept: Path,
    happens: Callable[[Notifier, Entry], None],
    meanwhile: Callable[[Registry, Entry], None] = leave_as_it_is,
) -> list[str]:
    """What the desktop was asked, where something else happens while the last line is read."""
    state = RunState("a", State.RUNNING, 1, 1, 1, "boot", "exited with code 1")
    entry = Entry(Session("a", "a", ["false"], "/", 1), state)
    registry, tasks = Registry(), list[asyncio.Task[Any]]()
    registry.add(entry)

    async def on_disk(work: Callable[..., Any], *arguments: Any) -> Any:
        if work is last_lines:
            meanwhile(registry, entry)
        return work(*arguments)

    def spawn(work: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    store = SimpleNamespace(log=lambda *_: kept.with_name("output.log"))
    supervisor = SimpleNamespace(registry=registry, store=store, on_disk=on_disk, spawn=spawn)
    supervisor.last_lines = partial(Supervisor.last_lines, cast(Supervisor, supervisor))
    bus, runs = Recording(), cast(Runs, SimpleNamespace(supervisor=supervisor))
    wanted = frozenset({"failed", "attention"})
    notifier = Notifier(cast(Bus, bus), runs, kept, wanted, "amux", cast(Any, None))
    happens(notifier, entry)
    while tasks:
        await tasks.pop(0)
    return bus.asked


@pytest.mark.parametrize(
    ("happens", "meanwhile", "told"),
    [
        (fail, leave_as_it_is, True),
        (fail, remove, False),
        (fail, attach, False),
        (fail, begin_again, False),
        (wait, leave_as_it_is, True),
        (wait, remove, False),
        (wait, attach, False),
        (wait, begin_again, False),
        (wait, answer, False),
    ],
)
def test_what_is_over_by_then_is_not_told(
    tmp_path: Path,
    happens: Callable[[Notifier, Entry], None],
    meanwhile: Callable[[Registry, Entry], None],
    told: bool,
) -> None:
    assert ("Notify" in asyncio.run(asked(tmp_path / "kept", happens, meanwhile))) == told


def test_what_is_shown_is_kept_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "notifications.json"
    renamed = []
    rename = Path.rename

    def noted(self: Path, target: Path) -> Path:
        renamed.append((json.loads(self.read_text())["shown"], target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", noted)
    asyncio.run(asked(kept, wait))
    assert renamed[-1] == ({"a": [7, "attention"]}, kept)
    assert json.loads(kept.read_text())["shown"] == {"a": [7, "attention"]}


def test_it_is_shown_also_where_that_cannot_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert "Notify" in asyncio.run(asked(tmp_path / "missing" / "notifications.json", wait))
    assert "could not be kept" in caplog.text
