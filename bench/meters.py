"""What amuxd, and its floor, use: time on the processor, wake-ups, memory."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.client import Session
from harness.daemon import Amux
from harness.machine import Machine

from bench import watcher

WATCHER = "bench-watcher.service"


@dataclass(frozen=True)
class Usage:
    seconds: float
    processor: float
    wakeups: int

    @property
    def share(self) -> float:
        """Of one core."""
        return self.processor / self.seconds


class Meter:
    def __init__(self, machine: Machine, unit: str = "amuxd.service") -> None:
        shown = machine.systemctl("show", "--property=MainPID,ControlGroup", unit)
        properties = dict(line.split("=", 1) for line in shown.splitlines())
        self._process = Path(f"/proc/{machine.outside_pid(int(properties['MainPID']))}")
        self._statistics = machine.outside(f"/sys/fs/cgroup{properties['ControlGroup']}/cpu.stat")

    def memory(self) -> tuple[int, int]:
        """In bytes: what is resident, and its proportional share of that."""
        return memory_of(self._process)

    def processor(self) -> float:
        """Of the unit, so of its short-lived helpers as well."""
        line = next(
            line for line in self._statistics.read_text().splitlines() if line.startswith("usage_usec")
        )
        return int(line.split()[1]) / 1e6

    def wakeups(self) -> int:
        """How often one of its threads had gone to sleep."""
        total = 0
        for thread in (self._process / "task").iterdir():
            lines = (thread / "status").read_text().splitlines()
            total += next(
                int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")
            )
        return total


def over(seconds: float, *meters: Meter) -> list[Usage]:
    """Of all in the same time, so that they meet the same weather."""
    before = [(time.monotonic(), meter.processor(), meter.wakeups()) for meter in meters]
    time.sleep(seconds)
    return [
        Usage(time.monotonic() - began, meter.processor() - processor, meter.wakeups() - wakeups)
        for meter, (began, processor, wakeups) in zip(meters, before, strict=True)
    ]


@contextmanager
def floor(amux: Amux, sessions: Sequence[Session]) -> Iterator[Meter]:
    """Who looks after the same sessions, in a unit as amuxd is."""
    bus = f"unix:path={amux.machine.runtime}/bus"
    watched = [word for one in sessions for word in (str(one.get("Pid")), one.get("LogPath"))]
    command = [sys.executable, watcher.__file__, bus, *watched]
    run = ["systemd-run", "--user", "--quiet", "--service-type=notify", f"--unit={WATCHER}", "--"]
    amux.machine.run([*run, *command])
    try:
        yield Meter(amux.machine, WATCHER)
    finally:
        amux.machine.systemctl("stop", WATCHER)


def memory_of(process: Path) -> tuple[int, int]:
    sizes = {}
    for line in (process / "smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        sizes[name] = int(size) * 1024
    return sizes["Rss:"], sizes["Pss:"]
