"""What is kept however old it is."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd import cleaning, comeback, processes, states
from amuxd.agents import Agent
from amuxd.boots import Boots
from amuxd.cleaning import clean
from amuxd.errors import AmuxError, Busy, ConfigurationError
from amuxd.hosts import Finding, Unknown
from amuxd.reconcile import reconcile
from amuxd.records import ResumePolicy, RunState, Session
from amuxd.registry import Entry
from amuxd.retention import Retention
from amuxd.states import State
from amuxd.supervisor import AMUXD, now


@pytest.mark.parametrize("dry_run", [True, False])
def test_one_that_may_be_alive(tmp_path: Path, dry_run: bool) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        command = entry.state.command
        assert command
        await world.supervisor.apply(entry, states.DaemonStopping("amuxd was stopped"), AMUXD)
        world.runs.homes.leave(entry)
        entry.state = replace(entry.state, state_changed_at=1, uptime_at_change=0)

        async def find(session: Session, state: RunState) -> Finding:
            return Unknown("its terminal does not answer")

        world.host.find = find  # type: ignore[method-assign]
        world.host.has_terminal = lambda session_id: True  # type: ignore[method-assign]
        await reconcile(world.runs)
        assert await clean(world.runs, dry_run) == []
        assert world.supervisor.registry.get(entry.id) is entry
        assert not processes.is_dying(command)
        entry.looked_in_vain = False
        assert await clean(world.runs, dry_run) == [entry.id]

    asyncio.run(in_world(tmp_path, story))


TALKER = Agent("talker", ("sleep", "1000"), resume=("sleep", "2000"))


@pytest.mark.parametrize("decided_by", ["failures", "profile"])
def test_one_that_was_to_come_back_is_kept_until_that_is_decided(tmp_path: Path, decided_by: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(TALKER, resume=ResumePolicy.AUTO)
        await world.runs.start(entry)
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)
        entry.state = replace(entry.state, state_changed_at=1, uptime_at_change=0)
        assert await clean(world.runs, dry_run=True) == []
        if decided_by == "failures":
            entry.state = replace(
                entry.state, auto_run=1, auto_failures=comeback.MOST_FAILURES, cut_short=True
            )
        else:
            entry.agent = None
        # The disk knows nothing of what the test says of it.
        world.store.change = lambda *_: None  # type: ignore[method-assign]
        assert await clean(world.runs, dry_run=True) == []
        await comeback.bring_back(world.runs)
        assert entry.state.run == 1
        assert await clean(world.runs, dry_run=True) == [entry.id]

    asyncio.run(in_world(tmp_path, story))


def test_a_clock_that_is_set_forward_makes_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = 3 * 24 * 3600 * 1_000_000

    async def story(world: World) -> None:
        entry = await world.create(None, "false")
        with contextlib.suppress(AmuxError):
            await world.runs.start(entry)
        await world.until(lambda: entry.state.state is State.FAILED)
        monkeypatch.setattr(cleaning, "now", lambda: now() + days)
        assert await clean(world.runs, dry_run=True) == []
        monkeypatch.setattr(cleaning, "uptime", lambda: processes.uptime() + days)
        assert await clean(world.runs, dry_run=True) == [entry.id]
        # What rested before this boot did so by the one clock that it has.
        monkeypatch.setattr(cleaning, "uptime", processes.uptime)
        entry.state = replace(entry.state, boot_id="another")
        assert await clean(world.runs, dry_run=True) == [entry.id]

    asyncio.run(in_world(tmp_path, story))


DAY = 24 * 3600 * 1_000_000


async def at_rest(
    world: World,
    agent: Agent | None = None,
    days: float = 99,
    resume: ResumePolicy = ResumePolicy.MANUAL,
    **known: Any,
) -> Entry:
    """One that failed as many days ago, or came to rest as is said."""
    entry = await world.create(agent, "true", resume=resume)
    since = int(now() - days * DAY)
    at = {"state_changed_at": since, "known_at": since, "uptime_at_change": 0}
    entry.state = replace(entry.state, **{"state": State.FAILED, **at, **known})
    return entry


async def is_kept(world: World, entry: Entry) -> bool:
    return entry.id not in await clean(world.runs, dry_run=True)


async def members(session_id: str) -> list[int]:
    return [1]


async def cannot_be_asked(session_id: str) -> list[int]:
    raise OSError("no answer")


def has_terminal(world: World, of: Callable[..., Coroutine[Any, Any, list[int]]]) -> None:
    world.host.has_terminal = lambda session_id: True  # type: ignore[method-assign]
    world.host.members = of  # type: ignore[method-assign]


KEEPS: dict[str, Callable[[World, Entry], Any]] = {
    "it is not written down": lambda _, entry: entry.unwritten.update({1: "the disk is full"}),
    "somebody looks at it": lambda _, entry: setattr(entry, "attached", 1),
    "its terminal is there": lambda _, entry: setattr(entry, "keeps_terminal", True),
    "its shell is open": lambda _, entry: setattr(entry, "shell_open", True),
    "it could not be looked at": lambda _, entry: entry.miss("no answer"),
    "something lives in its terminal": lambda world, _: has_terminal(world, members),
    "its terminal cannot be asked": lambda world, _: has_terminal(world, cannot_be_asked),
    "nobody could have seen it": lambda world, _: setattr(world.runs, "boots", Boots(began=now())),
    "it happened a moment ago": lambda _, entry: came(entry, state_changed_at=now()),
    "it was found out a moment ago": lambda _, entry: came(entry, known_at=now()),
}


def came(entry: Entry, **known: Any) -> None:
    entry.state = replace(entry.state, **known)


@pytest.mark.parametrize("why", KEEPS)
def test_what_keeps_it(tmp_path: Path, why: str) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world)
        assert not await is_kept(world, entry)
        KEEPS[why](world, entry)
        assert await is_kept(world, entry)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("why", ["its terminal is there", "it is not written down"])
def test_what_keeps_it_may_be_clear_only_once_it_has_settled(tmp_path: Path, why: str) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world)
        asked = asyncio.Event()

        async def settle() -> None:
            await asked.wait()
            KEEPS[why](world, entry)

        entry.settling = asyncio.create_task(settle())
        cleaning_up = asyncio.create_task(clean(world.runs, dry_run=True))
        await asyncio.sleep(0)
        asked.set()
        assert await cleaning_up == []

    asyncio.run(in_world(tmp_path, story))


FAILED_ANEW: dict[str, Any] = {"resuming": True, "conversation_id": "talk"}
FAILED_BY_ITSELF = {"auto_run": 1, "auto_boot": "boot"}
AUTO = ResumePolicy.AUTO


@pytest.mark.parametrize(
    ("agent", "resume", "known", "kept_days"),
    [
        (None, ResumePolicy.MANUAL, {}, 1),
        (TALKER, ResumePolicy.MANUAL, {}, 1),
        # What it was to go on with is still there.
        (TALKER, ResumePolicy.MANUAL, FAILED_ANEW, 30),
        (TALKER, ResumePolicy.MANUAL, {**FAILED_ANEW, "said": True}, 30),
        # Or there is nothing to go on with.
        (TALKER, ResumePolicy.MANUAL, {**FAILED_ANEW, "said": False}, 1),
        (Agent("talker", ("x",)), ResumePolicy.MANUAL, FAILED_ANEW, 1),
        (None, ResumePolicy.MANUAL, {"state": State.SUSPENDED}, 7),
        (TALKER, ResumePolicy.MANUAL, {"state": State.SUSPENDED}, 30),
        (None, AUTO, {"state": State.SUSPENDED, "auto_boot": "boot"}, 7),
        # The next boot tries it again.
        (None, AUTO, FAILED_BY_ITSELF, 7),
        (TALKER, AUTO, FAILED_BY_ITSELF, 30),
        (None, AUTO, {**FAILED_BY_ITSELF, "auto_failures": comeback.MOST_FAILURES}, 1),
        (None, AUTO, {**FAILED_BY_ITSELF, "auto_lasted": True}, 1),
        # A clock that was set back tells nothing of how long it rested.
        (None, ResumePolicy.MANUAL, {"uptime_at_change": processes.uptime() + DAY}, 1),
    ],
)
def test_for_how_many_days_it_is_kept(
    tmp_path: Path, agent: Agent | None, resume: ResumePolicy, known: dict[str, Any], kept_days: int
) -> None:
    async def story(world: World) -> None:
        kept = await at_rest(world, agent, kept_days - 0.1, resume, **known)
        over = await at_rest(world, agent, kept_days + 0.1, resume, **known)
        assert await clean(world.runs, dry_run=True) == [over.id]
        assert await is_kept(world, kept)

    asyncio.run(in_world(tmp_path, story))


def test_a_conversation_that_is_lost_keeps_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world, TALKER, 2, **FAILED_ANEW)
        assert await is_kept(world, entry)
        entry.found_lost = ("talk", "nothing is kept of it")
        assert not await is_kept(world, entry)

    asyncio.run(in_world(tmp_path, story))


def test_what_failed_to_go_on_is_kept_as_long_as_what_failed_where_that_is_longer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world, TALKER, **FAILED_ANEW)
        world.runs.settings = replace(world.runs.settings, retention=Retention(failed=None))
        assert await is_kept(world, entry)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_goes_while_it_cannot_be_read_what_is_to_be_kept(tmp_path: Path, dry_run: bool) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world)
        world.runs.settings = replace(world.runs.settings, error="a typo")
        with pytest.raises(ConfigurationError, match="a typo"):
            await clean(world.runs, dry_run)
        assert world.supervisor.registry.get(entry.id) is entry

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("meanwhile", ["used", "removed", "nothing"])
def test_what_happens_to_one_while_another_goes(tmp_path: Path, meanwhile: str) -> None:
    async def story(world: World) -> None:
        first, second = await at_rest(world), await at_rest(world)
        discard = world.runs.discard

        async def discard_slowly(entry: Entry) -> None:
            await discard(entry)
            if meanwhile == "used":
                second.attached = 1
            elif meanwhile == "removed" and entry is first:
                await discard(second)

        world.runs.discard = discard_slowly  # type: ignore[method-assign]
        gone = [first.id, second.id] if meanwhile == "nothing" else [first.id]
        assert await clean(world.runs, dry_run=False) == gone
        is_there = world.supervisor.registry.get(second.id) is second
        assert is_there == (meanwhile == "used")

    asyncio.run(in_world(tmp_path, story))


def test_one_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first, second = await at_rest(world), await at_rest(world)
        discard = world.runs.discard

        async def discard_others(entry: Entry) -> None:
            if entry is first:
                raise Busy("it lives")
            await discard(entry)

        world.runs.discard = discard_others  # type: ignore[method-assign]
        assert await clean(world.runs, dry_run=False) == [second.id]
        assert list(world.supervisor.registry) == [first]

    asyncio.run(in_world(tmp_path, story))


def test_who_only_asks_removes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await at_rest(world)
        assert await clean(world.runs, dry_run=True) == [entry.id]
        assert world.supervisor.registry.get(entry.id) is entry
        assert world.store.directory(entry.id).exists()
        assert await clean(world.runs, dry_run=False) == [entry.id]
        assert not world.store.directory(entry.id).exists()

    asyncio.run(in_world(tmp_path, story))
