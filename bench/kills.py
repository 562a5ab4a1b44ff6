"""amuxd killed at each point of what it does, and whether what it tells afterwards is true."""

import traceback
from pathlib import Path

from harness.bus import CallFailed
from harness.kill_points import Firsts, walk
from harness.kill_scenarios import SCENARIOS
from harness.killable import Killable
from harness.machine import Machine

from bench.table import Row


def measure() -> list[Row]:
    points = true = 0
    with Machine() as machine:
        amux = Killable(machine)
        try:
            amux.start()
            directory = machine.temporary
            firsts = Firsts(amux, _made(directory / "firsts"))
            for number, (name, scenario) in enumerate(SCENARIOS.items()):
                within = _made(directory / f"scenario-{number}")
                for point in firsts.of(name):
                    points += 1
                    try:
                        walk(amux, scenario, within / str(point), point)
                        true += 1
                    except (AssertionError, CallFailed, TimeoutError):
                        traceback.print_exc()
        finally:
            amux.close()
    said = f"{true} of {points}"
    return [
        Row("kill points enumerated, truthful after restart", said, goal="all", met=true == points),
    ]


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
