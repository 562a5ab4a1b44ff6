"""What is done in the threads for the disk, and when that is told."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from amuxd.disk import Disk, Together


def test_everybody_gets_their_own_answer() -> None:
    async def story() -> None:
        run = Disk(threads=4).run
        assert await asyncio.gather(*(run(pow, number, 2) for number in range(200))) == [
            number**2 for number in range(200)
        ]
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 1, 0)

    asyncio.run(story())


def test_what_was_done_while_the_loop_was_busy_wakes_it_once() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        run, told, is_done = Disk(threads=1).run, 0, threading.Event()
        wake = loop.call_soon_threadsafe

        def counted(*arguments: object) -> asyncio.Handle:
            nonlocal told
            told += 1
            return wake(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[assignment]
        asking: list[asyncio.Future[Any]] = [asyncio.ensure_future(run(int)) for _ in range(50)]
        asking.append(asyncio.ensure_future(run(is_done.set)))
        # Each asks in its first step, and the loop stands still until all is done.
        loop.call_soon(is_done.wait)
        await asyncio.gather(*asking)
        assert told <= 2

    asyncio.run(story())


def test_what_nobody_waits_for_any_more_is_not_begun_and_holds_up_nothing() -> None:
    async def story() -> None:
        run, go_on = Disk(threads=1).run, threading.Event()
        begun: list[str] = []
        first = asyncio.ensure_future(run(go_on.wait, 60))
        second = asyncio.ensure_future(run(begun.append, "second"))
        third = asyncio.ensure_future(run(str, "third"))
        await asyncio.sleep(0)
        for given_up in (first, second):
            given_up.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert await third == "third"
        assert begun == []

    asyncio.run(story())


def test_an_answer_that_comes_after_the_loop_has_ended_is_nobodys() -> None:
    threads, begun, go_on = Disk(threads=1), threading.Event(), threading.Event()

    def late() -> None:
        begun.set()
        go_on.wait(60)

    async def story() -> None:
        asking = asyncio.ensure_future(threads.run(late))
        await asyncio.to_thread(begun.wait, 60)
        asking.cancel()

    asyncio.run(story())
    go_on.set()

    async def next_story() -> str:
        return await threads.run(str, "next")

    assert asyncio.run(next_story()) == "next"


def test_what_is_asked_for_in_one_turn_is_done_in_parts() -> None:
    parts: list[int] = []

    def do(items: Sequence[int]) -> list[bool]:
        parts.append(len(items))
        return [item % 2 == 0 for item in items]

    async def story() -> None:
        together = Together(Disk(threads=2), do, at_most=8)
        assert await asyncio.gather(*(together.done(item) for item in range(20))) == [True, False] * 10
        assert sorted(parts) == [4, 8, 8]
        parts.clear()
        # Of few, too, each thread has its part.
        await asyncio.gather(*(together.done(item) for item in range(5)))
        assert sorted(parts) == [2, 3]
        assert await together.done(2)

    asyncio.run(story())


def test_what_fails_as_a_whole_is_not_done() -> None:
    def do(items: Sequence[int]) -> list[bool]:
        raise MemoryError

    async def story() -> None:
        together = Together(Disk(threads=1), do, at_most=8)
        given_up = asyncio.ensure_future(together.done(0))
        await asyncio.sleep(0)
        given_up.cancel()
        assert list(await asyncio.gather(together.done(1), together.done(2))) == [False, False]

    asyncio.run(story())
