"""What the kernel says of the cgroup of a session, which is that of its terminal server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from amuxd import processes
from amuxd.lines import lines_of
from amuxd.records import Limits, Process

_CONTROLLERS = {
    "memory_max": "memory",
    "memory_high": "memory",
    "cpu_quota": "cpu",
    "cpu_weight": "cpu",
    "tasks_max": "pids",
}
_MEMORY_EVENTS = "memory.events"


def asked_for(limits: Limits) -> list[str]:
    return [name for name in _CONTROLLERS if getattr(limits, name) is not None]


def not_enforced(limits: Limits, server: Process) -> list[str]:
    """systemd takes a limit also where it was not given the controller, and then nothing comes of it."""
    controllers = " ".join(_lines(server, "cgroup.controllers")).split()
    return [name for name in asked_for(limits) if _CONTROLLERS[name] not in controllers]


def memory_kills(server: Process) -> int:
    """How many the kernel has killed there for want of memory."""
    counts = (line.split() for line in _lines(server, _MEMORY_EVENTS))
    return next((int(count) for name, count in counts if name == "oom_kill"), 0)


def memory_events(server: Process) -> Path | None:
    """The file that tells of them; None where nothing counts them."""
    with contextlib.suppress(OSError):
        cgroup = _cgroup(server)
        if cgroup is not None and (cgroup / _MEMORY_EVENTS).exists():
            return cgroup / _MEMORY_EVENTS
    return None


def processor_time(server: Process) -> float | None:
    """In seconds, by all that ever ran there; None where nothing counts it."""
    counts = (line.split() for line in _lines(server, "cpu.stat"))
    return next((int(used) / 1e6 for name, used in counts if name == "usage_usec"), None)


def is_frozen(server: Process) -> bool:
    """By whoever did it, and also with a slice that it is in."""
    return "frozen 1" in _lines(server, "cgroup.events")


def _lines(server: Process, name: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        cgroup = _cgroup(server)
        if cgroup is not None:
            yield from lines_of(processes.read(f"{cgroup}/{name}"))


def _cgroup(server: Process) -> Path | None:
    membership = lines_of(processes.read(f"/proc/{server.pid}/cgroup"))
    cgroup = next((line[3:] for line in membership if line.startswith("0::")), "")
    return Path(f"/sys/fs/cgroup{cgroup}") if "/amux-" in cgroup else None
