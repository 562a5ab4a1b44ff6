"""Work that may never come back, in threads of its own, which nobody waits for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


async def alone(work: Callable[[], Result], patience: float | None = None) -> Result:
    """Raises what the work raises, and TimeoutError where it took longer: then it holds up its own thread."""
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    # Where amuxd ends meanwhile, it does not wait for it either.
    threading.Thread(target=do, daemon=True).start()
    async with asyncio.timeout(patience):
        return await asyncio.wrap_future(outcome)


_under_way: dict[str, asyncio.Future[Any]] = {}


async def one_at_a_time(place: str, work: Callable[[], Result], patience: float) -> Result:
    """Raises TimeoutError where the place does not answer: that holds up one thread, however often, and
    whatever, it is asked."""
    if patience <= 0:
        # Not even begun: whoever has no time left would hold up a thread in vain.
        raise TimeoutError
    async with asyncio.timeout(patience):
        # An answer to who came before may be older than what made this one ask.
        while earlier := _under_way.get(place):
            await asyncio.wait({earlier})
        answer = _under_way[place] = asyncio.ensure_future(alone(work))
        answer.add_done_callback(partial(_answered, place))
        result: Result = await asyncio.shield(answer)
        return result


def _answered(place: str, answer: asyncio.Future[Any]) -> None:
    del _under_way[place]
    # An error that comes when nobody waits any more is nobody's.
    if not answer.cancelled():
        answer.exception()


def is_asked(place: str) -> bool:
    return place in _under_way
