"""The command that is shown is the one that was run."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from standin_host import World, in_world

from amuxd import conversations
from amuxd.agents import Agent, Kept
from amuxd.questions import Questions
from amuxd.registry import Entry
from amuxd.store import Known

# As claude: it may be resumed before anything was said, and then begins.
AGENT = Agent(
    "agent",
    ("sh", "-c", "exec sleep 1000", "{conversation}"),
    resume=("sh", "-c", "exec sleep 2000", "{conversation}"),
    kept=Kept("KEPT", "kept", "{conversation}.jsonl", re.compile(b"said")),
)


def run(world: World) -> list[str]:
    arguments = world.host.processes[-1].args
    assert isinstance(arguments, list)
    return [str(word) for word in arguments]


async def stopped_and_resumed(world: World, entry: Entry) -> None:
    await world.runs.stop(entry, 1)
    await world.runs.resume(entry)


async def parked_and_back(world: World, entry: Entry) -> None:
    await world.runs.parking.park(entry)
    await world.runs.parking.bring_back(entry)


AGAIN: list[Callable[[World, Entry], Awaitable[None]]] = [stopped_and_resumed, parked_and_back]


@pytest.mark.parametrize("said", [False, True])
@pytest.mark.parametrize("again", AGAIN)
def test_of_one_that_was_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: Callable[[World, Entry], Awaitable[None]],
    said: bool,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    async def story(world: World) -> None:
        entry = await world.start(AGENT)
        assert conversations.command(entry) == run(world)
        if said:
            file = tmp_path / "home" / "kept" / f"{entry.state.conversation_id}.jsonl"
            file.parent.mkdir(parents=True)
            file.write_text("said\n")
        await again(world, entry)
        assert conversations.command(entry) == run(world)
        assert conversations.command(entry)[2] == ("exec sleep 2000" if said else "exec sleep 1000")
        known = world.store.load(entry.id)
        assert isinstance(known, Known)
        assert known.state.agent_command == run(world)

    asyncio.run(in_world(tmp_path / "state", story))


def test_what_goes_on_with_the_words_that_it_began_with_is_asked_once(
    tmp_path: Path,
) -> None:
    words = ("sh", "-c", "exec sleep 1000")
    agent = Agent("agent", words, resume=words, questions=Questions())

    async def story(world: World) -> None:
        entry = await world.create(agent, "why?", "--verbose")
        await world.runs.start(entry)
        assert run(world) == conversations.command(entry) == [*words, "why?", "--verbose"]
        assert conversations.plan(entry, resuming=True).shown == [*words, "--verbose"]

    asyncio.run(in_world(tmp_path, story))


def test_whatever_becomes_of_the_profile_and_the_conversation(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        entry = await world.start(AGENT)
        entry.agent = replace(AGENT, start=("other", "{conversation}"))
        assert await world.runs.homes.learn_conversation(entry, "another", 1)
        assert conversations.command(entry) == run(world)
        # Of what has not begun yet, what it would be.
        waiting = await world.create(AGENT)
        assert conversations.command(waiting) == ["sh", "-c", "exec sleep 1000", "{conversation}"]

    asyncio.run(in_world(tmp_path, story))
