"""What the kernel tells of directories, and what is merely out of reach."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import until

from amuxd import inotify
from amuxd.workspaces import directories
from amuxd.workspaces.directories import (
    Directories,
    Identity,
    Presence,
    identify,
    look,
    look_at_all,
    look_in_time,
)


class Suspicions:
    """What was told, and whom it wakes."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._told = asyncio.Event()

    def __call__(self, whose: str) -> None:
        self.all.append(whose)
        self._told.set()

    async def next(self) -> str:
        async with asyncio.timeout(20):
            await self._told.wait()
        self._told.clear()
        return self.all[-1]


def watching(scenario: Callable[[Directories, Suspicions], Awaitable[None]]) -> None:
    async def run() -> None:
        suspicions = Suspicions()
        watched = Directories(suspicions)
        try:
            await scenario(watched, suspicions)
        finally:
            watched.close()

    asyncio.run(run())


def test_a_directory_is_there_or_gone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    known = identify(str(there))
    assert look(str(there), known) is Presence.PRESENT
    assert look(str(there), None) is Presence.PRESENT
    there.rename(tmp_path / "kept")
    assert look(str(there), known) is Presence.GONE
    there.mkdir()
    assert look(str(there), known) is Presence.GONE
    there.rmdir()
    there.write_text("a file")
    assert look(str(there), None) is Presence.GONE
    assert look(str(there / "below"), None) is Presence.GONE
    assert identify(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_covered_it_goes_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    here, below = tmp_path / "here", tmp_path / "below"
    here.mkdir()
    known = identify(str(here))
    assert known is not None
    # What is mounted over it is another directory in its place, with a number of a mount of its own.
    here.rename(below)
    here.mkdir()
    covering = identify(str(here))
    assert covering is not None
    stat, mount_of = os.stat, directories._mount_of
    unmounted: list[Any] = []

    def mount_as_covered(path: Path | str) -> int:
        found = stat(path)
        is_covered = (found.st_dev, found.st_ino) == covering[:2]
        return known.mount + 1 if is_covered else mount_of(path)

    def stat_and_unmount(path: Any, **options: Any) -> os.stat_result:
        status = stat(path, **options)
        if str(path) == str(here) and not unmounted:
            unmounted.append(path)
            here.rmdir()
            if not is_deleted:
                below.rename(here)
        return status

    monkeypatch.setattr(directories, "_mount_of", mount_as_covered)
    monkeypatch.setattr(os, "stat", stat_and_unmount)
    found = look(str(here), known)
    assert unmounted
    assert found is (Presence.GONE if is_deleted else Presence.PRESENT)


@pytest.mark.parametrize("error", [PermissionError, OSError, ConnectionError, TimeoutError])
def test_out_of_reach_is_unknown(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    def refuse(_: str) -> os.stat_result:
        raise error

    monkeypatch.setattr(os, "stat", refuse)
    assert look("/mnt/far", None) is Presence.UNKNOWN
    assert asyncio.run(look_in_time("/mnt/far", None)) is Presence.UNKNOWN


def test_a_file_system_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def hang(_directory: str, _known: object) -> Presence:
        answers.wait()
        return Presence.GONE

    monkeypatch.setattr(directories, "look", hang)

    async def ask() -> None:
        with monkeypatch.context() as hurried:
            hurried.setattr(directories, "PATIENCE", 0.05)
            assert await look_in_time("/mnt/far", None) is Presence.UNKNOWN
        answers.set()
        assert await look_in_time("/mnt/far", None) is Presence.GONE

    asyncio.run(ask())


def test_an_answer_is_not_older_than_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, told = threading.Event(), threading.Event()

    def slowly(directory: str, known: Identity | None) -> Presence:
        answer = look(directory, known)
        seen.set()
        told.wait()
        return answer

    monkeypatch.setattr(directories, "look", slowly)
    here = tmp_path / "here"
    here.mkdir()

    async def ask_twice() -> None:
        first = asyncio.create_task(look_in_time(str(here), None))
        await asyncio.to_thread(seen.wait)
        here.rmdir()
        second = asyncio.create_task(look_in_time(str(here), None))
        await asyncio.sleep(0)
        told.set()
        assert (await first, await second) == (Presence.PRESENT, Presence.GONE)

    asyncio.run(ask_twice())


class Slow:
    """A file system that does not answer about one directory, until it is told to."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.askers: list[threading.Thread] = []
        stat = os.stat

        def slow(path: Any, **options: Any) -> os.stat_result:
            if str(path) == str(directory):
                self.askers.append(threading.current_thread())
                self.answers.wait()
            return stat(path, **options)

        monkeypatch.setattr(os, "stat", slow)


def test_one_that_does_not_answer_holds_up_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "PATIENCE", 0.05)
    here = tmp_path / "here"
    here.mkdir()
    slow = Slow(here, monkeypatch)

    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        with pytest.raises(TimeoutError):
            await watched.watch(str(here), "here")
        # Whoever asks, and whatever.
        assert await look_in_time(str(here), None) is Presence.UNKNOWN
        assert await look_in_time(str(here), Identity(0, 0, 0)) is Presence.UNKNOWN
        with pytest.raises(TimeoutError):
            await watched.watch(str(here), "here")
        assert not watched.are_watched(str(here), "here")
        assert len(slow.askers) == 1
        monkeypatch.setattr(directories, "PATIENCE", 20.0)
        # One that has another question waits for its turn.
        looking = asyncio.create_task(look_in_time(str(here), None))
        slow.answers.set()
        assert await looking is Presence.PRESENT
        assert await watched.watch(str(here), "here") == identify(str(here))
        here.rename(tmp_path / "moved")
        assert await suspicions.next() == "here"

    watching(scenario)


def test_a_watch_that_is_shared_and_ends_while_it_is_set_is_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        one.mkdir()
        two.mkdir()
        begun, goes_on = threading.Event(), threading.Event()
        begin = watched._begin

        def slowly(directory: str) -> dict[int, str]:
            watches = begin(directory)
            if directory == str(two) and not begun.is_set():
                begun.set()
                goes_on.wait()
            return watches

        monkeypatch.setattr(watched, "_begin", slowly)
        await watched.watch(str(one), "one")
        watching_two = asyncio.create_task(watched.watch(str(two), "two"))
        await asyncio.to_thread(begun.wait)
        watched.forget("one")
        goes_on.set()
        await watching_two
        # Whoever works in it keeps it from telling its own end: its parent tells.
        with contextlib.chdir(two):
            two.rmdir()
            assert await suspicions.next() == "two"

    watching(scenario)


def test_its_own_name_in_its_parent_is_what_counts(tmp_path: Path) -> None:
    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        here, sibling = tmp_path / "here", tmp_path / "sibling"
        here.mkdir()
        await watched.watch(str(here), "here")
        await watched.watch(str(here), "here")
        assert watched.are_watched(str(here), "here")
        (here / "inside").mkdir()
        sibling.mkdir()
        here.rename(tmp_path / "moved")
        assert await suspicions.next() == "here"
        assert set(suspicions.all) == {"here"}
        watched.forget("here")
        watched.forget("here")
        assert not watched.are_watched(str(here), "here")

    watching(scenario)


def test_those_that_share_a_parent_are_told_apart(tmp_path: Path) -> None:
    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        one, two = tmp_path / "top/one", tmp_path / "top/two"
        for path in (one, two):
            path.mkdir(parents=True)
        for path in (one, two):
            await watched.watch(str(path), path.name)
        one.rmdir()
        assert await suspicions.next() == "one"
        assert "two" not in suspicions.all
        watched.forget("one")
        two.rmdir()
        assert await suspicions.next() == "two"
        # Both watches are gone with their parent; it can be watched again.
        two.parent.rmdir()
        await suspicions.next()
        watched.forget("two")
        two.mkdir(parents=True)
        await watched.watch(str(two), "two")
        two.rmdir()
        assert await suspicions.next() == "two"

    watching(scenario)


def test_lost_events_and_changed_mounts_make_all_suspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        await watched.watch(str(tmp_path), "tmp_path")
        lost = [inotify.Event(-1, inotify.OVERFLOW, "")]
        monkeypatch.setattr(watched._inotify, "read", lambda: lost)
        watched._events()
        assert suspicions.all == ["tmp_path"]
        await suspicions.next()
        watched._mounts_changed()
        watched._mounts_changed()
        assert await suspicions.next() == "tmp_path"
        assert len(suspicions.all) == 2
        watched._mounts_changed()

    watching(scenario)


def test_what_cannot_be_watched_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(watched: Directories, _: Suspicions) -> None:
        def refuse(_path: Path, _mask: int) -> int:
            raise OSError(28, "no more watches")

        monkeypatch.setattr(watched._inotify, "add", refuse)
        await watched.watch(str(tmp_path), "tmp_path")
        watched.forget("tmp_path")

    watching(scenario)


def test_one_that_is_missing_is_waited_for_where_it_would_come(tmp_path: Path) -> None:
    async def scenario(watched: Directories, suspicions: Suspicions) -> None:
        missing = tmp_path / "a/b/c"
        await watched.watch(str(missing), "missing")
        (tmp_path / "other").mkdir()
        (tmp_path / "a").mkdir()
        assert await suspicions.next() == "missing"
        assert len(suspicions.all) == 1
        watched.forget("missing")
        await watched.watch(str(missing), "missing")
        (tmp_path / "a/b").mkdir()
        assert await suspicions.next() == "missing"

    watching(scenario)


def test_one_thread_looks_at_all_but_what_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("before", "hangs", "after", "gone")]
    for place in places[:3]:
        place.mkdir()
    slow = Slow(places[1], monkeypatch)

    async def look_with_patience(place: str, known: Identity | None) -> Presence:
        # What answers may take its time.
        monkeypatch.setattr(directories, "PATIENCE", 0.05 if place == str(places[1]) else 20)
        return await look_in_time(place, known)

    monkeypatch.setattr(directories, "look_in_time", look_with_patience)
    wanted = [str(place) for place in (*places, places[0])]
    there, gone = Presence.PRESENT, Presence.GONE

    async def scenario() -> None:
        # As often as somebody asks: no more than two threads wait for it.
        for _ in range(3):
            assert await look_at_all(wanted) == [there, Presence.UNKNOWN, there, gone, there]
        await asyncio.to_thread(until, lambda: len(slow.askers) == 2)
        slow.answers.set()
        for asker in slow.askers:
            await asyncio.to_thread(asker.join)
        monkeypatch.setattr(directories, "look_in_time", look_in_time)
        monkeypatch.setattr(directories, "PATIENCE", 20)
        assert await look_at_all(wanted) == [there, there, there, gone, there]

    asyncio.run(scenario())


def test_what_answers_is_looked_at_without_a_thread_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_TOGETHER", 20.0)
    monkeypatch.setattr(directories, "look_in_time", None)
    assert asyncio.run(look_at_all([str(tmp_path)] * 3 + ["/"])) == [Presence.PRESENT] * 4
