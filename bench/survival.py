"""amuxd goes and comes back while sessions run."""

import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import as_claude
from harness.daemon import Amux

from bench import ground
from bench.samples import p50
from bench.table import Floor, Row, against, within

FEW, MANY = 100, 1000
ROUNDS = 5
# It waits for its first question, so that each time it is looked whether there was one.
QUIET_AGENT = ["sh", "-c", "'exec sleep infinity'", "claude"]
AT_ONCE = 8
LONGEST_START = 1.0
LONGEST_STOP = 3.0
MOST_TIMES = 2.0


def measure() -> list[Row]:
    with ground.amux() as amux:
        _run(amux, FEW)
        alone = Floor("amuxd without sessions", _start_without_sessions())
        starts = [_start(amux) for _ in range(ROUNDS) if _stop(amux)]
        _run(amux, MANY - FEW)
        disk, stopped = _suspended(amux)
    with ground.amux() as amux:
        agent = as_claude.program(amux, QUIET_AGENT)
        _in_parallel(MANY, lambda: as_claude.create(amux, agent))
        _, agents_stopped = _suspended(amux)
        _check_that_nothing_is_forgotten(amux)
    what = f"SIGTERM → {MANY} sessions suspended, amuxd gone"
    return [
        within(f"start → {FEW} live sessions adopted, READY", alone, p50(starts), LONGEST_START),
        within(what, disk, stopped, LONGEST_STOP),
        against(what, disk, stopped, MOST_TIMES),
        within(what.replace("sessions", "agents"), disk, agents_stopped, LONGEST_STOP),
    ]


def _run(amux: Amux, count: int) -> None:
    _in_parallel(count, lambda: amux.create(ground.QUIET))


def _in_parallel(count: int, create: Callable[[], object]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for created in [threads.submit(create) for _ in range(count)]:
            created.result()


def _suspended(amux: Amux) -> tuple[Floor, float]:
    stops, floors = [], []
    for _ in range(ROUNDS):
        stops.append(_stop(amux))
        floors.append(_write_the_same(amux))
        amux.start()
    return Floor("the same bytes written and synced", p50(floors)), p50(stops)


def _start_without_sessions() -> float:
    with ground.amux() as amux:
        amux.stop()
        return _start(amux)


def _start(amux: Amux) -> float:
    began = time.perf_counter()
    amux.start()
    took = time.perf_counter() - began
    _check(amux, "running")
    return took


def _stop(amux: Amux) -> float:
    handle = os.pidfd_open(amux.machine.outside_pid(amux.pid))
    began = time.perf_counter()
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    select.select([handle], [], [])
    took = time.perf_counter() - began
    os.close(handle)
    _check(amux, "suspended")
    return took


def _check(amux: Amux, wanted: str) -> None:
    states = {json.loads(path.read_text())["state"] for path in _sessions(amux).glob("*/state.json")}
    if states - {wanted}:
        raise RuntimeError(f"the sessions are {', '.join(states)} and not {wanted}")


def _check_that_nothing_is_forgotten(amux: Amux) -> None:
    """What is not found out in time is not known any more: without a file nothing could be resumed then."""
    said = [json.loads(path.read_text())["said"] for path in _sessions(amux).glob("*/state.json")]
    if unknown := said.count(None):
        raise RuntimeError(f"of {unknown} agents it is not known any more whether anything was said to them")


def _sessions(amux: Amux) -> Path:
    return amux.state / "sessions"


def _write_the_same(amux: Amux) -> float:
    """What a change is on disk: the state, in place of the one before, and a line of history."""
    changes = [
        (path.read_bytes(), path.with_name("history.jsonl").read_bytes().splitlines(keepends=True)[-1])
        for path in _sessions(amux).glob("*/state.json")
    ]
    with tempfile.TemporaryDirectory(dir=amux.machine.temporary) as directory:
        homes = [Path(directory) / str(number) for number in range(len(changes))]
        for home in homes:
            home.mkdir()
            (home / "state.json").touch()
            (home / "history.jsonl").touch()
        began = time.perf_counter()
        for home, (state, line) in zip(homes, changes, strict=True):
            _write(home / "new", state)
            (home / "new").rename(home / "state.json")
            _sync(home)
            _write(home / "history.jsonl", line)
        return time.perf_counter() - began


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
