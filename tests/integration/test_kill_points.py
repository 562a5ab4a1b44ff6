"""amuxd is killed at each point of each transition, and tells the truth when it is back.

Many scenarios pass the same points of the same transition: make test kills at each of them in the first that
comes to it, and make nightly in every one.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.kill_points import Firsts, walk
from harness.kill_scenarios import SCENARIOS
from harness.kill_subject import LEGAL
from harness.killable import Killable
from harness.machine import Machine

from amuxd.states import State


@pytest.fixture(scope="module")
def killable() -> Iterator[Killable]:
    """In a machine where amuxd was installed before, whoever asks for it would have the bus start it."""
    with Machine() as machine:
        amux = Killable(machine)
        try:
            amux.start()
            yield amux
        finally:
            amux.close()


@pytest.fixture(scope="module")
def firsts(killable: Killable, tmp_path_factory: pytest.TempPathFactory) -> Firsts:
    return Firsts(killable, tmp_path_factory.mktemp("firsts"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_each_point_amuxd_comes_back_to_the_truth(
    killable: Killable, firsts: Firsts, name: str, tmp_path: Path
) -> None:
    for point in firsts.of(name):
        walk(killable, SCENARIOS[name], tmp_path / str(point), point)


def test_the_scenarios_pass_every_transition(firsts: Firsts) -> None:
    """But for those of containers: only what is in one can be stale, or stopped while nobody looked."""
    of_containers = {step for step in LEGAL if State.STALE in step} | {(State.SUSPENDED, State.STOPPED)}
    for name in SCENARIOS:
        firsts.of(name)
    assert firsts.passed == LEGAL - of_containers


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENARIOS)
def test_and_whatever_came_before_that_point(killable: Killable, name: str, tmp_path: Path) -> None:
    for point in itertools.count(1):
        reached = walk(killable, SCENARIOS[name], tmp_path / str(point), point).reached
        if len(reached) < point:
            break
    assert point > 1
