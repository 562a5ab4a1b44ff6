"""A log is watched through its rotations, and whatever else becomes of its file."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amuxd import watch

# Events, before the kernel drops those that follow.
QUEUED = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def test_a_quiet_log_that_is_rotated_late_is_watched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BEAT", 0.01)
    log = tmp_path / "output.log"
    log.write_bytes(b"full")

    async def main() -> None:
        sizes: asyncio.Queue[int] = asyncio.Queue()
        watching = watch.Watch()

        async def quiet_at(size: int) -> None:
            assert await asyncio.wait_for(sizes.get(), 20) == size
            async with asyncio.timeout(20):
                while watching._busy:  # noqa: ASYNC110
                    await asyncio.sleep(watch.BEAT)

        watching.log("a", log, lambda at, hash: sizes.put_nowait(log.stat().st_size))
        await quiet_at(4)
        log.rename(tmp_path / "output.log.1")
        log.write_bytes(b"")
        await quiet_at(0)
        with log.open("ab") as more:
            more.write(b"on")
        await quiet_at(2)
        watching.close()

    asyncio.run(main())


def test_what_is_printed_after_a_quiet_time_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BEAT", 1000.0)
    log = tmp_path / "output.log"
    log.touch()

    async def main() -> None:
        told = asyncio.Event()
        watching = watch.Watch()
        watching.log("a", log, lambda at, hash: told.set())
        log.write_bytes(b"printed")
        await asyncio.wait_for(told.wait(), 20)
        watching.close()

    asyncio.run(main())


class Watched:
    """A log, what is told of it, and what goes wrong meanwhile."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.watching = watch.Watch()
        self.told: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self.wrong: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.wrong.append(context))
        self.watching.log("a", log, lambda at, hash: self.told.put_nowait((at, log.stat().st_size)))

    async def tells(self) -> tuple[int, int]:
        return await asyncio.wait_for(self.told.get(), 20)

    async def is_quiet(self) -> None:
        async with asyncio.timeout(20):
            while self.watching._busy:  # noqa: ASYNC110
                await asyncio.sleep(watch.BEAT)
        while not self.told.empty():
            self.told.get_nowait()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(watch, "BEAT", 0.01)
    log = tmp_path / "output.log"
    log.write_bytes(b"four")

    def tell(story: Callable[[Watched], Awaitable[None]]) -> None:
        async def main() -> None:
            one = Watched(log)
            await story(one)
            one.watching.close()
            assert one.wrong == []

        asyncio.run(main())

    return tell


def test_a_log_that_was_deleted_and_begun_anew_is_told_of_though_it_is_as_long(watched: Any) -> None:
    async def story(one: Watched) -> None:
        await one.is_quiet()
        # As its writer holds it, who has not noticed yet.
        with one.log.open("ab", buffering=0) as before:
            one.log.unlink()
            before.write(b"more")
            one.log.write_bytes(b"more")
            assert (await one.tells())[1] == 4
        await one.is_quiet()
        with one.log.open("ab") as now:
            now.write(b"on")
        assert (await one.tells())[1] == 6

    watched(story)


def test_what_becomes_of_a_deleted_file_is_nobodys_end(watched: Any) -> None:
    async def story(one: Watched) -> None:
        # It is busy still: nobody has looked whether it is quiet by now.
        with one.log.open("ab", buffering=0) as before:
            one.log.unlink()
            one.log.write_bytes(b"anew")
            await one.is_quiet()
            one.watching.forget_log("a")
            other = one.log.with_name("other")
            other.touch()
            heard = asyncio.Event()
            one.watching.log("b", other, lambda at, hash: heard.set())
            before.write(b"nobody asks for this")
            other.write_bytes(b"but for this")
            await asyncio.wait_for(heard.wait(), 20)

    watched(story)


def test_the_time_of_the_last_output_is_set_right(watched: Any) -> None:
    """Whoever takes it down reserves room just after, and only then has the log its own time again."""

    async def story(one: Watched) -> None:
        await one.is_quiet()
        printed_at = one.log.stat().st_mtime_ns + 5_000_000_000
        with one.log.open("ab") as now:
            now.write(b"more")
        os.utime(one.log, ns=(printed_at, printed_at + 40_000_000))
        assert await one.tells() == (printed_at // 1000 + 40_000, 8)
        os.utime(one.log, ns=(printed_at, printed_at))
        assert await one.tells() == (printed_at // 1000, 8)
        # A later time alone is none: nothing was printed.
        os.utime(one.log, ns=(printed_at, printed_at + 40_000_000))
        await one.is_quiet()
        assert one.told.empty()

    watched(story)


def flood(one: Watched) -> None:
    """Of what comes next the kernel cannot tell."""
    directory = one.log.with_name("directory")
    directory.mkdir()
    one.watching.directory(directory, lambda name: None, lambda: None)
    for number in range(QUEUED + 10):
        # Two of the same in a row are one.
        (directory / str(number % 2)).write_bytes(b"")


def test_a_log_is_heard_though_the_kernel_could_not_tell_of_it(watched: Any) -> None:
    async def story(one: Watched) -> None:
        await one.is_quiet()
        flood(one)
        with one.log.open("ab") as now:
            now.write(b"more")
        assert (await one.tells())[1] == 8

    watched(story)


def test_what_is_awaited_once_may_have_been_missed_when_the_kernel_could_not_tell_of_it(watched: Any) -> None:
    async def story(one: Watched) -> None:
        file, terminal = one.log.with_name("file"), one.log.with_name("terminal")
        for path in (file, terminal):
            path.write_bytes(b"x")
        told: asyncio.Queue[str] = asyncio.Queue()

        def await_both(suffix: str) -> None:
            one.watching.file(file, lambda: told.put_nowait(f"changed{suffix}"))
            read, missed = (partial(told.put_nowait, f"{word}{suffix}") for word in ("read", "missed"))
            one.watching.terminal(terminal, read, missed)

        async def two_told() -> set[str]:
            return {await asyncio.wait_for(told.get(), 20) for _ in range(2)}

        await_both("")
        flood(one)
        file.write_bytes(b"y")
        terminal.read_bytes()
        assert await two_told() == {"changed", "missed"}
        await_both(" again")
        file.write_bytes(b"z")
        terminal.read_bytes()
        assert await two_told() == {"changed again", "read again"}
        assert told.empty()

    watched(story)


def test_what_is_written_in_a_directory_may_have_been_missed(watched: Any) -> None:
    async def story(one: Watched) -> None:
        directory = one.log.with_name("attached")
        directory.mkdir()
        told: asyncio.Queue[str] = asyncio.Queue()
        one.watching.directory(directory, told.put_nowait, partial(told.put_nowait, "missed"))
        flood(one)
        (directory / "session").write_bytes(b"")
        assert await asyncio.wait_for(told.get(), 20) == "missed"
        (directory / "session").write_bytes(b"")
        assert await asyncio.wait_for(told.get(), 20) == "session"
        assert told.empty()

    watched(story)
