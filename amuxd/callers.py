"""Who asked for what is being done: what waits for its turn is not always to be done when that comes."""

import os
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass

from amuxd import helpers
from amuxd.errors import Busy


@dataclass(frozen=True)
class Caller:
    is_there: Callable[[], Awaitable[bool]]
    # Its process; 0 where nobody can tell.
    pid: Callable[[], Awaitable[int]]


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def context_of(caller: Caller) -> Context:
    """That in which what somebody asked for is to be done."""
    context = copy_context()
    context.run(_caller.set, caller)
    return context


async def refuse_gone() -> None:
    """Before it begins; what has begun is done to its end. Whoever gave up need not find it done later."""
    caller = _caller.get()
    if caller is not None and not await caller.is_there():
        raise Busy("whoever asked for it has gone before it was begun")


async def refuse_waited_for(repository: str) -> None:
    """A hook that waits for what waits for its git would wait until that is given up."""
    caller = _caller.get()
    if caller is None or not (pid := await caller.pid()):
        return
    try:
        is_waited_for = repository in helpers.words_to(os.getsid(pid))
    except ProcessLookupError:
        return
    if is_waited_for:
        raise Busy("a hook of git asks for it, and another worktree of the repository waits for that hook")
