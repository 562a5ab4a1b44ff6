"""Whoever reads what is printed, and may leave before there is more of it."""

import os
import stat
import sys


def output() -> int | None:
    """Standard output, where the kernel tells that nobody reads it any more."""
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
