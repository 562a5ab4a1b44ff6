"""What becomes of sessions when a directory is out of reach, and when the disk takes no slot back."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amuxd.config import Settings
from amuxd.hosts import Gone
from amuxd.records import Session, Workspace
from amuxd.registry import Entry
from amuxd.runs import Runs
from amuxd.states import State, Transition
from amuxd.store import Store, StoreError
from amuxd.supervisor import Supervisor
from amuxd.watch import Watch
from amuxd.workspaces import making
from amuxd.workspaces import orphans as orphans_module
from amuxd.workspaces import registry as registry_module
from amuxd.workspaces.directories import Directories, Identity, Presence, look_in_time
from amuxd.workspaces.ledger import Ledger, UnreadableWorkspace
from amuxd.workspaces.making import Maker
from amuxd.workspaces.orphans import Orphans, orphan
from amuxd.workspaces.queue import Queue
from amuxd.workspaces.registry import Workspaces
from amuxd.workspaces.repositories import Repositories


class NoHost:
    """Nothing ever runs on it."""

    def __init__(self) -> None:
        self.fails = False

    async def find(self, *_: object) -> Gone:
        return Gone()

    async def tear_down(self, *_: object, **__: object) -> None:
        if self.fails:
            raise RuntimeError("systemd does not answer")


class Told:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.arrived = asyncio.Event()

    def appeared(self, entry: Entry) -> None: ...

    def disappeared(self, entry: Entry) -> None: ...

    def exited(self, entry: Entry) -> None: ...

    def changed(self, entry: Entry, *properties: str) -> None: ...

    def attention_changed(self, entry: Entry) -> None: ...

    def moved(self, entry: Entry, transition: Transition) -> None:
        self.states.append(transition.target)
        self.arrived.set()


class Woken:
    """Whoever waits for a change of a workspace."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def workspace_appeared(self, workspace: Workspace | UnreadableWorkspace) -> None: ...

    def workspace_disappeared(self, workspace: Workspace | UnreadableWorkspace) -> None: ...

    def workspace_changed(self, workspace: Workspace) -> None: ...

    def directory_changed(self, workspace: Workspace) -> None: ...

    def presence_changed(self, workspace: Workspace) -> None:
        self.changed.set()


class Rig:
    def __init__(self, root: Path) -> None:
        self.supervisor = Supervisor(Store(root), "boot")
        self.ledger = Ledger(root, self.supervisor.store, "boot")
        self.workspaces = Workspaces(self.supervisor, self.ledger)
        self.host = NoHost()
        host: Any = self.host
        self.watch = Watch()
        self.runs = Runs(self.supervisor, host, self.watch, self.workspaces, Settings())
        self.told = Told()
        self.supervisor.listen(self.told)
        self.workspace = Workspace("shelf1", "shelf", str(root / "shelf"), 1, 1)

    async def begin(self) -> Entry:
        await self.workspaces.write(self.workspace)
        self.workspaces.know(self.workspace)
        session = Session("one111", "one", ["true"], self.workspace.directory, 1, workspace_id="shelf1")
        return await self.supervisor.create(session, None)


def on(root: Path, scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = Rig(root)
        try:
            async with asyncio.timeout(20):
                await scenario(rig)
        finally:
            rig.watch.close()

    asyncio.run(run())


def test_out_of_reach_changes_nothing_and_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Presence.UNKNOWN, Presence.UNKNOWN, Presence.GONE]
    seen: list[tuple[Presence, list[State]]] = []
    (tmp_path / "shelf").mkdir()

    async def scenario(rig: Rig) -> None:
        async def look(*_: object) -> Presence:
            seen.append((found[0], list(rig.told.states)))
            return found.pop(0) if len(found) > 1 else found[0]

        monkeypatch.setattr(orphans_module, "RETRY_PAUSE", 0)
        entry = await rig.begin()
        orphans = Orphans(rig.runs, rig.workspaces)
        rig.supervisor.listen(orphans)
        orphans.begin()
        await asyncio.gather(*rig.supervisor._tasks)
        assert rig.workspaces.presence == {"shelf1": Presence.PRESENT}
        monkeypatch.setattr(registry_module, "look_in_time", look)
        orphans._suspect(rig.workspace.id)
        await rig.told.arrived.wait()
        assert seen[:3] == [(Presence.UNKNOWN, []), (Presence.UNKNOWN, []), (Presence.GONE, [])]
        assert entry.state.state is State.ORPHANED
        assert not entry.workspace_exists
        assert rig.workspaces.presence == {"shelf1": Presence.GONE}
        orphans.close()

    on(tmp_path, scenario)


def test_one_that_is_moved_aside_to_be_removed_and_put_back_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        entry = await rig.begin()
        orphans = Orphans(rig.runs, rig.workspaces)
        orphans.begin()
        await asyncio.gather(*rig.supervisor._tasks)
        asked, looked = asyncio.Event(), []
        until_open, look = rig.workspaces.until_open, look_in_time

        async def waiting(workspace_id: str) -> None:
            asked.set()
            await until_open(workspace_id)

        async def looking(directory: str, known: Identity | None) -> Presence:
            asked.set()
            looked.append(directory)
            return await look(directory, known)

        monkeypatch.setattr(rig.workspaces, "until_open", waiting)
        monkeypatch.setattr(registry_module, "look_in_time", looking)
        async with rig.workspaces.closed(rig.workspace):
            shelf.rename(tmp_path / "aside")
            await asked.wait()
            assert looked == []
            (tmp_path / "aside").rename(shelf)
        await asyncio.gather(*rig.supervisor._tasks)
        assert entry.state.state == "created"
        assert rig.workspaces.presence == {"shelf1": Presence.PRESENT}
        assert not orphans._look_again
        shelf.rename(tmp_path / "moved")
        await rig.told.arrived.wait()
        assert entry.state.state is State.ORPHANED
        orphans.close()

    on(tmp_path, scenario)


def test_a_directory_that_hangs_is_waited_for_by_nobody_and_watched_once_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        loop_thread, threads = threading.current_thread(), set()
        stat, watch = os.stat, Directories.watch
        hung: list[str] = []

        def noticing(path: Any, **options: Any) -> os.stat_result:
            if str(path) == str(shelf):
                threads.add(threading.current_thread())
            return stat(path, **options)

        async def hanging(self: Directories, directory: str, whose: str) -> Identity | None:
            if len(hung) < 2:
                hung.append(directory)
                raise TimeoutError
            return await watch(self, directory, whose)

        monkeypatch.setattr(os, "stat", noticing)
        monkeypatch.setattr(Directories, "watch", hanging)
        monkeypatch.setattr(orphans_module, "RETRY_PAUSE", 0)
        entry = await rig.begin()
        orphans = Orphans(rig.runs, rig.workspaces)
        orphans.begin()
        woken = Woken()
        rig.workspaces.listen(woken)
        while len(hung) < 2 or rig.workspaces.presence["shelf1"] is not Presence.PRESENT:
            woken.changed.clear()
            await woken.changed.wait()
        await asyncio.gather(*rig.supervisor._tasks)
        assert orphans._directories.are_watched(str(shelf), "shelf1")
        assert loop_thread not in threads
        shelf.rename(tmp_path / "moved")
        await rig.told.arrived.wait()
        assert entry.state.state is State.ORPHANED
        orphans.close()

    on(tmp_path, scenario)


def test_whoever_is_gone_before_its_directory_is_watched_leaves_nothing_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        (tmp_path / "shelf").mkdir()
        entry = await rig.begin()
        watch = Directories.watch

        async def late(self: Directories, directory: str, whose: str) -> Identity | None:
            await rig.supervisor.forget(entry)
            return await watch(self, directory, whose)

        monkeypatch.setattr(Directories, "watch", late)
        orphans = Orphans(rig.runs, rig.workspaces)
        orphans.begin()
        await asyncio.gather(*rig.supervisor._tasks)
        assert not orphans._directories.are_watched(str(tmp_path / "shelf"), "shelf1")
        assert "shelf1" not in rig.workspaces.presence
        orphans.close()

    on(tmp_path, scenario)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_who_is_removed_while_its_directory_is_about_to_be_watched_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    async def scenario(rig: Rig) -> None:
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        entry = await rig.begin()
        watch, watching, goes_on = Directories.watch, asyncio.Event(), asyncio.Event()

        async def late(self: Directories, directory: str, whose: str) -> Identity | None:
            known = await watch(self, directory, whose)
            if whose == "shelf1":
                watching.set()
                await goes_on.wait()
            return known

        monkeypatch.setattr(Directories, "watch", late)
        orphans = Orphans(rig.runs, rig.workspaces)
        rig.supervisor.listen(orphans)
        rig.workspaces.listen(orphans)
        orphans.begin()
        await watching.wait()
        await rig.workspaces.forget(rig.workspace)
        if is_replaced:
            shelf.rename(tmp_path / "aside")
            shelf.mkdir()
        rig.workspace = replace(rig.workspace, id="shelf2")
        await rig.workspaces.write(rig.workspace)
        rig.workspaces.know(rig.workspace)
        session = Session("two222", "two", ["true"], rig.workspace.directory, 1, workspace_id="shelf2")
        later = await rig.supervisor.create(session, None)
        goes_on.set()
        await asyncio.gather(*rig.supervisor._tasks)
        assert rig.workspaces.presence == {"shelf2": Presence.PRESENT}
        assert not orphans._directories.are_watched(str(shelf), "shelf1")
        assert orphans._identities.keys() == {"shelf2"}
        orphans._suspect("shelf2")
        await asyncio.gather(*rig.supervisor._tasks)
        assert (entry.state.state, later.state.state) == (State.CREATED, State.CREATED)
        shelf.rename(tmp_path / "moved")
        await rig.told.arrived.wait()
        assert (entry.state.state, later.state.state) == (State.CREATED, State.ORPHANED)
        orphans.close()

    on(tmp_path, scenario)


def test_nothing_is_watched_for_a_workspace_that_is_no_more(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        await rig.begin()
        orphans = Orphans(rig.runs, rig.workspaces)
        rig.workspaces.listen(orphans)
        orphans.begin()
        await asyncio.gather(*rig.supervisor._tasks)
        assert orphans._directories.are_watched(str(shelf), "shelf1")
        await rig.workspaces.forget(rig.workspace)
        assert not orphans._directories.are_watched(str(shelf), "shelf1")
        assert not orphans._identities
        orphans.close()

    on(tmp_path, scenario)


def test_one_that_is_known_by_another_path_is_watched_by_that(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        real = tmp_path / "real/shelf"
        real.mkdir(parents=True)
        (tmp_path / "link").symlink_to("real")
        rig.workspace = replace(rig.workspace, directory=str(tmp_path / "link/shelf"))
        entry = await rig.begin()
        orphans = Orphans(rig.runs, rig.workspaces)
        rig.workspaces.listen(orphans)
        orphans.begin()
        await asyncio.gather(*rig.supervisor._tasks)
        assert orphans._directories.are_watched(rig.workspace.directory, "shelf1")
        await rig.workspaces.write_directory(rig.workspace, str(real))
        await asyncio.gather(*rig.supervisor._tasks)
        assert orphans._directories.are_watched(str(real), "shelf1")
        assert (rig.workspaces.presence, entry.state.state) == ({"shelf1": Presence.PRESENT}, State.CREATED)
        orphans.close()

    on(tmp_path, scenario)


def test_an_orphan_that_cannot_be_looked_at_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        async def hang(*_: object) -> Gone:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(rig.host, "find", hang)
        entry = await rig.begin()
        entry.miss("systemd did not answer earlier")
        await orphan(rig.runs, entry, "/gone")
        assert entry.settling is not None
        await entry.settling
        assert entry.looked_in_vain
        assert entry.why_in_vain == "Too many open files"

    on(tmp_path, scenario)


def test_an_orphan_that_cannot_be_ended_is_certified_all_the_same(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.host.fails = True
        entry = await rig.begin()
        await orphan(rig.runs, entry, "/gone")
        assert entry.settling is not None
        await entry.settling
        assert entry.certificate is not None
        assert entry.certificate.complete
        assert not entry.certificate.end.known
        await orphan(rig.runs, entry, "/gone")
        assert rig.told.states == [State.ORPHANED]

    on(tmp_path, scenario)


def test_a_slot_that_the_disk_did_not_take_back_is_given_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        failures = [StoreError(why) for why in (*["read-only"] * 2, *["full"] * 5)]
        tidy, pauses = rig.ledger.tidy, list[float]()

        def refuse(workspace_id: str) -> Workspace:
            if failures:
                raise failures.pop()
            return tidy(workspace_id)

        async def pass_time(pause: float) -> None:
            pauses.append(pause)

        monkeypatch.setattr(rig.ledger, "tidy", refuse)
        monkeypatch.setattr(asyncio, "sleep", pass_time)
        await rig.begin()
        queue = Queue(rig.runs, rig.workspaces)
        await queue.advance("shelf1")
        assert not failures
        # Each is said once, and it is tried ever less often.
        said = "the queue of workspace shelf1 stands still: "
        assert caplog.messages == [f"{said}full", f"{said}read-only"]
        assert pauses == [5, 10, 20, 40, 60, 60, 60]
        failures = [StoreError("removed meanwhile")]
        await rig.workspaces.forget(rig.workspace)
        await queue.advance("shelf1")
        assert not failures

    on(tmp_path, scenario)


def test_the_slot_of_a_start_that_is_refused_is_given_back_before_anybody_asks(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        entry = await rig.begin()
        holders: asyncio.Queue[list[str]] = asyncio.Queue()

        class Seen(Woken):
            def workspace_changed(self, workspace: Workspace) -> None:
                holders.put_nowait([place.session_id for place in workspace.holders])

        rig.workspaces.listen(Seen())

        async def begin() -> None:
            async with rig.workspaces.slot(entry, 1, patient=False) as has_it:
                assert has_it
                assert await holders.get() == [entry.id]
                raise StoreError("full")

        with pytest.raises(StoreError):
            await begin()
        assert await holders.get() == []

    on(tmp_path, scenario)


def test_what_is_closed_for_long_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.begin()
        tidied: list[str] = []
        tidy = rig.ledger.tidy

        def note(workspace_id: str) -> Workspace:
            tidied.append(workspace_id)
            return tidy(workspace_id)

        monkeypatch.setattr(rig.ledger, "tidy", note)
        queue = Queue(rig.runs, rig.workspaces)
        async with rig.workspaces.closed(rig.workspace):
            first = asyncio.create_task(queue.advance("shelf1"))
            await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.wait_for(queue.advance("shelf1"), 20)
            assert not first.done()
        await first
        assert tidied == ["shelf1"]
        await queue.advance("shelf1")
        assert tidied == ["shelf1"] * 2

    on(tmp_path, scenario)


def test_what_cannot_be_undone_at_the_start_is_listed_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        remove, refusals = rig.ledger.remove, [StoreError("full")]

        def refuse(workspace_id: str) -> None:
            assert rig.workspaces.find("shelf").id == workspace_id
            if refusals:
                raise refusals.pop()
            remove(workspace_id)

        monkeypatch.setattr(rig.ledger, "remove", refuse)
        monkeypatch.setattr(making, "RETRY_PAUSE", 0)
        unfinished = replace(rig.workspace, repository="/nonexistent", being_made=True)
        await rig.workspaces.write(unfinished)
        assert await rig.workspaces.load() == [unfinished]
        await Maker(rig.runs, rig.workspaces, Repositories()).recover(unfinished)
        assert not rig.workspaces.not_readable
        assert rig.ledger.load_all() == []

    on(tmp_path, scenario)
    assert "what was made of workspace shelf stays" in caplog.text
    assert "the workspace shelf is not forgotten: full" in caplog.text
