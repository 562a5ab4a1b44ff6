"""From a resting agent to a running one, beyond what its own program takes."""

import time

from harness.client import Session
from harness.daemon import Amux

from bench import ground
from bench.samples import interleaved, p50, p99
from bench.table import Floor, Row, against, within

ROUNDS = 40
LONGEST_RESUME = 0.200
# A program that takes no time by itself, and does not mind which conversation it is in.
AGENT = """
[agents.quick]
start = ["sleep", "infinity"]
resume = ["sleep", "infinity"]
"""


def measure() -> list[Row]:
    with ground.amux(configuration=AGENT) as amux:
        resting, parked = (amux.create([], agent="quick", name=name) for name in ("resting", "parked"))
        created, resumed, back = interleaved(
            lambda: _created(amux),
            lambda: _resumed(resting),
            lambda: _brought_back(parked),
            rounds=ROUNDS,
        )
    half, most = (Floor("CreateSession", quantile(created)) for quantile in (p50, p99))
    return [
        within("Resume → running, p50", half, p50(resumed), LONGEST_RESUME),
        against("Resume → running, p99", most, p99(resumed)),
        within("AttachCommand of a parked session → running, p50", half, p50(back), LONGEST_RESUME),
    ]


def _created(amux: Amux) -> float:
    began = time.perf_counter()
    session = amux.create(ground.QUIET)
    took = time.perf_counter() - began
    session.remove(force=True)
    return took


def _resumed(session: Session) -> float:
    session.stop()
    return _timed(session, "Resume")


def _brought_back(session: Session) -> float:
    session.call("Park")
    return _timed(session, "AttachCommand")


def _timed(session: Session, member: str) -> float:
    began = time.perf_counter()
    session.call(member)
    took = time.perf_counter() - began
    if session.state != "running" or session.get("Parked"):
        raise RuntimeError(f"{session.id} is {session.state}: {session.get('Reason')}")
    return took
