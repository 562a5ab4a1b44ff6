"""What the numbers depend on, and are worth nothing without."""

import importlib.metadata
import os
import platform
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from bench.samples import p50
from bench.table import ms

SYNCS = 30


def require_installed_amux() -> None:
    """As users have it: not linked to a checkout, which starts slower, and byte-compiled."""
    compiled = Path(sysconfig.get_path("purelib")) / "amuxd" / "__pycache__"
    if not (compiled.is_dir() and (Path(sys.prefix) / "bin" / "amuxd").exists()):
        raise SystemExit("amux is not installed, or not byte-compiled, in this Python: make bench does that")


def describe() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("dbus-fast", "jeepney"))
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    return f"{machine}, {versions}, write and fsync {ms(_sync())}; load before: {_load()}"


def load() -> str:
    return f"load after: {_load()}"


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _sync() -> float:
    """The disk's own time for the smallest durable write, where the machines keep their state."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"amux", 0)
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return p50(took)
