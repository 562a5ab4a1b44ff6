"""Keys that end a wait: what is read just after what was none counts as well."""

import asyncio
import errno
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import attending, attention, inotify, processes
from amuxd.records import Process
from amuxd.supervisor import now

AFTERGLOW = 300_000


def test_a_key_soon_after_what_a_look_brought_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = tmp_path / "terminal"
    terminal.write_text("x")

    async def takes_only_keys(_: str) -> bool:
        return True

    async def story(world: World) -> None:
        async def passed() -> None:
            since = now()
            await world.until(lambda: now() > since + 1.3 * AFTERGLOW)

        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        monkeypatch.setattr(world.host, "takes_only_keys", takes_only_keys)
        entry.attached = 1
        heard = world.runs.homes.attending
        await heard.reported(entry, "permission", "may I?")
        await passed()
        heard.redrawn(entry)
        terminal.read_text()
        await passed()
        assert entry.state.attention
        terminal.read_text()
        await world.until(lambda: not entry.state.attention)

    monkeypatch.setattr(processes, "terminal_of", lambda _: terminal)
    monkeypatch.setattr(processes, "reads_lines", lambda _: False)
    for module in (attending, attention):
        monkeypatch.setattr(module, "AFTERGLOW", AFTERGLOW)
    asyncio.run(in_world(tmp_path / "state", story))


def test_a_terminal_that_cannot_be_looked_for_is_watched_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where amuxd may open no more files."""
    terminal = tmp_path / "terminal"
    terminal.write_text("x")
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def terminal_of(_: Process) -> Path:
        if refusals:
            raise refusals.pop()
        return terminal

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        heard = world.runs.homes.attending
        await heard.reported(entry, "permission", "may I?")
        assert not refusals
        await heard.reported(entry, "permission", "may I?")
        terminal.read_text()
        await world.until(lambda: not entry.state.attention)

    monkeypatch.setattr(processes, "terminal_of", terminal_of)
    monkeypatch.setattr(processes, "reads_lines", lambda _: True)
    asyncio.run(in_world(tmp_path / "state", story))


def test_an_answer_that_the_kernel_could_not_tell_of_ends_no_wait_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = tmp_path / "terminal"
    terminal.write_text("x")

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        await world.runs.homes.attending.reported(entry, "permission", "may I?")
        kernel = world.watch._inotify
        terminal.read_text()
        lost = kernel.read()
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "read", lambda: [inotify.Event(-1, inotify.OVERFLOW, "")])
            world.watch._file_events()
        assert inotify.ACCESS in {event.mask for event in lost}
        assert entry.state.attention
        terminal.read_text()
        await world.until(lambda: not entry.state.attention)

    monkeypatch.setattr(processes, "terminal_of", lambda _: terminal)
    monkeypatch.setattr(processes, "reads_lines", lambda _: True)
    asyncio.run(in_world(tmp_path / "state", story))
