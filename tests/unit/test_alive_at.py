"""That a command lives is written down only of one that does, whatever amuxd has heard yet."""

import asyncio
import select
from pathlib import Path

from standin_host import World, in_world

from amuxd.supervisor import now


def test_no_later_than_its_end_though_nobody_has_told_of_that(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.create(None, "sleep", "1000")
        await world.runs.start(entry)
        assert entry.home is not None
        before = now()
        await world.supervisor.amend(entry, reason="written before its end")
        assert entry.state.alive_at >= before
        world.watch.forget_process(entry.home.command_fd)
        world.host.processes[0].kill()
        poll = select.poll()
        poll.register(entry.home.command_fd, select.POLLIN)
        assert await asyncio.to_thread(poll.poll, 20_000)
        ended = now()
        await world.supervisor.amend(entry, reason="written after its end")
        assert entry.state.reason == "written after its end"
        assert before <= entry.state.alive_at <= ended

    asyncio.run(in_world(tmp_path, story))
