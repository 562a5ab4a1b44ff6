"""Sessions of the past: what it costs to list them, to hold them and to start with them."""

import sys

from harness.daemon import Amux

from bench import ground, imports
from bench.meters import Meter
from bench.samples import interleaved, p50
from bench.stopwatch import Stopwatch
from bench.table import Floor, Row, against, memory, within

FEW, MANY = 100, 1000
ROUNDS = 40
STARTS = 7
MOST_TIMES = {FEW: 1.6, MANY: 4.0}
MOST_MEMORY = 70
LONGEST_START = 1.0
FLOOR = "import click, jeepney"


def measure() -> list[Row]:
    with ground.amux(FEW) as amux:
        rows = [_list(amux, FEW)]
    with ground.amux(MANY) as amux:
        rows.append(_list(amux, MANY))
        rows.append(_start(amux))
        fresh = Meter(amux.machine).memory()
        floor = imports.memory(amux)
        rows.append(memory(f"memory, {MANY} known, after the start", fresh, floor, MOST_MEMORY))
        for _ in range(ROUNDS):
            amux.cli("ls", "--json")
        listed = Meter(amux.machine).memory()
        rows.append(memory(f"memory, {MANY} known, after {ROUNDS} ls --json", listed, floor, MOST_MEMORY))
    return rows


def _list(amux: Amux, count: int) -> Row:
    listed = amux.cli("ls").stdout.count("\n") - 1
    if listed != count:
        raise RuntimeError(f"amux ls shows {listed} sessions of {count}")
    with Stopwatch(amux) as stopwatch:
        floor, product = interleaved(
            lambda: stopwatch.time(sys.executable, "-c", FLOOR),
            lambda: stopwatch.time(amux.bindir / "amux", "ls"),
            rounds=ROUNDS,
        )
    return against(
        f"amux ls, {count} sessions",
        Floor(f"python -c {FLOOR!r}", p50(floor)),
        p50(product),
        MOST_TIMES[count],
    )


def _start(amux: Amux) -> Row:
    with Stopwatch(amux) as stopwatch:
        floor, product = interleaved(
            lambda: stopwatch.time(*imports.command()), lambda: _started(amux), rounds=STARTS
        )
    what = f"start to READY, {MANY} known"
    return within(what, Floor("imports", p50(floor)), p50(product), LONGEST_START)


def _started(amux: Amux) -> float:
    """As systemd saw it."""
    amux.restart()
    names = ("InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    shown = amux.machine.systemctl("show", "--property=" + ",".join(names), "amuxd.service")
    moments = dict(line.split("=") for line in shown.splitlines())
    began, ready = (int(moments[name]) for name in names)
    return (ready - began) / 1e6
