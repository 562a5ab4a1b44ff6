"""What stands in the way of a session that comes back by itself, and passes: it comes then."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import repository
from standin_host import World, in_world
from test_comeback_rules import SLEEPER
from test_surroundings import KEEPER

from amuxd import comeback, conversations, learning
from amuxd.config import Settings, WorkspaceSettings
from amuxd.errors import LaunchFailed, WorkspaceBusy
from amuxd.hosts import LaunchRefused
from amuxd.records import ResumePolicy
from amuxd.registry import Entry
from amuxd.states import State
from amuxd.store import StoreError
from amuxd.workspaces.making import Asked, Maker
from amuxd.workspaces.repositories import Repositories

Story = Callable[[World, Entry, Path], Awaitable[None]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "RETRY_PAUSE", 0.01)


def with_suspended(tmp_path: Path, story: Story) -> None:
    """A session that is to come back, and the directory that its conversation is in."""

    async def told(world: World) -> None:
        home = make_home(tmp_path)
        entry = await world.create(
            replace(KEEPER, environment={"KEEPER": str(home)}), resume=ResumePolicy.AUTO
        )
        await world.runs.start(entry)
        (home / entry.state.conversation_id).write_text("something\n")
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        assert entry.state.said
        await story(world, entry, home)

    asyncio.run(in_world(tmp_path / "state", told))


def make_home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def move(directory: Path, to: Path) -> Path:
    return directory.rename(to)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "does not come back by itself" in m]


async def refused_often(world: World, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comes back only once it has been tried several times."""
    tried = 0
    begin_again = world.runs.begin_again

    async def counting(*arguments: object, **changes: object) -> None:
        nonlocal tried
        tried += 1
        await begin_again(*arguments, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(world.runs, "begin_again", counting)
    await comeback.bring_back(world.runs)
    await world.until(lambda: tried > 3)
    assert not entry.stays_down
    assert (entry.state.state, entry.state.run) == (State.SUSPENDED, 1)
    # Nothing of a run is there that has not begun.
    assert [path.name for path in world.store.directory(entry.id).joinpath("runs").iterdir()] == ["1"]


async def comes_back(world: World, entry: Entry) -> None:
    await world.until(lambda: entry.state.state is State.RUNNING)
    assert (entry.state.run, entry.state.auto_failures) == (2, 0)


def test_a_systemd_that_does_not_tell_its_environment_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World, entry: Entry, _home: Path) -> None:
        world.host.failing["environment"] = LaunchRefused("systemd does not tell")
        await refused_often(world, entry, monkeypatch)
        assert len(refusals(caplog)) == 1
        world.host.failing.clear()
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_home_that_does_not_answer_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, entry: Entry, _home: Path) -> None:
        answers = threading.Event()
        with monkeypatch.context() as hung:
            hung.setattr(learning, "DEADLINE", 0.01)
            hung.setattr(conversations, "why_lost", lambda *_: "" if answers.wait(20) else "late")
            await refused_often(world, entry, hung)
        answers.set()
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_home_that_is_not_mounted_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, entry: Entry, home: Path) -> None:
        away = move(home, tmp_path / "away")
        await refused_often(world, entry, monkeypatch)
        move(away, home)
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_worktree_that_is_not_mounted_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is mounted there is an empty directory until then."""

    async def story(world: World) -> None:
        trees = tmp_path / "trees"
        world.runs.configure(Settings(workspaces=WorkspaceSettings(trees)))
        repo = repository(tmp_path / "code")
        maker = Maker(world.runs, world.workspaces, Repositories())
        made = await maker.add(Asked("fix", repository=str(repo)))
        entry = await world.create(None, "sleep", "1000", resume=ResumePolicy.AUTO, workspace_id=made.id)
        await world.runs.start(entry)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        directory = Path(made.directory)
        away = move(directory, tmp_path / "away")
        empty = move(make_home(tmp_path), directory)
        await refused_often(world, entry, monkeypatch)
        move(empty, tmp_path / "empty")
        move(away, directory)
        await comes_back(world, entry)

    asyncio.run(in_world(tmp_path / "state", story))


@pytest.mark.parametrize("disk_refuses", [False, True])
def test_what_is_lost_is_given_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, disk_refuses: bool
) -> None:
    monkeypatch.setattr(comeback, "MOUNTED", 0.05)

    async def story(world: World, entry: Entry, home: Path) -> None:
        waits = f"amuxd was stopped; {comeback.COMES_BACK} once / is there"
        await world.supervisor.amend(entry, "Reason", reason=waits)
        change, refused = world.store.change, 0

        def full(*arguments: Any) -> None:
            nonlocal refused
            if disk_refuses and not refused:
                refused += 1
                raise StoreError("No space left on device")
            change(*arguments)

        monkeypatch.setattr(world.store, "change", full)
        move(home, tmp_path / "away")
        await comeback.bring_back(world.runs)
        await world.until(lambda: entry.stays_down)
        assert refused == disk_refuses
        assert (entry.state.state, entry.state.run) == (State.SUSPENDED, 1)
        why = f"{comeback.NOT_RESUMED}: nothing is kept in {home} of its conversation"
        assert entry.state.reason == f"amuxd was stopped; {why} {entry.state.conversation_id}"
        assert len(refusals(caplog)) == len([m for m in caplog.messages if why in m]) == 1
        await world.until(lambda: not [t for t in world.supervisor._tasks if "_once_that" in repr(t)])

    with_suspended(tmp_path, story)


def test_one_that_could_not_be_looked_at_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, entry: Entry, _home: Path) -> None:
        entry.looked_in_vain = True
        await refused_often(world, entry, monkeypatch)
        entry.looked_in_vain = False
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_workspace_that_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    @contextlib.asynccontextmanager
    async def closed(*_: object) -> AsyncIterator[bool]:
        nonlocal tried
        tried += 1
        raise WorkspaceBusy("the workspace here is being removed")
        yield

    async def story(world: World, entry: Entry, _home: Path) -> None:
        with monkeypatch.context() as removing:
            removing.setattr(world.runs.places, "slot", closed)
            await comeback.bring_back(world.runs)
            await world.until(lambda: tried > 3)
            assert not entry.stays_down
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_home_that_hangs_holds_up_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    asked = 0

    def hang(*_: object) -> str:
        nonlocal asked
        asked += 1
        return "" if answers.wait(30) else "late"

    async def story(world: World, entry: Entry, _home: Path) -> None:
        with monkeypatch.context() as hung:
            hung.setattr(learning, "DEADLINE", 0.01)
            hung.setattr(conversations, "why_lost", hang)
            await refused_often(world, entry, hung)
            assert asked == 1
            answers.set()
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_those_that_waited_are_few_at_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "AT_ONCE", 1)
    beginning = most = 0
    later = asyncio.Event()

    async def look(_entry: Entry) -> bool:
        return later.is_set()

    async def story(world: World, entry: Entry, _home: Path) -> None:
        begin_again = world.runs.begin_again

        async def counting(*arguments: object, **changes: object) -> None:
            nonlocal beginning, most
            beginning += 1
            most = max(most, beginning)
            # The others are woken before it goes on.
            await asyncio.sleep(0.1)
            await begin_again(*arguments, **changes)  # type: ignore[arg-type]
            beginning -= 1

        others = [await world.create(SLEEPER, resume=ResumePolicy.AUTO) for _ in range(2)]
        for other in others:
            await world.runs.start(other)
        await world.runs.suspend("amuxd was stopped")
        for other in others:
            world.runs.homes.leave(other)
        monkeypatch.setattr(world.runs, "begin_again", counting)
        monkeypatch.setattr(world.runs.places, "look", look)
        await comeback.bring_back(world.runs)
        later.set()
        for each in (entry, *others):
            await comes_back(world, each)
        assert most == 1

    with_suspended(tmp_path, story)


def test_a_full_disk_is_complained_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    def full(*_: object) -> Path:
        nonlocal tried
        tried += 1
        raise StoreError("the run could not be prepared: No space left on device")

    async def story(world: World, entry: Entry, _home: Path) -> None:
        with monkeypatch.context() as refusing:
            refusing.setattr(world.store, "prepare_run", full)
            await comeback.bring_back(world.runs)
            await world.until(lambda: tried > 3)
            assert len(refusals(caplog)) == 1
        await comes_back(world, entry)

    with caplog.at_level(logging.ERROR):
        with_suspended(tmp_path, story)


def test_conversations_that_cannot_be_read_keep_nobody_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, reading = threading.Event(), threading.Semaphore(0)

    def hang(*_: object) -> None:
        reading.release()
        answers.wait(30)

    async def story(world: World, entry: Entry, _home: Path) -> None:
        monkeypatch.setattr(conversations, "plan", hang)
        # As many as there are threads for the disk.
        launches = [asyncio.create_task(world.runs.launch(entry, True)) for _ in range(8)]
        for _ in launches:
            assert await asyncio.to_thread(reading.acquire, timeout=60)
        try:
            async with asyncio.timeout(15):
                await world.supervisor.amend(entry, reason="written meanwhile")
        finally:
            answers.set()
            await asyncio.gather(*launches, return_exceptions=True)

    with_suspended(tmp_path, story)


def test_one_whose_conversation_cannot_be_read_in_time_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    async def story(world: World, entry: Entry, _home: Path) -> None:
        monkeypatch.setattr(conversations, "PLANNED", 0.01)
        monkeypatch.setattr(conversations, "plan", lambda *_: answers.wait(20))
        with pytest.raises(LaunchFailed, match=r"its conversation could not be read within 0 s$"):
            await world.runs.resume(entry)
        answers.set()
        assert entry.state.state is State.FAILED

    with_suspended(tmp_path, story)


@pytest.mark.parametrize("fault", [LaunchRefused("it could not be read"), OSError("Input/output error")])
def test_what_is_kept_cannot_be_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise fault

    async def story(world: World, entry: Entry, _home: Path) -> None:
        with monkeypatch.context() as unreadable:
            unreadable.setattr(conversations, "plan", refuse)
            await refused_often(world, entry, monkeypatch)
        await comes_back(world, entry)

    with_suspended(tmp_path, story)


def test_a_program_that_nobody_has_is_given_up_and_waited_for_again_on_the_next_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World, entry: Entry, _home: Path) -> None:
        world.host.failing["check"] = LaunchRefused("no such program: keeper")
        with monkeypatch.context() as mounted_soon:
            mounted_soon.setattr(comeback, "MOUNTED", 0.05)
            await comeback.bring_back(world.runs)
            await world.until(lambda: entry.stays_down)
        assert (entry.state.state, entry.state.run) == (State.SUSPENDED, 1)
        assert entry.state.reason == f"amuxd was stopped; {comeback.NOT_RESUMED}: no such program: keeper"
        assert len(refusals(caplog)) == 1
        entry.stays_down = False
        await refused_often(world, entry, monkeypatch)
        world.host.failing.clear()
        await comes_back(world, entry)

    with_suspended(tmp_path, story)
