"""The floor of amuxd's memory and start: a Python that has imported the same packages and does nothing."""

import subprocess
import sys
from pathlib import Path

from harness.daemon import Amux

from bench.meters import memory_of

# What amuxd's own modules need is part of the product.
PACKAGES = "import asyncio, concurrent.futures, filelock, psutil, sdnotify, dbus_fast.aio"


def command() -> list[str]:
    return [sys.executable, "-c", PACKAGES]


def memory(amux: Amux) -> tuple[int, int]:
    waiting = [sys.executable, "-c", f"{PACKAGES}; print(flush=True); input()"]
    process = amux.machine.popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        return memory_of(Path(f"/proc/{process.pid}"))
    finally:
        process.communicate("\n")
