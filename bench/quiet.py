"""What amuxd does, and what it holds, while a hundred sessions do nothing."""

import time

from bench import ground, imports
from bench.meters import Meter, Usage
from bench.table import Row, memory

SESSIONS = 100
SETTLE = 5.0
SECONDS = 120.0
# The watchdog, every 15 seconds: a timer and an answer. The sweep, every minute: a timer.
NEEDED = 2 * (SECONDS / 15 + 1) + SECONDS / 60 + 1
MOST_PROCESSOR = 0.001
MOST_MEMORY = 45


def measure() -> list[Row]:
    with ground.amux() as amux:
        ground.sessions(amux, SESSIONS)
        meter = Meter(amux)
        time.sleep(SETTLE)
        usage = meter.over(SECONDS)
        held, floor = meter.memory(), imports.memory(amux)
    return [*_rows(usage), memory(f"memory, {SESSIONS} sessions", held, floor, MOST_MEMORY)]


def _rows(usage: Usage) -> list[Row]:
    what = f"{SESSIONS} quiet sessions, {usage.seconds:.0f} s"
    return [
        Row(
            f"{what}: wake-ups",
            str(usage.wakeups),
            f"{NEEDED:.0f}",
            usage.wakeups / NEEDED,
            "watchdog and sweep",
            usage.wakeups <= NEEDED,
        ),
        Row(
            f"{what}: processor",
            f"{usage.share:.4%} of a core",
            goal=f"< {MOST_PROCESSOR:.1%}",
            met=usage.share < MOST_PROCESSOR,
        ),
    ]
