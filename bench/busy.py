"""What a hundred sessions that print cost amuxd."""

import sys
import time

from bench import ground
from bench.meters import Meter, floor, over
from bench.table import Row, processor

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
        with floor(amux, sessions) as bare:
            time.sleep(SETTLE)
            before = [len(session.log().splitlines()) for session in sessions]
            usage, least = over(SECONDS, Meter(amux.machine), bare)
            lines = sum(len(session.log().splitlines()) for session in sessions) - sum(before)
        rate = lines / SESSIONS / usage.seconds
    what = f"{SESSIONS} sessions, {rate:.0f} lines/s each"
    return [
        processor(f"{what}: processor", least.share, usage.share, MOST_PROCESSOR),
        Row(f"{what}: wake-ups", f"{usage.wakeups / usage.seconds:.1f} /s"),
    ]
