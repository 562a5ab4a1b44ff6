"""What is done with repositories: in threads of their own, and one worktree of each after the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from amuxd import callers
from amuxd.workspaces.planning import repository_of

Result = TypeVar("Result")


class Repositories:
    def __init__(self) -> None:
        # A repository that hangs holds up no session. amuxd waits for these when it ends.
        self._threads = ThreadPoolExecutor(16, "worktrees")
        self._turns: dict[Path, asyncio.Lock] = {}

    async def work(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def turn(self, repository: Path) -> asyncio.Lock:
        """git itself takes one worktree after the other in a repository."""
        return self._turns.setdefault(repository, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def turn_of_caller(self, repository: Path) -> AsyncIterator[None]:
        """For what somebody asked for, and not for what is mended after that."""
        turn = self.turn(repository)
        if turn.locked():
            await callers.refuse_waited_for(str(repository_of(repository)))
        async with turn:
            await callers.refuse_gone()
            yield
