"""Work that may never come back, in threads of its own, which nobody waits for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
