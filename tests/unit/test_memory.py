"""Out of memory is an end only where the kernel killed the command, and not something beside it."""

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.kernel_files import cgroups_below
from standin_host import World, in_world

from amuxd import memory, processes
from amuxd.hosts import Home, cgroups
from amuxd.hosts.ends import for_memory
from amuxd.records import Session
from amuxd.registry import Entry
from amuxd.states import End
from amuxd.store import StoreError


class Cgroup:
    """The files of one, as the kernel has them, and a host that reads them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cgroups_below(root, monkeypatch)
        self.events = root / "sys/fs/cgroup/amux.slice/amux-abc.service/memory.events"
        self.events.parent.mkdir(parents=True)
        membership = root / f"proc/{os.getpid()}/cgroup"
        membership.parent.mkdir(parents=True)
        membership.write_text("0::/amux.slice/amux-abc.service\n")
        self.count(0)

    def count(self, kills: int) -> None:
        self.events.write_text(f"low 0\nhigh 9\nmax 4\noom 1\noom_kill {kills}\noom_group_kill 0\n")

    def serve(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        async def end_of(session: Session, _: int, home: Home) -> End:
            end = processes.end_of(home.command_fd, home.command) or End()
            return for_memory(session, end, home.server, home.memory_kills)

        monkeypatch.setattr(world.host, "memory_kills", cgroups.memory_kills)
        monkeypatch.setattr(world.host, "memory_events", cgroups.memory_events)
        monkeypatch.setattr(world.host, "end_of", end_of)


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroup:
    monkeypatch.setattr(memory, "LIVED_ON", 0.05)
    return Cgroup(tmp_path / "kernel", monkeypatch)


async def killed(world: World, entry: Entry) -> str:
    assert entry.home
    os.kill(entry.home.command.pid, signal.SIGKILL)
    await world.until(lambda: entry.home is None)
    return entry.state.reason


def told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cgroup: Cgroup,
    before: Callable[[World, Entry, Home], object],
) -> str:
    reasons = []

    async def story(world: World) -> None:
        cgroup.serve(world, monkeypatch)
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        assert entry.home
        waited_for = before(world, entry, entry.home)
        if callable(waited_for):
            await world.until(waited_for)
        reasons.append(await killed(world, entry))

    asyncio.run(in_world(tmp_path / "state", story))
    return reasons[0]


def test_what_was_killed_beside_it_a_while_ago_is_not_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup
) -> None:
    def some_die(_: World, entry: Entry, home: Home) -> Callable[[], bool]:
        def is_written(kills: int) -> bool:
            return (home.memory_kills, entry.state.memory_kills) == (kills, kills)

        def again() -> bool:
            if is_written(1):
                cgroup.count(3)
            return is_written(3)

        cgroup.count(1)
        return again

    assert told(tmp_path, monkeypatch, cgroup, some_die) == "killed by SIGKILL"


def test_what_is_counted_with_its_end_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup
) -> None:
    """The kernel counts it just before, and may be heard before the command has ended."""
    monkeypatch.setattr(memory, "LIVED_ON", 20)

    def dies(world: World, entry: Entry, _: Home) -> Callable[[], bool]:
        cgroup.count(1)
        return lambda: bool(world.runs.homes._memory_kills._looking)

    assert told(tmp_path, monkeypatch, cgroup, dies) == "out of memory"


def test_what_is_dying_when_it_is_looked_at_may_be_what_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup
) -> None:
    def dies(_: World, __: Entry, home: Home) -> Callable[[], bool]:
        looked: list[object] = []

        def is_asked(process: object) -> bool:
            looked.append(process)
            return False

        monkeypatch.setattr(processes, "may_live", is_asked)
        cgroup.count(1)
        return lambda: home.command in looked

    assert told(tmp_path, monkeypatch, cgroup, dies) == "out of memory"


def test_what_was_killed_before_anybody_watched_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup
) -> None:
    cgroup.count(2)

    def lives_on(_: World, entry: Entry, home: Home) -> Callable[[], bool]:
        return lambda: home.memory_kills == entry.state.memory_kills == 2

    assert told(tmp_path, monkeypatch, cgroup, lives_on) == "killed by SIGKILL"


def test_where_it_cannot_be_watched_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        cgroup.serve(world, monkeypatch)
        monkeypatch.setattr(world.watch, "file", refuse)
        await world.runs.start(await world.create(None, "sleep", "1000"))

    asyncio.run(in_world(tmp_path / "state", story))
    assert "what is killed there for memory goes unnoticed" in caplog.text


def test_where_it_cannot_be_written_it_is_known_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise StoreError("No space left")

    async def story(world: World) -> None:
        cgroup.serve(world, monkeypatch)
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "change", full)
            cgroup.count(1)
            await world.until(lambda: "is not written: No space left" in caplog.text)
        assert await killed(world, entry) == "killed by SIGKILL"

    asyncio.run(in_world(tmp_path / "state", story))


def test_where_the_kernel_counts_nothing_there_is_nothing_to_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: Cgroup
) -> None:
    me = processes.identify(os.getpid())
    assert me
    assert cgroups.memory_events(me) == cgroup.events
    cgroup.events.unlink()
    assert cgroups.memory_events(me) is None
    (tmp_path / f"kernel/proc/{me.pid}/cgroup").write_text("0::/user.slice\n")
    assert cgroups.memory_events(me) is None
    (tmp_path / f"kernel/proc/{me.pid}/cgroup").unlink()
    assert cgroups.memory_events(me) is None
