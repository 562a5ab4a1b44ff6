"""A look at a run, or into its directory, that does not come to an end takes nothing from the others."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from amuxd import processes
from amuxd.hosts import Alive, LaunchRefused, launcher, local
from amuxd.hosts.bare import Bare
from amuxd.hosts.local import LocalHost
from amuxd.records import Process, RunState, Session
from amuxd.states import State
from amuxd.store import Store

NOBODY = Process(2**22 + 1, 1)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(Bare(tmp_path), Store(tmp_path / "state"), tmp_path / "run", 1 << 22)


def session(directory: str = "/") -> Session:
    return Session("abc", "abc", ["true"], directory, 1)


def myself() -> Process:
    process = processes.identify(os.getpid())
    assert process is not None
    return process


def standing(server: Process) -> RunState:
    return RunState("abc", State.RUNNING, 1, 1, 1, "", "", command=myself(), server=server)


def held() -> int:
    # What other tests let go of is closed now, and not in between.
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("enclosure_answers", [True, False])
def test_a_look_holds_on_to_what_it_found_alone(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, enclosure_answers: bool
) -> None:
    async def look() -> None:
        before = held()
        if enclosure_answers:
            found = await host.find(session(), standing(myself()))
            assert isinstance(found, Alive)
            assert held() == before + 2
            found.home.close()
        else:
            with pytest.raises(RuntimeError, match="the bus"):
                await host.find(session(), standing(myself()))
        assert not isinstance(await host.find(session(), standing(NOBODY)), Alive)
        assert held() == before

    async def watch(_: str) -> None:
        if not enclosure_answers:
            raise RuntimeError("the bus does not answer")

    monkeypatch.setattr(host._enclosure, "watch", watch)
    asyncio.run(look())


def test_a_terminal_that_goes_away_as_it_opens_leaves_nothing_held() -> None:
    before = held()
    with pytest.raises(LaunchRefused, match="its terminal went away"):
        launcher._home(f"{os.getpid()} {NOBODY.pid}")
    assert held() == before


def test_directories_that_do_not_answer_keep_nothing_else_waiting(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(local, "check", lambda *_: answers.wait())

    async def story() -> None:
        monkeypatch.setattr(local, "CHECK_DEADLINE", 1000.0)
        starting = [asyncio.create_task(host.launch(session("/far"), 1, False)) for _ in range(100)]
        # Each of them has begun.
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await host.tear_down("other")
        assert not any(task.done() for task in starting)
        for task in starting:
            task.cancel()
        await asyncio.wait(starting)
        monkeypatch.setattr(local, "CHECK_DEADLINE", 1.0)
        late = "its directory /far, or its program, did not answer within 1 s"
        with pytest.raises(LaunchRefused, match=late):
            await host.launch(session("/far"), 1, False)

    try:
        asyncio.run(story())
    finally:
        answers.set()
