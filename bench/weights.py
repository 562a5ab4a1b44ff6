"""Processor time by slice, as a user manager shares it out: its own session.slice asks for that.

A machine of the tests has no cpu controller where the system below keeps that to the first version of control
groups. There the same is done by hand: one group for what prints, beside everything else.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.machine import Machine

BY_HAND = Path("/sys/fs/cgroup/cpu")
CONTROLLERS = Path("/sys/fs/cgroup/user.slice/user-0.slice/user@0.service/cgroup.controllers")


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
        directory.rmdir()


def assign(directory: Path, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            (directory / "cgroup.procs").write_text(str(pid))
