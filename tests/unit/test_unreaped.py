"""Without systemd, where process 1 takes away nothing that has ended, as in a container without an init."""

import asyncio
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
from harness.waiting import until

from amuxd.hosts import bare
from amuxd.hosts.bare import Bare

SESSION = "abc"
# What it has begun it never waits for.
NEGLECTFUL = f"{bare.MARK}={SESSION} sleep 1000 & exec sleep 1000"


@pytest.fixture
def enclosure(tmp_path: Path) -> Iterator[Bare]:
    with subprocess.Popen(["sh", "-c", NEGLECTFUL]) as parent:
        yield Bare(tmp_path / "tmux")
        parent.kill()


@pytest.mark.parametrize("verb", [Bare.stop, Bare.kill])
def test_what_has_ended_and_stays_a_zombie_is_not_waited_for(
    enclosure: Bare, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Bare, str], Coroutine[None, None, None]]
) -> None:
    until(lambda: asyncio.run(enclosure.members(SESSION)))
    # More than the time that both have: who waits for it is refused.
    monkeypatch.setattr(bare, "GRACE", 2 * (bare.DEADLINE + bare.LOOKS))
    asyncio.run(verb(enclosure, SESSION))
    assert asyncio.run(enclosure.members(SESSION)) == []
