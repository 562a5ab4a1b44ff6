"""What a hundred sessions that print cost amuxd."""

import sys
import time

from bench import ground
from bench.meters import Meter
from bench.table import Row

SESSIONS = 100
LINES_A_SECOND = 100
SETTLE = 5.0
SECONDS = 30.0
MOST_PROCESSOR = 0.05

PRINTING = f"""
import os, time
number = 0
due = time.monotonic()
while True:
    number += 1
    os.write(1, b"this is line %d of many, and no longer than lines are\\n" % number)
    due += 1 / {LINES_A_SECOND}
    time.sleep(max(0, due - time.monotonic()))
"""


def measure() -> list[Row]:
    with ground.amux() as amux:
        sessions = ground.sessions(amux, SESSIONS, [sys.executable, "-I", "-S", "-c", PRINTING])
        meter = Meter(amux)
        time.sleep(SETTLE)
        before = [len(session.log().splitlines()) for session in sessions]
        usage = meter.over(SECONDS)
        lines = sum(len(session.log().splitlines()) for session in sessions) - sum(before)
        rate = lines / SESSIONS / usage.seconds
    return [
        Row(
            f"{SESSIONS} sessions, {rate:.0f} lines/s each: processor",
            f"{usage.share:.2%} of a core",
            goal=f"≤ {MOST_PROCESSOR:.0%}",
            met=usage.share <= MOST_PROCESSOR,
        ),
        Row(
            f"{SESSIONS} sessions, {rate:.0f} lines/s each: wake-ups",
            f"{usage.wakeups / usage.seconds:.1f} /s",
        ),
    ]
