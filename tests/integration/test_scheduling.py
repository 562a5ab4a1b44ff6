"""amuxd asks the kernel for short turns, so that it gets one soon where sessions compute without pause."""

import ctypes
import platform
from pathlib import Path

import pytest
from harness.daemon import Amux

from amuxd import scheduling

GET = {"x86_64": 315, "aarch64": 275, "riscv64": 275}
KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])


def turn(thread: int) -> int:
    buffer = ctypes.create_string_buffer(scheduling._ATTRIBUTES.size)
    number = ctypes.c_long(GET[platform.machine()])
    assert ctypes.CDLL(None).syscall(number, thread, buffer, len(buffer), 0) == 0
    return int(scheduling._ATTRIBUTES.unpack(buffer.raw)[5])


@pytest.mark.skipif(KERNEL < (6, 12), reason="the kernel knows no turns of one's own before 6.12")
@pytest.mark.skipif(platform.machine() not in GET, reason="the call's number is not known here")
def test_every_thread_has_short_turns_and_no_session_has(amux_everywhere: Amux) -> None:
    session = amux_everywhere.create(["sleep", "1000"])
    daemon = amux_everywhere.machine.outside_pid(amux_everywhere.pid)
    threads = {int(task.name): turn(int(task.name)) for task in Path(f"/proc/{daemon}/task").iterdir()}
    assert set(threads.values()) == {scheduling.SLICE}
    assert len(threads) > 1
    assert turn(amux_everywhere.machine.outside_pid(session.get("Pid"))) != scheduling.SLICE
