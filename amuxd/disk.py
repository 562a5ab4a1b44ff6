"""Threads for what may wait for a disk."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from amuxd.scheduling import ask_for_short_turns

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class Disk:
    """For one loop, which is woken once for all that was done until it looks, and in a flood not for each."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, "disk", initializer=ask_for_short_turns)
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_loop_woken = False

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """What nobody waits for any more is not begun."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        self._pool.submit(self._do, loop, answer, work, arguments)
        return await answer

    def _do(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
        work: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> None:
        if answer.cancelled():
            return
        try:
            self._done.append((answer, work(*arguments), None))
        except BaseException as error:
            self._done.append((answer, None, error))
        if not self._is_loop_woken:
            self._is_loop_woken = True
            try:
                loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                # The loop is over, and so are those who waited.
                self._done.clear()
                self._is_loop_woken = False

    def _tell(self) -> None:
        # First: what is done from here on may miss this look.
        self._is_loop_woken = False
        while self._done:
            answer, result, error = self._done.popleft()
            if answer.cancelled():
                continue
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)


class Together(Generic[Item]):
    """What is asked for in one turn of the loop is done side by side, a part of it in each thread."""

    def __init__(self, disk: Disk, do: Callable[[Sequence[Item]], Sequence[bool]], at_most: int) -> None:
        self._disk = disk
        self._do = do
        self._at_most = at_most
        self._asked: list[tuple[Item, asyncio.Future[bool]]] = []
        self._parts: set[asyncio.Task[None]] = set()

    async def done(self, item: Item) -> bool:
        """False: nothing of it was."""
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._begin)
        answer: asyncio.Future[bool] = loop.create_future()
        self._asked.append((item, answer))
        return await answer

    def _begin(self) -> None:
        asked, self._asked = self._asked, []
        size = min(self._at_most, math.ceil(len(asked) / self._disk.threads))
        for start in range(0, len(asked), size):
            part = asyncio.get_running_loop().create_task(self._do_part(asked[start : start + size]))
            self._parts.add(part)
            part.add_done_callback(self._parts.discard)

    async def _do_part(self, asked: list[tuple[Item, asyncio.Future[bool]]]) -> None:
        try:
            done = await self._disk.run(self._do, [item for item, _ in asked])
        except Exception:
            logger.exception("what was to be done together is done one by one")
            done = [False] * len(asked)
        for (_, answer), is_done in zip(asked, done, strict=True):
            if not answer.done():
                answer.set_result(is_done)
