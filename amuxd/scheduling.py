"""The kernel's promise of a turn soon, rather than of a long one, which no library offers."""

import ctypes
import logging
import os
import platform
import struct

# Asks for the shortest turns that the kernel knows, so that whoever wakes gets one before those that compute.
SLICE = 100_000

_RESET_ON_FORK = 0x01
# size, policy, flags, nice, priority, runtime, deadline, period: as the first version of struct sched_attr.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_NUMBERS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}

logger = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_short_turns() -> None:
    """For the calling thread alone: what is started by it gets turns like anybody's.

    Kernels before 6.12 take no notice; elsewhere it is a favour that can be refused.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE, 0, 0)
    if _libc.syscall(ctypes.c_long(number), 0, attributes, 0) != 0:
        logger.debug("no short turns: %s", os.strerror(ctypes.get_errno()))
