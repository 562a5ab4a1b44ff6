"""A conversation is that of the run in which it was seen, however long it took to find out."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import conversations, learning
from amuxd.agents import Agent, Kept
from amuxd.events import Events
from amuxd.learning import Learning
from amuxd.registry import Entry
from amuxd.states import End, State
from amuxd.store import Known

# It chooses its conversation itself, and can be parked without it.
CHOOSER = Agent(
    "chooser", ("sleep", "1000"), resume=("sleep", "2000"), kept=Kept("X", "x", "r-{conversation}.jsonl")
)

Meanwhile = Callable[[World, Entry], Awaitable[object]]


class Slow:
    """What takes until it is told to go on."""

    def __init__(self, answer: str) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self._answer = answer

    def __call__(self, *_: object, **__: object) -> str:
        self.asked.set()
        assert self.go_on.wait(30)
        return self._answer

    async def during(self, happens: Awaitable[object]) -> None:
        assert await asyncio.to_thread(self.asked.wait, 20)
        await happens
        self.go_on.set()


async def restarted(world: World, entry: Entry) -> None:
    await stopped(world, entry)
    await world.runs.restart(entry)


async def stopped(world: World, entry: Entry) -> None:
    await world.runs.stop(entry, 1)


async def parked_and_back(world: World, entry: Entry) -> None:
    await world.runs.parking.park(entry)
    await world.runs.parking.bring_back(entry)


@pytest.mark.parametrize(
    ("meanwhile", "learnt"), [(restarted, ""), (parked_and_back, ""), (stopped, "of-run-1")]
)
def test_what_is_found_late_is_of_the_run_that_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile, learnt: str
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        find = Slow("of-run-1")
        monkeypatch.setattr(conversations, "find", find)
        before = set(world.supervisor._tasks)
        Learning(world.supervisor, world.host).printed(entry)
        looking = set(world.supervisor._tasks) - before
        await find.during(meanwhile(world, entry))
        await asyncio.gather(*looking)
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert entry.state.conversation_id == known.state.conversation_id == learnt

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize(
    ("known", "told", "found", "belongs"),
    [
        ("ours", "ours", "", True),
        ("ours", "ours", "another", True),
        # Or one that a helper of the agent has.
        ("ours", "a-title", "ours", False),
        ("", "a-title", "ours", False),
        ("", "ours", "ours", True),
        # The person has begun another one.
        ("ours", "new", "new", True),
        # Nothing can be seen of what it keeps: better told once too often.
        ("ours", "another", "", True),
        ("", "another", "", True),
    ],
)
def test_whether_a_session_is_in_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, told: str, found: str, belongs: bool
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        learning = Learning(world.supervisor, world.host)
        assert await learning.learn(entry, known, 1)
        monkeypatch.setattr(conversations, "find", lambda *_: found)
        assert await learning.is_in(entry, told) == belongs
        # And is followed there at once.
        assert entry.state.conversation_id == (known if told == known else found or known)

    asyncio.run(in_world(tmp_path, story))


def test_what_an_agent_says_of_a_conversation_of_its_own_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        events = Events(world.runs)
        await events.listen(tmp_path / "socket")
        monkeypatch.setattr(conversations, "find", lambda *_: "ours")
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
        report = {"type": "session.report", "sessionId": entry.id, "kind": "turn"}
        report["token"] = world.store.token(entry.id, 1)
        for conversation, waits in (("a-title", ""), ("ours", "turn")):
            writer.write(json.dumps({**report, "conversation": conversation}).encode() + b"\n")
            assert json.loads(await reader.readline()) == {"type": "ok"}
            assert entry.state.attention == waits
        writer.close()
        events.close()

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("kind", ["conversation", "permission"])
def test_a_report_is_of_the_run_whose_token_it_has(tmp_path: Path, kind: str) -> None:
    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        token = Slow(world.store.token(entry.id, 1))
        world.store.token = token  # type: ignore[method-assign]
        events = Events(world.runs)
        await events.listen(tmp_path / "socket")
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
        report = {"type": "session.report", "sessionId": entry.id, "kind": kind, "message": "of-run-1"}
        writer.write(json.dumps({**report, "token": token._answer}).encode() + b"\n")
        await token.during(restarted(world, entry))
        assert json.loads(await reader.readline())["code"] == "AccessDenied"
        assert (entry.state.run, entry.state.conversation_id, entry.state.attention) == (2, "", "")
        writer.close()
        events.close()

    asyncio.run(in_world(tmp_path, story))


async def suspended(world: World, entry: Entry) -> None:
    await world.runs.suspend("amuxd was stopped")


async def looked_at_again(world: World, entry: Entry) -> None:
    Learning(world.supervisor, world.host).printed(entry)
    await world.until(lambda: entry.state.conversation_id == "another")


@pytest.mark.parametrize("then", [stopped, suspended, looked_at_again])
def test_one_that_goes_over_to_another_conversation_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Meanwhile
) -> None:
    monkeypatch.setattr(learning, "LOOK_AGAIN", 0.01 if then is looked_at_again else 1000)

    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        monkeypatch.setattr(conversations, "find", lambda *_: "one")
        Learning(world.supervisor, world.host).printed(entry)
        await world.until(lambda: entry.state.conversation_id == "one")
        monkeypatch.setattr(conversations, "find", lambda *_: "another")
        await then(world, entry)
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert entry.state.conversation_id == known.state.conversation_id == "another"
        # What is not certain changes nothing.
        monkeypatch.setattr(conversations, "find", lambda *_: "")
        await world.runs.homes.learn_last(entry)
        assert entry.state.conversation_id == "another"

    asyncio.run(in_world(tmp_path, story))


def test_an_agent_whose_files_do_not_answer_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "LAST_DEADLINE", 0.01)

    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        find = Slow("")
        monkeypatch.setattr(conversations, "find", find)
        await world.runs.stop(entry, 1)
        find.go_on.set()
        assert entry.state.state is State.STOPPED

    asyncio.run(in_world(tmp_path, story))


@pytest.mark.parametrize("then", [stopped, suspended])
def test_a_fault_of_the_search_keeps_no_session_from_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Meanwhile
) -> None:
    def find(*_: object) -> str:
        raise RuntimeError("nobody has thought of that")

    async def story(world: World) -> None:
        entries = [await world.start(CHOOSER) for _ in range(3)]
        monkeypatch.setattr(conversations, "find", find)
        await then(world, entries[0])
        for entry in entries if then is suspended else entries[:1]:
            known = world.store.load(entry.id)
            assert isinstance(known, Known)
            assert known.state.state is (State.SUSPENDED if then is suspended else State.STOPPED)

    asyncio.run(in_world(tmp_path, story))


def test_what_cannot_be_told_of_an_end_keeps_no_session_from_being_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end_of(*_: object) -> End:
        raise RuntimeError("nobody has thought of that")

    async def story(world: World) -> None:
        entries = [await world.start(CHOOSER) for _ in range(2)]
        ended = entries[0]
        monkeypatch.setattr(world.host, "end_of", end_of)
        world.host.processes[0].kill()
        await ended.ended.wait()
        await world.runs.suspend("amuxd was stopped")
        for entry in entries:
            known = world.store.load(entry.id)
            assert isinstance(known, Known)
            assert known.state.state is State.SUSPENDED

    asyncio.run(in_world(tmp_path, story))


def test_files_that_hang_hold_up_one_thread_however_often_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "DEADLINE", 0.05)
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def hang(*_question: object) -> str:
        asked.append(threading.current_thread())
        begun.set()
        assert go_on.wait(30)
        return "c1"

    monkeypatch.setattr(conversations, "find", hang)

    async def story(world: World) -> None:
        entry = await world.start(CHOOSER)
        learner = Learning(world.supervisor, world.host)
        try:
            for _ in range(3):
                assert await learner.is_in(entry, "another")
            assert await asyncio.to_thread(begun.wait, 30)
            assert len(asked) == 1
        finally:
            go_on.set()
        await asyncio.to_thread(asked[0].join)

    asyncio.run(in_world(tmp_path, story))
