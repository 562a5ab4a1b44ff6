"""An end that something fails at is certified all the same, and its home left."""

import asyncio
import errno
import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd import homes, runs, supervisor
from amuxd.aftermath import Aftermath
from amuxd.cleaning import clean
from amuxd.config import Settings
from amuxd.errors import Internal, InvalidTransition
from amuxd.hosts import Alive, Finding, Home, StopRefused, Unknown
from amuxd.hosts.local import LocalHost
from amuxd.reconcile import sweep
from amuxd.records import Certificate
from amuxd.registry import Entry
from amuxd.retention import Retention
from amuxd.states import End, Liveness, State
from amuxd.store import StoreError
from amuxd.workspaces.orphans import orphan

DEAF = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]


async def certified(world: World, entry: Entry) -> Certificate:
    """As it is on disk, once it is complete."""
    await world.until(lambda: entry.home is None and entry.certificate and entry.certificate.complete)
    written = world.store.certificate(entry.id, entry.state.run)
    assert written is not None
    assert written == entry.certificate
    return written


@pytest.mark.parametrize("command", [["sleep", "1000"], DEAF])
def test_a_stop_that_leaves_something_behind(tmp_path: Path, command: list[str]) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, *command)
        await world.runs.start(entry)
        if command is DEAF:
            await world.until(lambda: entry.activity_at)
        world.host.failing["tear_down"] = StopRefused("its unit does not end (timeout)")
        with pytest.raises(Internal, match="could not be stopped: its unit does not end"):
            await world.runs.stop(entry, 5 if command is not DEAF else 0.1)
        assert entry.state.state is State.FAILED
        certificate = await certified(world, entry)
        assert certificate.end.signal == ("SIGKILL" if command is DEAF else "SIGTERM")
        assert certificate.reason == "could not be stopped: its unit does not end (timeout)"
        assert entry.session_alive == "dead"
        world.host.failing.clear()
        await world.runs.restart(entry)
        assert entry.session_alive is Liveness.ALIVE

    asyncio.run(in_world(tmp_path, story))


def test_all_who_ask_to_stop_it_are_told_the_same(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        await asyncio.gather(world.runs.stop(entry, 5), world.runs.stop(entry, 5))
        assert entry.state.state is State.STOPPED
        with pytest.raises(InvalidTransition, match="is stopped, stop is not possible"):
            await world.runs.stop(entry, 5)
        await world.runs.restart(entry)
        world.host.failing["tear_down"] = StopRefused("its unit does not end (timeout)")
        told = await asyncio.gather(*(world.runs.stop(entry, 5) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in told] == [Internal, Internal]
        assert str(told[0]) == str(told[1])
        with pytest.raises(InvalidTransition, match="is failed, stop is not possible"):
            await world.runs.stop(entry, 5)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("times", [1, 1000])
def test_what_was_stopped_is_so_though_nobody_can_ask_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(runs, "ASKED_AGAIN", 0)

    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        end_of, asked = world.host.end_of, itertools.count(1)

        async def refused(*arguments: Any, **options: Any) -> End:
            if next(asked) <= times:
                raise OSError(errno.EMFILE, "Too many open files")
            return await end_of(*arguments, **options)

        world.host.end_of = refused  # type: ignore[method-assign]
        await world.runs.stop(entry, 5)
        assert entry.state.state is State.STOPPED
        await world.until(lambda: entry.certificate and entry.certificate.complete)
        assert entry.certificate
        assert entry.certificate.end.signal == ("SIGTERM" if times == 1 else None)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("verb", ["archive", "remove", "clean"])
def test_what_cannot_be_ended_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["tear_down"] = StopRefused("its unit does not end (timeout)")
        with pytest.raises(Internal):
            await world.runs.stop(entry, 5)
        await certified(world, entry)
        monkeypatch.setattr(world.host, "has_terminal", lambda _: True)
        refused = "what is left of .* could not be ended: its unit does not end"
        if verb == "clean":
            world.runs.configure(Settings(retention=Retention(failed=0)))
            assert await clean(world.runs, dry_run=False) == []
        else:
            with pytest.raises(Internal, match=refused):
                await (world.runs.archive(entry) if verb == "archive" else world.runs.remove(entry, False))
        assert entry.state.state is State.FAILED
        assert world.store.directory(entry.id).exists()
        assert world.supervisor.registry.get(entry.id) is entry
        world.host.failing.clear()
        await (world.runs.archive(entry) if verb == "archive" else world.runs.remove(entry, False))
        assert verb == "archive" or not world.store.directory(entry.id).exists()

    asyncio.run(in_world(tmp_path, story))


def test_without_systemd_a_stop_that_cannot_be_written_names_a_way_to_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "change", full)
            with pytest.raises(Internal, match=f"No space left; .*: amux kill --signal SIGKILL {entry.id}$"):
                await world.runs.stop(entry, 5)
        assert entry.state.state is State.RUNNING

    def full(*_: object) -> None:
        raise StoreError("it could not be changed: No space left")

    asyncio.run(in_world(tmp_path, story))


def test_one_that_could_not_be_stopped_ends_later(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["ask_to_end"] = OSError("no")
        with pytest.raises(Internal, match="could not be stopped: no"):
            await world.runs.stop(entry, 5)
        assert entry.state.state is State.FAILED
        assert entry.session_alive == "alive"
        assert entry.home is not None
        os.kill(entry.home.command.pid, signal.SIGINT)
        assert (await certified(world, entry)).end.signal == "SIGINT"
        assert entry.session_alive is Liveness.DEAD

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("verb", ["restart", "archive"])
def test_what_could_not_be_stopped_ends_before_what_is_asked_for_next(tmp_path: Path, verb: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["ask_to_end"] = OSError("no")
        with pytest.raises(Internal, match="could not be stopped: no"):
            await world.runs.stop(entry, 5)
        world.host.failing.clear()
        await (world.runs.restart(entry) if verb == "restart" else world.runs.archive(entry))
        assert world.host.processes[0].poll() == -signal.SIGKILL
        certificate = world.store.certificate(entry.id, 1)
        assert certificate
        assert (certificate.complete, certificate.end.signal) == (True, "SIGKILL")
        assert entry.session_alive is (Liveness.ALIVE if verb == "restart" else Liveness.DEAD)
        assert entry.state.run == (2 if verb == "restart" else 1)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("command", [["sleep", "1000"], DEAF])
def test_an_orphan_that_leaves_something_behind(tmp_path: Path, command: list[str]) -> None:
    async def story(world: World) -> None:
        world.runs.configure(Settings(stop_grace=5 if command is not DEAF else 0.1))
        entry = await world.create(None, *command)
        await world.runs.start(entry)
        if command is DEAF:
            await world.until(lambda: entry.activity_at)
        world.host.failing["tear_down"] = StopRefused("its unit does not end (timeout)")
        await orphan(world.runs, entry, "/gone")
        certificate = await certified(world, entry)
        assert (entry.state.state, entry.session_alive) == (State.ORPHANED, Liveness.DEAD)
        assert certificate.end.signal == ("SIGKILL" if command is DEAF else "SIGTERM")
        assert certificate.reason == "its directory /gone is gone"

    asyncio.run(in_world(tmp_path, story))


def test_an_orphan_that_could_not_be_ended_is_certified_when_it_ends(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        world.host.failing["ask_to_end"] = OSError("no")
        await orphan(world.runs, entry, "/gone")
        assert entry.settling
        await entry.settling
        assert (entry.state.state, entry.session_alive) == (State.ORPHANED, Liveness.ALIVE)
        assert entry.certificate
        assert not entry.certificate.complete
        assert entry.home is not None
        os.kill(entry.home.command.pid, signal.SIGINT)
        assert (await certified(world, entry)).end.signal == "SIGINT"
        assert entry.session_alive is Liveness.DEAD

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("raises", [True, False])
def test_an_orphan_that_cannot_be_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        home = entry.home
        assert home
        await world.runs.suspend("amuxd was stopped")
        world.runs.homes.leave(entry)

        # As the next amuxd, in which the one before this left it.
        async def refuse(*_: object) -> Finding:
            if raises:
                raise OSError(24, "Too many open files")
            return Unknown("Too many open files")

        async def found(*_: object) -> Finding:
            pid = home.command.pid
            return Alive(Home(home.command, home.server, os.pidfd_open(pid), os.pidfd_open(os.getpid())))

        monkeypatch.setattr(world.host, "find", refuse)
        await orphan(world.runs, entry, "/gone")
        await world.until(lambda: entry.looked_in_vain)
        assert entry.session_alive is Liveness.UNKNOWN
        assert entry.certificate
        assert not entry.certificate.complete
        monkeypatch.setattr(world.host, "find", found)
        await sweep(world.runs)
        assert (await certified(world, entry)).end.signal == "SIGTERM"

    asyncio.run(in_world(tmp_path, story))


def fails(
    monkeypatch: pytest.MonkeyPatch, place: object, step: str, times: int = 1, is_async: bool = True
) -> list[str]:
    """As it does where another session has made as many processes as there may be; which ones did."""
    real, failed = getattr(place, step), list[str]()

    def fail(*given: Any, **named: Any) -> Any:
        if len(failed) < times:
            failed.append(step)
            raise RuntimeError("can't start new thread")
        return real(*given, **named)

    async def fail_later(*given: Any, **named: Any) -> Any:
        return await fail(*given, **named)

    monkeypatch.setattr(place, step, fail_later if is_async else fail)
    return failed


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (supervisor, homes):
        monkeypatch.setattr(module, "RETRY_PAUSE", 0.01)
    follow = Aftermath.follow
    monkeypatch.setattr(follow, "__defaults__", (0.01,))


FOR_EVER = 1000


@pytest.mark.parametrize("step", ["drain", "attached", "show_end", "look_what_was_said", "_keep_activity"])
@pytest.mark.parametrize("clients", [0, 1])
def test_a_step_of_settling_that_fails_costs_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, clients: int
) -> None:
    async def story(world: World) -> None:
        runs_homes, aftermath = world.runs.homes, world.runs.aftermath
        place = next(place for place in (runs_homes, aftermath, world.host) if step in dir(type(place)))
        if step == "drain":
            place = world.host
        failed = fails(monkeypatch, place, step, FOR_EVER)
        torn_down: list[str] = []

        async def tear_down(session_id: str, at_once: bool = False) -> None:
            torn_down.append(session_id)

        monkeypatch.setattr(world.host, "tear_down", tear_down)
        world.host.clients = clients
        entry = await world.create(None, "sh", "-c", "echo last words")
        await world.runs.start(entry)
        certificate = await certified(world, entry)
        assert (certificate.end.code, certificate.last_lines) == (0, ["last words"])
        await world.runs.aftermath.settled(entry)
        is_looked_at = clients == 1 and step != "attached"
        assert entry.keeps_terminal is is_looked_at
        assert torn_down == ([] if is_looked_at else [entry.id])
        assert bool(failed) is (step != "show_end" or is_looked_at)

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("host", "end_of"),
        ("store", "change"),
        ("store", "certify"),
        ("supervisor", "last_lines"),
        ("shells", "keep"),
        ("watch", "last_look"),
    ],
)
def test_what_cannot_be_done_without_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, step: str
) -> None:
    async def story(world: World) -> None:
        places = {
            "host": world.host,
            "store": world.store,
            "supervisor": world.supervisor,
            "shells": world.runs.homes.shells,
            "watch": world.watch,
        }
        entry = await world.create(None, "sh", "-c", "echo last words; read word")
        await world.runs.start(entry)
        times = FOR_EVER if step == "last_look" else 1
        failed = fails(monkeypatch, places[place], step, times, is_async=step in {"end_of", "last_lines"})
        process = world.host.processes[0]
        assert process.stdin
        process.stdin.close()
        certificate = await certified(world, entry)
        assert failed
        assert (certificate.end.code, certificate.last_lines) == (1, ["last words"])
        assert entry.state.state is State.FAILED
        assert not entry.unwritten

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("what", ["next run", "removed"])
def test_what_is_over_is_not_told_again(tmp_path: Path, what: str) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "true")
        world.runs.aftermath.follow(entry, fail)
        assert entry.settling
        await entry.settling
        if what == "removed":
            world.supervisor.registry.discard(entry)
        else:
            entry.state = replace(entry.state, run=2)
        again = [task for task in world.supervisor._tasks if "_follow_later" in str(task.get_coro())]
        await asyncio.gather(*again)
        assert tried == [1]

    tried: list[int] = []

    async def fail() -> None:
        tried.append(1)
        raise RuntimeError("can't start new thread")

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.usefixtures("no_pause")
def test_what_could_not_be_ended_now_is_ended_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        torn_down: list[str] = []

        async def tear_down(session_id: str, at_once: bool = False) -> None:
            torn_down.append(session_id)

        monkeypatch.setattr(world.host, "tear_down", tear_down)
        monkeypatch.setattr(world.host, "has_terminal", lambda _: not torn_down)
        failed = fails(monkeypatch, world.host, "tear_down", 2)
        entry = await world.create(None, "true")
        await world.runs.start(entry)
        await certified(world, entry)
        await world.until(lambda: torn_down)
        assert len(failed) == 2

    asyncio.run(in_world(tmp_path, story))


def test_what_cannot_be_ended_is_tried_ever_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(homes, "RETRY_PAUSE", 0.01)
    monkeypatch.setattr(homes, "LONGEST_PAUSE", 0.03)
    later = homes.Homes._tear_down_later

    async def counting(self: homes.Homes, entry: Entry, run: int, pause: float) -> None:
        pauses.append(pause)
        await later(self, entry, run, pause)

    monkeypatch.setattr(homes.Homes, "_tear_down_later", counting)

    async def story(world: World) -> None:
        world.host.failing["tear_down"] = OSError("no memory")
        monkeypatch.setattr(world.host, "has_terminal", lambda _: True)
        entry = await world.create(None, "true")
        await world.runs.start(entry)
        await world.until(lambda: len(pauses) >= 4)

    asyncio.run(in_world(tmp_path, story))
    assert pauses[:4] == [0.01, 0.02, 0.03, 0.03]
    told = [record for record in caplog.records if "could not be ended now: no memory" in record.message]
    assert [bool(record.exc_info) for record in told[:4]] == [True, False, False, False]


def test_a_terminal_server_that_goes_as_it_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answers then is the last that it says."""

    class Last:
        answers = ("4194305 1 \n", "4194305 1 3\n")

        def __init__(self) -> None:
            self._left = list(self.answers)

        async def ask(self, _: str) -> str:
            return self._left.pop(0)

    last = Last()
    host = LocalHost.__new__(LocalHost)
    monkeypatch.setattr(host, "_terminal", lambda _: last)
    asyncio.run(host._until_shown("abc"))
