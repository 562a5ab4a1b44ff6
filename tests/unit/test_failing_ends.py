"""An end that something fails at is certified all the same, and its home left."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from standin_host import World, in_world

from amuxd.cleaning import clean
from amuxd.config import Settings
from amuxd.errors import Internal
from amuxd.hosts import Alive, Finding, Home, StopRefused, Unknown
from amuxd.hosts.local import LocalHost
from amuxd.reconcile import sweep
from amuxd.records import Certificate
from amuxd.registry import Entry
from amuxd.retention import Retention
from amuxd.states import Liveness, State
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
        assert entry.session_alive is Liveness.DEAD
        world.host.failing.clear()
        await world.runs.restart(entry)
        assert entry.session_alive is Liveness.ALIVE

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
        assert entry.session_alive is Liveness.ALIVE
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
        assert certificate.reason == "its directory /gone was deleted"

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


@pytest.mark.parametrize("step", ["drain", "show_end"])
def test_a_step_of_settling_that_fails_costs_none_of_the_others(tmp_path: Path, step: str) -> None:
    async def story(world: World) -> None:
        async def fail(*_: Any) -> None:
            raise ProcessLookupError(3, "No such process")

        setattr(world.host, step, fail)
        world.host.clients = 1
        entry = await world.create(None, "true")
        await world.runs.start(entry)
        assert (await certified(world, entry)).end.code == 0
        assert entry.keeps_terminal

    asyncio.run(in_world(tmp_path, story))


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
