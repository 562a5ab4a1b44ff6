"""Processor time by slice, as a user manager shares it out where a slice asks for that, and amux.slice does.

A machine of the tests has no cpu controller where the system below keeps that to the first version of control
groups. There the same is done by hand: for each slice of the user manager a group of its weight.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.machine import Machine

BY_HAND = Path("/sys/fs/cgroup/cpu")
CONTROLLERS = Path("/sys/fs/cgroup/user.slice/user-0.slice/user@0.service/cgroup.controllers")

# Of the first version, for the weight of 100 that a slice has unless its unit says otherwise.
SHARES, USUAL = 1024, 100
# Below the machine's own: the manager's service, and of what is in it the slices.
MANAGER = Path(*CONTROLLERS.parts[4:-1])
DEEPEST = len(MANAGER.parts) + 1


def are_systemds(machine: Machine) -> bool:
    return "cpu" in machine.outside(CONTROLLERS).read_text().split()


def exist() -> bool:
    """Whether they can be had by hand."""
    return os.access(BY_HAND / "cgroup.procs", os.W_OK)


@contextmanager
def group(name: str) -> Iterator[Path]:
    """To be left when its processes have ended."""
    directory = BY_HAND / name
    directory.mkdir()
    try:
        yield directory
    finally:
        for path, _, _ in os.walk(directory, topdown=False):
            Path(path).rmdir()


def assign(directory: Path, machine: Machine) -> None:
    """To each process of the machine the share of the slice that it is in."""
    for process in machine.processes():
        with suppress(ProcessLookupError, FileNotFoundError):
            place = directory / _slice_of(process.pid)
            if not place.exists():
                place.mkdir(parents=True)
                (place / "cpu.shares").write_text(str(SHARES * _weight(machine, place.name) // USUAL))
            (place / "cgroup.procs").write_text(str(process.pid))


def _slice_of(pid: int) -> Path:
    groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    path = next(line for line in groups if line.startswith("0::/")).removeprefix("0::/")
    return Path(*Path(path).parts[1 : 1 + DEEPEST])


def _weight(machine: Machine, unit: str) -> int:
    told = machine.systemctl("show", "--value", "--property", "CPUWeight", unit).strip()
    return int(told) if told.isdigit() else USUAL
