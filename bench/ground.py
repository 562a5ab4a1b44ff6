"""amuxd in a machine of its own, with the sessions that a measurement needs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.client import Session
from harness.daemon import Amux
from harness.machine import Machine

from bench import stored

QUIET = ["sleep", "infinity"]


@contextmanager
def amux(known: int = 0, configuration: str = "") -> Iterator[Amux]:
    """It knows that many sessions, all of which have ended."""
    with Machine() as machine:
        amux = Amux(machine)
        try:
            amux.config.parent.mkdir(parents=True, exist_ok=True)
            amux.config.write_text(configuration)
            stored.completed(amux.state, known)
            amux.start()
            yield amux
        finally:
            amux.close()


def sessions(amux: Amux, count: int, command: Sequence[str] = QUIET) -> list[Session]:
    return [amux.create(list(command)) for _ in range(count)]


def numbers_outside(machine: Machine) -> dict[int, int]:
    """Of each process of the machine, by its number in it."""
    numbers = {}
    for process in machine.processes():
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        inside = next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
        numbers[int(inside)] = int(process.pid)
    return numbers
