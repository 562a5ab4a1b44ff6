"""A next run that a disk refuses to begin leaves the session where it was, for good."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import files
from amuxd.errors import Internal
from amuxd.reconcile import reconcile
from amuxd.records import HistoryEntry, to_text
from amuxd.states import State
from amuxd.store import Known


def test_nothing_of_it_is_done_now_or_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = files.replace

    def refuse_to_begin(path: Path, text: str) -> None:
        if '"state":"starting"' in text:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.COMPLETED)
        told = world.store.history(entry.id)
        monkeypatch.setattr(files, "replace", refuse_to_begin)
        with pytest.raises(Internal, match=f"{entry.id} stays completed: .*No space left"):
            await world.runs.restart(entry)
        monkeypatch.setattr(files, "replace", write)
        found = world.store.load(entry.id)
        assert isinstance(found, Known)
        assert found.state == entry.state
        assert (entry.state.state, entry.state.run) == (State.COMPLETED, 1)
        await reconcile(world.runs)
        assert (entry.state.state, entry.state.run) == (State.COMPLETED, 1)
        assert world.store.history(entry.id) == told
        await world.runs.restart(entry)
        assert entry.state.run == 2

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_both_of_its_steps_are_in_the_history_whatever_was_lost(tmp_path: Path, kept: int) -> None:
    """As amuxd leaves it that is killed once the state is written."""

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        await world.runs.stop(entry, 5)
        before = world.store.history(entry.id)
        stopped, at = entry.state, entry.state.state_changed_at + 1
        created = HistoryEntry(at, 2, State.STOPPED, State.CREATED, "restart was asked for", "user")
        starting = HistoryEntry(at + 1, 2, State.CREATED, State.STARTING, "started", "user")
        left = replace(
            stopped,
            state=State.STARTING,
            previous=State.CREATED,
            run=2,
            end=None,
            state_changed_at=at + 1,
            reason="started",
            changed_for="user",
            step_before=created,
        )
        world.store.change(stopped, left, None)
        for line in (created, starting)[:kept]:
            files.append(world.store.directory(entry.id) / "history.jsonl", to_text(line))
        world.store.load(entry.id)
        assert world.store.history(entry.id) == [*before, created, starting]

    asyncio.run(in_world(tmp_path, story))
