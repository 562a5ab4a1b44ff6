"""Kills amuxd at each point of a scenario, and looks whether it comes back to the truth."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.bus import CallFailed
from harness.kill_scenarios import SCENARIOS, Scenario
from harness.kill_subject import Step, Subject
from harness.killable import Killable


@dataclass(frozen=True)
class Walk:
    """All points that amuxd came to, and what the session then says that it has passed."""

    reached: list[str]
    passed: set[Step]


def walk(amux: Killable, scenario: Scenario, directory: Path, point: int) -> Walk:
    """Kills amuxd at this point, if it comes to it."""
    subject = Subject(amux, directory, scenario.agent, scenario.in_slot, scenario.in_shell)
    try:
        return _walk(amux, scenario, subject, point)
    finally:
        subject.close()


def _walk(amux: Killable, scenario: Scenario, subject: Subject, point: int) -> Walk:
    scenario.before(subject)
    amux.arm(point)
    # A caller learns from the bus that amuxd is gone.
    failures = (CallFailed, TimeoutError) if point or scenario.is_refused else ()
    with contextlib.suppress(*failures):
        scenario.act(subject)
    reached = amux.disarm()
    died = 0 < point <= len(reached)
    if died:
        amux.wait_until_gone()
    subject.clear_the_way()
    if amux.has_ended:
        amux.start()
    try:
        subject.send_the_other_away()
        subject.check(scenario.allowed)
        passed = subject.passed
        subject.remove()
    except BaseException as error:
        error.add_note(f"killed at {reached[point - 1]}" if died else "not killed")
        # The next scenario is another one's.
        for name in amux.sessions(archived=("b", True)):
            amux.session(name).remove(force=True)
        raise
    return Walk(reached, passed)


class Firsts:
    """Which points of a scenario are in none before it, by what amuxd comes to when it is left alone."""

    def __init__(self, amux: Killable, directory: Path) -> None:
        self.passed: set[Step] = set()
        self._amux = amux
        self._directory = directory
        self._met: set[tuple[str, str, str]] = set()
        self._start: list[str] = []
        self._points: dict[str, list[int]] = {}
        self._looks = 0

    def of(self, name: str) -> list[int]:
        for earlier in SCENARIOS:
            if name not in self._points and earlier not in self._points:
                self._points[earlier] = self._look(earlier)
        return self._points[name]

    def _look(self, name: str) -> list[int]:
        scenario = SCENARIOS[name]
        self._looks += 1
        seen = walk(self._amux, scenario, self._directory / str(self._looks), 0)
        self.passed |= seen.passed
        points = []
        for point, kind in enumerate(self._kinds(scenario, [_alike(line) for line in seen.reached]), 1):
            if kind not in self._met:
                self._met.add(kind)
                points.append(point)
        return points

    def _kinds(self, scenario: Scenario, reached: list[str]) -> Iterator[tuple[str, str, str]]:
        """A point is what is about to be done, what was done before it, and the state that it is done for."""
        self._start = self._start or reached
        situation = ""
        for number, (before, what) in enumerate(itertools.pairwise(["", *reached])):
            if not situation and reached[: number + 1] != self._start[: number + 1]:
                situation = scenario.before.__name__
            if written := re.fullmatch(r" half of state\.json\S* (\w+)", what):
                situation = written[1]
            yield situation, before, what


def _alike(line: str) -> str:
    """Without ids, and the numbers of processes and descriptors."""
    return re.sub(r"\d+", "", re.sub(r"(?<=[/ -])[a-z][a-z0-9]{5}(?=[./'])", "ID", line))
