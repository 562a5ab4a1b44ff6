"""What amuxd uses: time on the processor, wake-ups, memory."""

import time
from dataclasses import dataclass
from pathlib import Path

from harness.daemon import Amux


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
    def __init__(self, amux: Amux) -> None:
        self._process = Path(f"/proc/{amux.machine.outside_pid(amux.pid)}")
        group = amux.machine.systemctl("show", "--property=ControlGroup", "--value", "amuxd.service")
        self._statistics = amux.machine.outside(f"/sys/fs/cgroup{group}/cpu.stat")

    def over(self, seconds: float) -> Usage:
        began, processor, wakeups = time.monotonic(), self._processor(), self._wakeups()
        time.sleep(seconds)
        took = time.monotonic() - began
        return Usage(took, self._processor() - processor, self._wakeups() - wakeups)

    def memory(self) -> tuple[int, int]:
        """In bytes: what is resident, and its proportional share of that."""
        return memory_of(self._process)

    def _processor(self) -> float:
        """Of the unit, so of its short-lived helpers as well."""
        line = next(
            line for line in self._statistics.read_text().splitlines() if line.startswith("usage_usec")
        )
        return int(line.split()[1]) / 1e6

    def _wakeups(self) -> int:
        """How often one of its threads had gone to sleep."""
        total = 0
        for thread in (self._process / "task").iterdir():
            lines = (thread / "status").read_text().splitlines()
            total += next(
                int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")
            )
        return total


def memory_of(process: Path) -> tuple[int, int]:
    sizes = {}
    for line in (process / "smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        sizes[name] = int(size) * 1024
    return sizes["Rss:"], sizes["Pss:"]
