"""A home that is left while somebody still looks how its run ended."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amuxd import processes
from amuxd.hosts import Home, ServerEnd, ends
from amuxd.hosts.bare import Bare
from amuxd.hosts.ends import Ends
from amuxd.hosts.launcher import hold
from amuxd.hosts.layout import Layout
from amuxd.hosts.pipes import readable_within
from amuxd.records import Session
from amuxd.states import End
from amuxd.store import Store

SESSION = Session("abc", "abc", ["sleep", "1000"], "/", 1)


@pytest.fixture
def home() -> Iterator[Home]:
    running = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    command, server = (processes.identify(process.pid) for process in running)
    held = hold(command, server)
    assert held
    yield held
    held.close()
    for process in running:
        process.kill()
        process.wait()


class Ending(Bare):
    """All of it is being ended, and how the terminal server ends is not told."""

    def __init__(self, sockets: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(sockets)
        self._meanwhile = meanwhile

    async def is_ending(self, session_id: str) -> bool:
        return True

    async def server_end(self, session_id: str) -> ServerEnd:
        self._meanwhile()
        return ServerEnd("")


@pytest.mark.parametrize("when", ["before", "while"])
def test_it_is_not_known_how_its_terminal_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Home, when: str
) -> None:
    monkeypatch.setattr(ends, "STATUS_DEADLINE", 0.2)

    async def story() -> End:
        def leave() -> None:
            if when == "before":
                home.close()
            else:
                asyncio.get_running_loop().call_later(0.05, home.close)

        os.kill(home.command.pid, signal.SIGTERM)
        await asyncio.to_thread(os.waitid, os.P_PIDFD, home.command_fd, os.WEXITED | os.WNOWAIT)
        enclosure = Ending(tmp_path / "tmux", leave)
        return await Ends(enclosure, Store(tmp_path), Layout(tmp_path)).end_of(SESSION, 1, home)

    assert asyncio.run(story()) == End(signal="SIGTERM", core_dumped=False, terminal_died="how is not known")


def test_a_descriptor_that_is_closed_is_watched_to_its_end_and_no_other_in_its_place() -> None:
    async def story() -> Any:
        reading, writing = os.pipe()
        waiting = asyncio.create_task(readable_within(reading, 30))
        await asyncio.sleep(0)
        os.close(reading)
        # Another file bears its number now.
        other, _ = others = os.pipe()
        assert other == reading
        os.write(writing, b"x")
        told = await waiting, await readable_within(-1, 30)
        for fd in (*others, writing):
            os.close(fd)
        return told

    assert asyncio.run(story()) == (True, False)
