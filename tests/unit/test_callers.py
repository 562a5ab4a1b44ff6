"""What waited for its turn is not begun once whoever asked for it has gone."""

import asyncio
import os
from pathlib import Path

import pytest
from standin_host import caller

from amuxd import helpers
from amuxd.errors import Busy
from amuxd.workspaces.repositories import Repositories

REPOSITORY = Path("/code/.git")


@pytest.mark.parametrize("stays", [True, False])
def test_who_has_gone_before_its_turn_is_not_served(stays: bool) -> None:
    served = []

    async def is_there() -> bool:
        return stays

    async def story() -> None:
        repositories = Repositories()

        async def serve() -> None:
            async with repositories.turn_of_caller(REPOSITORY):
                served.append("served")

        async with repositories.turn_of_caller(REPOSITORY):
            waiting = asyncio.get_running_loop().create_task(serve(), context=caller(is_there))
            await asyncio.sleep(0)
            assert not served
        if stays:
            await waiting
        else:
            with pytest.raises(Busy, match="has gone before it was begun"):
                await waiting
        # Neither holds up the next one.
        await asyncio.wait_for(serve(), 10)

    asyncio.run(story())
    assert served == ["served"] * (2 if stays else 1)


def test_what_is_mended_after_that_is_not_for_who_asked() -> None:
    async def has_gone() -> bool:
        return False

    async def mend() -> str:
        async with Repositories().turn(REPOSITORY):
            return "mended"

    async def story() -> str:
        mending = asyncio.get_running_loop().create_task(mend(), context=caller(has_gone))
        return await mending

    assert asyncio.run(story()) == "mended"


@pytest.mark.parametrize(("helper", "is_refused"), [("/code", True), ("/elsewhere", False), ("", False)])
def test_who_is_waited_for_by_what_it_waits_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, helper: str, is_refused: bool
) -> None:
    """As a hook is, whose session is that of the git that calls it."""
    at_work = {os.getsid(0): ["git", "-C", helper, "worktree", "add"]} if helper else {}
    monkeypatch.setattr(helpers, "_at_work", at_work)

    async def is_there() -> bool:
        return True

    async def story() -> None:
        repositories = Repositories()

        async def serve() -> None:
            async with repositories.turn_of_caller(REPOSITORY):
                pass

        async with repositories.turn(REPOSITORY):
            asking = asyncio.get_running_loop().create_task(serve(), context=caller(is_there))
            if is_refused:
                with pytest.raises(Busy, match="another worktree of the repository waits for that hook"):
                    await asking
        if not is_refused:
            await asking

    asyncio.run(story())
