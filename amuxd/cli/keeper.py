"""The amuxd that looks after the sessions of this HOME, where that is not the one that this amux can call."""

import fcntl
import os
import shlex
from pathlib import Path

from amuxd import paths
from amuxd.cli.connection import socket_paths
from amuxd.cli.failures import Unreachable


def refuse_if_elsewhere(our_bus: Path) -> None:
    """Another amuxd would wait for it in vain."""
    lock = paths.state_directory() / "amuxd.lock"
    pid = _holder(lock)
    if pid is None:
        return
    address = _bus_address(pid, lock)
    buses = [Path(path) for path in socket_paths(address)]
    if any(bus.resolve() == our_bus.resolve() or _is_same(bus, our_bus) for bus in buses):
        # It has just lost its bus, say, and is about to end.
        return
    raise Unreachable(f"another amuxd (pid {pid}) looks after {lock.parent}", _how_to_reach(address, buses))


def _holder(lock: Path) -> str | None:
    try:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).strip()
    except OSError:
        pass
    return None


def _bus_address(pid: str, lock: Path) -> str:
    """Empty where it is not known: the holder may be another user's, or one of a container."""
    process = Path("/proc") / pid
    try:
        if not any(_is_same(descriptor, lock) for descriptor in (process / "fd").iterdir()):
            return ""
        words = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    environment = dict(os.fsdecode(word).partition("=")[::2] for word in words)
    return environment.get("DBUS_STARTER_ADDRESS") or environment.get("DBUS_SESSION_BUS_ADDRESS") or ""


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _how_to_reach(address: str, buses: list[Path]) -> str:
    private = paths.private_bus_socket().relative_to(paths.runtime_base())
    for bus in buses:
        if bus.parts[-len(private.parts) :] == private.parts:
            runtime = bus.parents[len(private.parts) - 1]
            return f"reach it with XDG_RUNTIME_DIR={shlex.quote(str(runtime))}"
    return f"reach it with DBUS_SESSION_BUS_ADDRESS={shlex.quote(address)}" if address else ""
