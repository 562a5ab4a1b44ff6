"""Standard streams that the caller closed, or that take nothing any more."""

import os
import sys


def stand_in() -> None:
    """Otherwise the next file that is opened would be taken for one of them.

    What is read or written there fails; what is said on standard error is lost.
    """
    if sys.stdin is None:
        sys.stdin = open(_held(0, os.O_WRONLY), closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(_held(1, os.O_RDONLY), "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(_held(2, os.O_WRONLY), "w", closefd=False)  # noqa: SIM115


def discard_output() -> None:
    """Also what was printed and could not be written: nothing is left to fail on again."""
    _held(sys.stdout.fileno(), os.O_WRONLY)


def forget_output() -> None:
    """What was printed and could not be written is not tried again; what comes is."""
    output = sys.stdout.fileno()
    kept = os.dup(output)
    discard_output()
    sys.stdout.flush()
    os.dup2(kept, output)
    os.close(kept)


def _held(descriptor: int, flags: int) -> int:
    nowhere = os.open(os.devnull, flags)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return descriptor
