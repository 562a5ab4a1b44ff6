"""From a resting agent to a running one, beyond what its own program takes."""

import time
from pathlib import Path

from harness import as_claude
from harness.client import Session
from harness.daemon import Amux

from bench import ground
from bench.samples import interleaved, p50, p99
from bench.stopwatch import Stopwatch
from bench.table import Floor, Row, against, beyond, within

ROUNDS = 40
LONGEST_RESUME = 0.200
DEADLINE = 60.0
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
        kept = _kept(amux)
    half, most = (Floor("CreateSession", quantile(created)) for quantile in (p50, p99))
    return [
        within("Resume → running, p50", half, p50(resumed), LONGEST_RESUME),
        against("Resume → running, p99", most, p99(resumed)),
        within("AttachCommand of a parked session → running, p50", half, p50(back), LONGEST_RESUME),
        kept,
    ]


def _kept(amux: Amux) -> Row:
    """Of what was said, until the agent has read it and says so; and as long as that takes it by itself."""
    session = as_claude.begin(amux)
    as_claude.say(session, "apples")
    command = [amux.machine.home / "programs/claude", "--resume", session.get("Command")[-1]]
    with Stopwatch(amux) as stopwatch:
        alone, resumed = interleaved(
            lambda: stopwatch.time(*command), lambda: _remembers(session), rounds=ROUNDS
        )
    what = "Resume of a kept conversation → its agent remembers, p50"
    return beyond(what, Floor("the agent by itself", p50(alone)), p50(resumed), LONGEST_RESUME)


def _remembers(session: Session) -> float:
    session.stop()
    began = time.perf_counter()
    session.call("Resume")
    log = Path(session.get("LogPath"))
    while b"remembering ['apples']" not in log.read_bytes():
        if time.perf_counter() - began > DEADLINE:
            raise RuntimeError(f"{session.id} does not go on: {log.read_text()}")
        time.sleep(0.0005)
    return time.perf_counter() - began


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
