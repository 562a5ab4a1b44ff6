"""From nothing to a running session, and from an ended one to a running one."""

import itertools
import time

from harness.client import Session
from harness.daemon import Amux

from bench import ground
from bench.samples import interleaved, p50, p99
from bench.stopwatch import Stopwatch
from bench.table import Floor, Row, against, within

ROUNDS = 40
MOST_TIMES = 2.0
LONGEST_RESTART = 0.150
SYSTEMD_RUN = "systemd-run --user --quiet --collect --service-type=forking"


def measure() -> list[Row]:
    with ground.amux() as amux:
        return [*_creation(amux), *_restart(amux)]


def _creation(amux: Amux) -> list[Row]:
    with Stopwatch(amux) as stopwatch:
        plain, unit, product, whole = interleaved(
            Plain(amux, stopwatch).measure,
            Unit(amux, stopwatch).measure,
            lambda: _created(amux),
            lambda: _run(amux, stopwatch),
            rounds=ROUNDS,
        )
    half, most = (Floor("systemd-run of tmux", quantile(unit)) for quantile in (p50, p99))
    return [
        against("CreateSession → running, p50", half, p50(product), MOST_TIMES),
        against("CreateSession → running, p99", most, p99(product)),
        against("CreateSession → running, p50", Floor("tmux alone", p50(plain)), p50(product)),
        against("amux run, the whole process, p50", half, p50(whole)),
    ]


class Plain:
    """The same tmux, by hand."""

    def __init__(self, amux: Amux, stopwatch: Stopwatch) -> None:
        self._machine = amux.machine
        self._stopwatch = stopwatch
        self._numbers = itertools.count()

    def measure(self) -> float:
        name = f"floor{next(self._numbers)}"
        socket = self._machine.temporary / f"{type(self).__name__}-{name}"
        tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")
        took = self._stopwatch.time(*self._launcher(name), *tmux, "new-session", "-d", *ground.QUIET)
        self._stopwatch.time(*tmux, "kill-server")
        return took

    def _launcher(self, _name: str) -> tuple[str, ...]:
        return ()


class Unit(Plain):
    """The same tmux, in a unit as a session's."""

    def _launcher(self, name: str) -> tuple[str, ...]:
        return (*SYSTEMD_RUN.split(), f"--unit={name}", "--")


def _created(amux: Amux) -> float:
    began = time.perf_counter()
    session = amux.create(ground.QUIET)
    took = time.perf_counter() - began
    _check_running(session)
    session.remove(force=True)
    return took


def _run(amux: Amux, stopwatch: Stopwatch) -> float:
    took = stopwatch.time(amux.bindir / "amux", "run", "-n", "whole", "--", *ground.QUIET)
    amux.session("whole").remove(force=True)
    return took


def _restart(amux: Amux) -> list[Row]:
    session = amux.create(ground.QUIET)
    created, at_rest, at_once = interleaved(
        lambda: _created(amux),
        lambda: _restarted(amux, session, rest=True),
        lambda: _restarted(amux, session, rest=False),
        rounds=ROUNDS,
    )
    half, most = (Floor("CreateSession", quantile(created)) for quantile in (p50, p99))
    return [
        within("Restart → running, p50", half, p50(at_rest), LONGEST_RESTART),
        within("Restart → running, at once after the end, p50", half, p50(at_once), LONGEST_RESTART),
        against("Restart → running, p99", most, p99(at_rest)),
    ]


def _restarted(amux: Amux, session: Session, rest: bool) -> float:
    session.call("Kill", "s", "SIGKILL")
    session.wait_state("failed")
    if rest:
        # Answered when all that belongs to the end is done.
        session.certificate()
    began = time.perf_counter()
    session.call("Restart")
    took = time.perf_counter() - began
    _check_running(session)
    return took


def _check_running(session: Session) -> None:
    if session.state != "running":
        raise RuntimeError(f"{session.id} is {session.state} and not running: {session.get('Reason')}")
