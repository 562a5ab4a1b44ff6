"""From the end of a process to the word of it at a subscriber, while others print without pause."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from harness.client import Session
from harness.daemon import Amux

from bench import ground, notifier, weights
from bench.samples import p50, p99
from bench.subscriber import Subscriber
from bench.table import Floor, Row, within

QUIET, PRINTING = 80, 20
ENDS = 2 * QUIET
ENDS_WITHOUT_WEIGHTS = 8
WARM_UP = 3.0
REST = 0.2
DEADLINE = 30.0
MOST_P50, MOST_P99 = 0.010, 0.050

PRINT = ["sh", "-c", 'n=0; while :; do n=$((n + 1)); echo "this is line $n of many"; done']
# Less disk is filled so; how often a log gives way to the next one is no part of what is measured.
CONFIGURATION = '[sessions]\nlog_cap = "16M"\n'

SIGNALS = {"SessionExited": 1, notifier.MEMBER: 0}


def measure() -> list[Row]:
    with ExitStack() as stack:
        group = stack.enter_context(weights.group(f"amux-bench-{os.getpid()}")) if weights.exist() else None
        amux = stack.enter_context(ground.amux(configuration=CONFIGURATION))
        quiet = ground.sessions(amux, QUIET)
        ground.sessions(amux, PRINTING, PRINT)
        time.sleep(WARM_UP)
        if weights.are_systemds(amux.machine):
            return _rows(amux, quiet, ENDS, "weighed by systemd")
        rows = [_unclaimed(row) for row in _rows(amux, quiet, ENDS_WITHOUT_WEIGHTS, "no cpu controller")]
        if group is None:
            return rows
        weights.assign(group, amux.machine)
        # What had to wait without them is done first.
        time.sleep(WARM_UP)
        return [*_rows(amux, quiet, ENDS, "weighed by hand as by systemd", group), *rows]


def _rows(
    amux: Amux, quiet: Sequence[Session], ends: int, where: str, group: Path | None = None
) -> list[Row]:
    floor, product = _latencies(amux, quiet, ends, group)
    what = f"end → SessionExited, {QUIET + PRINTING} sessions, {PRINTING} printing, {where}"
    return [
        within(f"{what}: p50", Floor("pidfd and signal", p50(floor)), p50(product), MOST_P50),
        within(f"{what}: p99", Floor("pidfd and signal", p99(floor)), p99(product), MOST_P99),
    ]


def _unclaimed(row: Row) -> Row:
    """Where nothing gives amuxd its share of the processor, those who print without pause decide."""
    return replace(row, goal=f"{row.goal} where weighed, not here", met=None)


def _latencies(
    amux: Amux, quiet: Sequence[Session], ends: int, group: Path | None
) -> tuple[list[float], list[float]]:
    floor, product = [], []
    with _bare_processes(amux, ends) as bare:
        subscriber = Subscriber(amux.bus_address, SIGNALS)
        for start in range(0, ends, len(quiet)):
            sessions = quiet[: ends - start]
            if group is not None:
                # Whatever the manager began since then is where that is.
                weights.assign(group, amux.machine)
            numbers = ground.numbers_outside(amux.machine)
            pids = [numbers[session.get("Pid")] for session in sessions]
            for session, pid, other in zip(sessions, pids, bare[start:], strict=False):
                floor.append(_latency(subscriber, other, str(other)))
                product.append(_latency(subscriber, pid, session.id))
                # Always as many as before, and a rest: the restart is no part of the next end.
                session.call("Restart")
                time.sleep(REST)
        subscriber.close()
    return floor, product


def _latency(subscriber: Subscriber, pid: int, key: str) -> float:
    """Between the kernel's word of the end and amuxd's, both as this process sees them."""
    with _pidfd(pid) as process:
        os.kill(pid, signal.SIGKILL)
        ended = None
        waiting: list[int | Subscriber] = [process, subscriber]
        while True:
            ready, _, _ = select.select(waiting, [], [], DEADLINE)
            if process in ready:
                ended = time.perf_counter()
                waiting.remove(process)
            if subscriber in ready:
                for told in subscriber.read():
                    if told.key == key:
                        return told.moment - min(ended or told.moment, told.moment)
            if not ready:
                raise TimeoutError(f"nobody told of the end of {key} within {DEADLINE:.0f} s")


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _bare_processes(amux: Amux, count: int) -> Iterator[list[int]]:
    """Watched by the floor."""
    processes = [subprocess.Popen(ground.QUIET) for _ in range(count)]
    pids = [process.pid for process in processes]
    watcher = subprocess.Popen(
        [sys.executable, Path(notifier.__file__), amux.bus_address, *map(str, pids)], stdout=subprocess.PIPE
    )
    try:
        assert watcher.stdout is not None
        if not watcher.stdout.readline():
            raise RuntimeError("the floor could not be prepared")
        yield pids
    finally:
        for process in (watcher, *processes):
            process.kill()
            process.wait()
        assert watcher.stdout is not None
        watcher.stdout.close()
