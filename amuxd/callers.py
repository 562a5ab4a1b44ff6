"""Who asked for what is being done: whoever gave up while it waited its turn need not find it done later."""

from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context

from amuxd.errors import Busy

_is_there: ContextVar[Callable[[], Awaitable[bool]] | None] = ContextVar("is_there", default=None)


def context_of(is_there: Callable[[], Awaitable[bool]]) -> Context:
    """That in which what somebody asked for is to be done."""
    context = copy_context()
    context.run(_is_there.set, is_there)
    return context


async def refuse_gone() -> None:
    """Before it begins; what has begun is done to its end."""
    is_there = _is_there.get()
    if is_there is not None and not await is_there():
        raise Busy("whoever asked for it has gone before it was begun")
