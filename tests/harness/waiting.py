"""A deadline for where nothing tells of the change that a test waits for."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")


# Called with nothing; but a lambda that binds a loop's variable by default is no Callable[[], T] to mypy.
def until(
    predicate: Callable[..., T | Literal[False, 0] | None], timeout: float = 60, interval: float = 0.01
) -> T:
    """The first true result of the predicate; TimeoutError names the last one."""
    deadline = time.monotonic() + timeout
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout} s; the last result was {result!r}")
        time.sleep(interval)
