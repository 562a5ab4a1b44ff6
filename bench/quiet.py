"""What amuxd does, and what it holds, while a hundred sessions do nothing."""

import time

from bench import ground, imports
from bench.meters import Meter, Usage, floor, over
from bench.table import Row, memory, processor

SESSIONS = 100
SETTLE = 5.0
SECONDS = 120.0
# The watchdog, every 15 seconds: a timer and an answer. The sweep, every minute: a timer, a thread that sees
# to the room which is kept on the disk, and its answer.
NEEDED = 2 * (SECONDS / 15 + 1) + 3 * (SECONDS / 60 + 1)
MOST_PROCESSOR = 0.001
MOST_MEMORY = 45


def measure() -> list[Row]:
    with ground.amux() as amux:
        sessions = ground.sessions(amux, SESSIONS)
        meter = Meter(amux.machine)
        with floor(amux, sessions) as bare:
            time.sleep(SETTLE)
            usage, least = over(SECONDS, meter, bare)
        held, imported = meter.memory(), imports.memory(amux)
    return [*_rows(usage, least), memory(f"memory, {SESSIONS} sessions", held, imported, MOST_MEMORY)]


def _rows(usage: Usage, least: Usage) -> list[Row]:
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
        processor(f"{what}: processor", least.share, usage.share, MOST_PROCESSOR),
    ]
