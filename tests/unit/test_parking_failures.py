"""Parking where something else fails, and its one timer."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd import attention, parking, registry, terminals
from amuxd import supervisor as supervising
from amuxd.agents import Agent, OnExit
from amuxd.cleaning import clean
from amuxd.config import Settings
from amuxd.errors import AmuxError, Busy, Internal, InvalidTransition, LaunchFailed
from amuxd.hosts import Alive, Finding, Gone, LaunchRefused, Unknown
from amuxd.hosts.launcher import hold
from amuxd.hosts.tmux import TmuxUnreachable
from amuxd.reconcile import reconcile, sweep
from amuxd.records import RunState, Session
from amuxd.registry import Entry, Waking
from amuxd.retention import Retention
from amuxd.states import End, State, StopRequested
from amuxd.store import Known
from amuxd.supervisor import now


@pytest.fixture(autouse=True)
def looked_at_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "LOOKED_AT_FOR", 0.01)


SLEEPER = Agent("sleeper", ("sleep", "1000"), resume=("sleep", "1000"))
BRIEF = Agent("brief", ("sleep", "1000"), resume=("sleep", "1000"), park_after=0.05)
SOON_IDLE = 0.4
SOON = Agent("soon", ("sleep", "1000"), resume=("sleep", "1000"), park_after=SOON_IDLE)
STAYING = Agent("staying", ("cat",), resume=("cat",), on_exit=OnExit.STAY)


def test_one_whose_end_could_not_be_asked_for_is_not_parked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        world.host.failing["ask_to_end"] = OSError("no")
        with pytest.raises(Internal, match="could not be parked: no"):
            await world.runs.parking.park(entry)
        assert not entry.parked
        assert entry.session_alive == "alive"
        assert '"parked":false' in (world.store.directory(entry.id) / "state.json").read_text()
        world.host.failing.clear()
        await world.runs.parking.park(entry)
        assert entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_one_whose_process_ended_is_parked_whatever_else_fails(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        world.host.failing["tear_down"] = OSError("no")
        await world.runs.parking.park(entry)
        assert entry.parked
        assert entry.home is None
        await world.runs.parking.bring_back(entry)
        assert not entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_one_whose_terminal_does_not_tell_what_is_open_is_not_parked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        world.host.failing["panes"] = TmuxUnreachable("no")
        with pytest.raises(Internal, match="whether windows are open is not known: no"):
            await world.runs.parking.park(entry)
        assert not entry.parked
        assert entry.session_alive == "alive"

    asyncio.run(in_world(tmp_path, story))


class SlowPanes:
    """A terminal that says only later what is open in it."""

    def __init__(self, world: World) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        world.host.panes = self._slowly  # type: ignore[method-assign]

    async def _slowly(self, session_id: str) -> int:
        self.asked.set()
        await self.go_on.wait()
        return 1


async def ends_and_is_told(world: World, entry: Entry, panes: SlowPanes) -> None:
    world.host.end()
    await world.until(lambda: entry.state.state is State.FAILED)
    panes.go_on.set()


async def ends_as_it_is_written_down(world: World, entry: Entry, panes: SlowPanes) -> None:
    async with entry.writing:
        panes.go_on.set()
        # Who parks it stands in line before who tells of the end.
        await world.until(lambda: world.supervisor._changes)
        world.host.end()
        await entry.ended.wait()


@pytest.mark.parametrize(
    ("ends", "told"),
    [(ends_and_is_told, "is failed, park is not possible"), (ends_as_it_is_written_down, "has just ended")],
)
def test_one_that_ends_while_its_terminal_is_asked_is_not_parked(
    tmp_path: Path, ends: Callable[[World, Entry, SlowPanes], Coroutine[Any, Any, None]], told: str
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        panes = SlowPanes(world)
        parking = asyncio.ensure_future(world.runs.parking.park(entry))
        await panes.asked.wait()
        await ends(world, entry, panes)
        with pytest.raises(InvalidTransition, match=told):
            await parking
        await world.until(lambda: entry.state.state is State.FAILED)
        assert not entry.state.parked
        assert entry.state.end is not None
        assert entry.state.end.signal == "SIGKILL"

    asyncio.run(in_world(tmp_path, story))


async def ask_for_permission(world: World, entry: Entry) -> None:
    await world.supervisor.attend(entry, attention.Reported(attention.Kind.PERMISSION, "", now()))


async def attach(world: World, entry: Entry) -> None:
    world.host.clients = 1
    world.runs.homes.attachment_changed(entry.id)
    await world.until(lambda: entry.attached)


@pytest.mark.parametrize("comes", [ask_for_permission, attach])
def test_what_is_wanted_while_its_terminal_is_asked_is_not_idle(
    tmp_path: Path, comes: Callable[[World, Entry], Coroutine[Any, Any, None]]
) -> None:
    async def story(world: World) -> None:
        panes = SlowPanes(world)
        entry = await world.start(BRIEF)
        await panes.asked.wait()
        await comes(world, entry)
        panes.go_on.set()
        async with entry.operation:
            assert not entry.parked
        assert entry.session_alive == "alive"

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("obstacle", ["none", "unseen", "unknown", "deaf"])
def test_what_was_left_half_parked_is_ended_once_it_can_be(tmp_path: Path, obstacle: str) -> None:
    """By the amuxd before, which had asked for its end and was gone before it came."""

    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.supervisor.amend(entry, parked=True, parked_at=now())
        world.runs.homes.leave(entry)
        in_the_way = [obstacle] if obstacle in {"unseen", "unknown"} else []

        async def find(session: Session, state: RunState) -> Finding:
            if in_the_way:
                if in_the_way.pop() == "unknown":
                    return Unknown("its container does not answer")
                raise OSError("Too many open files")
            home = hold(state.command, state.server)
            return Alive(home) if home else Gone()

        world.host.find = find  # type: ignore[method-assign]
        world.host.has_terminal = lambda session_id: True  # type: ignore[method-assign]
        if obstacle == "deaf":
            world.host.failing["ask_to_end"] = OSError("no")
        await reconcile(world.runs)
        if obstacle in {"unseen", "unknown"}:
            assert (entry.looked_in_vain, entry.parked) == (True, True)
            assert world.host.processes[-1].poll() is None
            await sweep(world.runs)
        if obstacle == "deaf":
            await world.until(lambda: not entry.parked)
            assert entry.session_alive == "alive"
            return
        await world.until(lambda: entry.state.parked_end)
        assert entry.state.parked_end is not None
        assert entry.state.parked_end.signal == "SIGTERM"
        async with entry.operation:
            assert (entry.parked, entry.home, entry.looked_in_vain) == (True, None, False)

    asyncio.run(in_world(tmp_path, story))


def test_one_that_is_refused_to_come_back_stays_parked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.runs.parking.park(entry)
        world.host.failing["launch"] = LaunchRefused("no")
        with pytest.raises(LaunchFailed, match="stays parked"):
            await world.runs.parking.bring_back(entry)
        assert entry.parked

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("obstacle", ["unreachable", "attached", "panes", "unwritten", "unseen", "works"])
def test_an_idle_one_is_looked_at_again_later(tmp_path: Path, obstacle: str) -> None:
    async def story(world: World) -> None:
        attached = world.host.attached
        obstacles: list[Path] = []

        async def no_longer_written(session_id: str) -> int:
            if not obstacles:
                obstacles.append(tmp_path / "sessions" / session_id / ".lock")
                obstacles[0].unlink()
                obstacles[0].mkdir()
            return await attached(session_id)

        if obstacle == "unreachable":
            world.host.failing["attached"] = TmuxUnreachable("no")
        elif obstacle == "attached":
            world.host.clients = 1
        elif obstacle == "panes":
            world.host.other_panes = 1
        elif obstacle == "unseen":
            world.host.failing["processor_time"] = OSError("no")
        elif obstacle == "works":
            world.host.processor_use = 1.0
        elif obstacle == "unwritten":
            world.host.attached = no_longer_written  # type: ignore[method-assign]
        entry = await world.start(BRIEF)
        await world.until(lambda: entry.tried_at > 0 or entry.attached > 0)
        async with entry.operation:
            assert not entry.parked
        for lock in obstacles:
            lock.rmdir()
        world.host.failing.clear()
        world.host.clients = world.host.other_panes = 0
        world.host.processor_use = 0.0
        if obstacle == "attached":
            # tmux tells when the last one has gone.
            world.runs.homes.attachment_changed(entry.id)
        await world.until(lambda: entry.parked)

    asyncio.run(in_world(tmp_path, story))


DEAF = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")


@pytest.mark.parametrize("left", [False, True])
def test_an_idle_one_that_does_not_end_goes_on(tmp_path: Path, left: bool) -> None:
    """Also one that an amuxd before was about to park."""

    async def story(world: World) -> None:
        world.runs.configure(Settings(stop_grace=0.1))
        entry = await world.start(Agent("deaf", DEAF, resume=DEAF))
        await world.until(lambda: entry.activity_at)
        asked: list[int] = []
        ask_to_end = world.host.ask_to_end

        async def noted(*arguments: Any, **options: Any) -> None:
            asked.append(now())
            await ask_to_end(*arguments, **options)

        world.host.ask_to_end = noted  # type: ignore[method-assign]
        if left:
            await world.supervisor.amend(entry, parked=True, parked_at=now())
            world.runs.homes.leave(entry)

            async def find(session: Session, state: RunState) -> Finding:
                home = hold(state.command, state.server)
                return Alive(home) if home else Gone()

            world.host.find = find  # type: ignore[method-assign]
            world.host.has_terminal = lambda session_id: True  # type: ignore[method-assign]
        entry.agent = Agent("deaf", DEAF, resume=DEAF, park_after=SOON_IDLE)
        await reconcile(world.runs) if left else world.supervisor.changed(entry)
        await world.until(lambda: len(asked) == 3)
        async with entry.operation:
            assert (entry.parked, entry.session_alive) == (False, "alive")
            assert '"parked":false' in (world.store.directory(entry.id) / "state.json").read_text()
        assert all(later - earlier >= SOON_IDLE * 1e6 for earlier, later in pairwise(asked))
        await world.runs.parking.park(entry)
        assert entry.parked

    asyncio.run(in_world(tmp_path, story))


SLOW = ("sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.6; done")


@pytest.mark.parametrize("since", ["nothing", "somebody came", "a long time"])
def test_an_idle_one_that_ends_later_than_it_may_is_parked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    async def story(world: World) -> None:
        world.runs.configure(Settings(stop_grace=0.05))
        agent = Agent("slow", SLOW, resume=SLOW, park_after=SOON_IDLE)
        entry = await world.start(agent)
        await world.until(lambda: entry.activity_at)
        # Once is enough.
        await world.until(lambda: entry.asked_to_end_at)
        entry.agent = replace(agent, park_after=None)
        if since == "somebody came":
            with world.runs.parking.put_off(entry):
                pass
        elif since == "a long time":
            monkeypatch.setattr(registry, "LEAVING", 0)
        await entry.ended.wait()
        if since == "nothing":
            await world.until(lambda: entry.parked and entry.home is None)
            assert (entry.state.state, entry.state.parked_end) == (State.RUNNING, End(code=3))
            await world.runs.parking.bring_back(entry)
            assert entry.asked_to_end_at == 0
        else:
            await world.until(lambda: entry.state.state is State.FAILED)

    asyncio.run(in_world(tmp_path, story))


def test_what_stays_leaves_its_terminal_whatever_fails(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(STAYING)

        async def fail(entry: Entry) -> None:
            raise RuntimeError("can't start new thread")

        world.runs.homes.drain = fail  # type: ignore[method-assign]
        world.host.processes[0].communicate()
        await world.until(lambda: entry.parked and entry.home is None)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("why", ["attached", "permission", "question", "bell", "custom", "printed"])
def test_what_is_in_use_is_not_idle(tmp_path: Path, why: str) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        if why == "attached":
            entry.attached = 1
        elif why == "printed":
            entry.activity_at = now() + 10**12
        else:
            await world.supervisor.attend(entry, attention.Reported(attention.Kind(why), "", now()))
        # Only now, however long the disk took until here.
        entry.agent = BRIEF
        other = await world.start(BRIEF)
        await world.until(lambda: other.parked)
        async with entry.operation:
            assert not entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_the_end_of_a_turn_holds_off_parking_for_no_longer_than_what_was_printed(tmp_path: Path) -> None:
    """Also counted by an amuxd that was not there when the turn ended."""

    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.supervisor.attend(entry, attention.Reported(attention.Kind.TURN, "", now()))
        entry.activity_at = entry.used_at = 0
        entry.agent = SOON
        world.supervisor.changed(entry)
        await world.until(lambda: entry.parked)
        assert entry.state.parked_at - entry.state.attention_at >= SOON_IDLE * 1e6
        assert entry.state.attention == "turn"

    asyncio.run(in_world(tmp_path, story))


async def answer(world: World, entry: Entry) -> None:
    await terminals.Terminals(world.runs).send(entry, "yes", True)


async def go_on_working(world: World, entry: Entry) -> None:
    await world.runs.homes.attending.reported(entry, "working", "")


async def come_to_look(world: World, entry: Entry) -> None:
    await terminals.Terminals(world.runs).attach_command(entry)
    await world.supervisor.attend(entry, attention.Typed())


@pytest.mark.parametrize("then", [answer, go_on_working, come_to_look])
def test_the_time_for_which_it_waited_was_no_idle_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[World, Entry], Coroutine[Any, Any, None]],
) -> None:
    monkeypatch.setattr(terminals, "COMING", 0.0)

    async def story(world: World) -> None:
        waits = await world.start(SLEEPER)
        waits.waking = None
        await world.runs.homes.attending.reported(waits, "permission", "may I?")
        # Only now, however long the disk took until here.
        waits.agent = SOON
        other = await world.start(SOON)
        await world.until(lambda: other.parked)
        assert not waits.parked
        at = now()
        await then(world, waits)
        assert not waits.state.attention
        await world.until(lambda: waits.parked)
        assert waits.state.parked_at - at >= SOON_IDLE * 1e6

    asyncio.run(in_world(tmp_path, story))


def test_none_is_parked_while_the_configuration_is_wrong(tmp_path: Path) -> None:
    """Its park_after may be never there."""

    async def story(world: World) -> None:
        agents, wrong = {"brief": BRIEF}, "config.toml: there is no section [agnets]"
        world.runs.configure(Settings(stop_grace=5, agents=agents, error=wrong))
        entry = await world.start(BRIEF)

        async def by_right(other: World) -> None:
            # Its time comes later.
            parked = await other.start(BRIEF)
            await other.until(lambda: parked.parked)

        await in_world(tmp_path / "right", by_right)
        async with entry.operation:
            assert not entry.parked
        world.runs.configure(Settings(stop_grace=5, agents=agents))
        await world.until(lambda: entry.parked)

    asyncio.run(in_world(tmp_path / "wrong", story))


def test_one_timer_for_all(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        call_later = loop.call_later

        def noted(delay: float, callback: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
            timer = call_later(delay, callback, *arguments)
            if getattr(callback, "__self__", None) is world.runs.parking:
                timers.append(timer)
            return timer

        loop.call_later = noted  # type: ignore[method-assign,assignment]
        later = Agent("later", ("sleep", "1000"), resume=("sleep", "1000"), park_after=500)
        sooner = Agent("sooner", ("sleep", "1000"), resume=("sleep", "1000"), park_after=100)
        for agent in (later, sooner, later, sooner, later):
            await world.start(agent)
        armed = [timer for timer in timers if not timer.cancelled()]
        assert len(armed) == 1
        assert len(timers) == 2
        assert 40 < armed[0].when() - loop.time() <= 100

    asyncio.run(in_world(tmp_path, story))


def test_one_that_stays_is_parked_once_the_disk_lets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "RETRY_PAUSE", 0.01)

    async def story(world: World) -> None:
        entry = await world.start(STAYING)
        lock = world.store.directory(entry.id) / ".lock"
        lock.unlink()
        lock.mkdir()
        world.host.processes[-1].stdin.close()  # type: ignore[union-attr]
        await entry.refused.wait()
        assert not entry.parked
        # Nobody waits for the disk who wants something else of it.
        async with asyncio.timeout(5):
            with pytest.raises(Busy, match="it has changed, and that is not written down"):
                await world.runs.parking.bring_back(entry)
        shutil.rmtree(lock)
        await world.until(lambda: entry.parked)
        assert entry.state.state is State.RUNNING

    asyncio.run(in_world(tmp_path, story))


def test_one_that_ended_as_it_was_stopped_is_stopped(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(STAYING)
        async with entry.operation:
            world.host.processes[-1].stdin.close()  # type: ignore[union-attr]
            await entry.ended.wait()
            # Its end waits for us, who stop it.
            await world.supervisor.apply(entry, StopRequested(), "user")
            await world.runs.bring_down(entry)
        await world.runs.parking.stay(entry)
        assert entry.state.state is State.STOPPED
        assert not entry.parked

    asyncio.run(in_world(tmp_path, story))


def test_two_who_want_it_back_bring_it_back_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.runs.parking.park(entry)
        await asyncio.gather(*(world.runs.parking.bring_back(entry) for _ in range(5)))
        assert len(world.host.processes) == 2

    asyncio.run(in_world(tmp_path, story))


def test_who_wants_one_back_that_is_stopped_first_has_it_resumed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        await world.runs.parking.park(entry)
        # Who comes second finds it parked still, and waits for the one who came first.
        await asyncio.gather(world.runs.stop(entry, 1), world.runs.resume(entry))
        assert (entry.state.state, entry.state.run) == (State.RUNNING, 2)

    asyncio.run(in_world(tmp_path, story))


def test_it_is_parked_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)

        async def park(subject: Entry) -> bool:
            try:
                await world.runs.parking.park(subject)
            except AmuxError:
                return False
            return True

        assert sorted(await asyncio.gather(park(entry), park(entry))) == [False, True]

    asyncio.run(in_world(tmp_path, story))


def test_one_that_prints_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "LONGEST_WAKING", 0.2)

    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        hands = terminals.Terminals(world.runs)
        began = asyncio.get_running_loop().time()
        entry.waking = Waking(began, 0)
        await hands.send(entry, "text", True)
        assert world.host.typed == ["text"]
        assert asyncio.get_running_loop().time() - began >= 0.15
        monkeypatch.setattr(terminals, "LONGEST_WAKING", 1000.0)
        async with asyncio.timeout(20):
            await hands.send(entry, "more", True)

    asyncio.run(in_world(tmp_path, story))


def test_a_terminal_that_does_not_do_it_is_told_of(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(SLEEPER)
        entry.waking = None
        world.host.failing["send"] = TmuxUnreachable("no")
        with pytest.raises(Internal, match="did not do it: no"):
            await terminals.Terminals(world.runs).send(entry, "text", True)

    asyncio.run(in_world(tmp_path, story))


def test_what_an_agent_tells_of_its_conversation_is_kept(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        teller = Agent("teller", ("sleep", "1000"), resume=("sleep", "{conversation}"))
        entry = await world.start(teller)
        assert "has not told yet" in entry.why_not_resumable
        await world.runs.homes.learn_conversation(entry, "1000", 1)
        assert not entry.why_not_resumable
        await world.runs.homes.learn_conversation(entry, "1001", 1)
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert known.state.conversation_id == "1001"

    asyncio.run(in_world(tmp_path, story))


def test_two_who_clean_remove_each_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.runs.configure(Settings(retention=Retention(completed=0)))
        entries = [await world.create(None, "true") for _ in range(5)]
        for entry in entries:
            await world.runs.start(entry)
        await world.until(lambda: all(entry.state.state is State.COMPLETED for entry in entries))
        removed = await asyncio.gather(clean(world.runs, False), clean(world.runs, False))
        assert sorted([*removed[0], *removed[1]]) == sorted(entry.id for entry in entries)

    asyncio.run(in_world(tmp_path, story))
