"""The one way out of every command: what went wrong is told, and the exit code is true."""

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from amuxd.cli import closed_streams, failures, interrupts


def loaded() -> None:
    """All that takes long to load is there, and the command begins."""
    gc.freeze()
    gc.enable()
    interrupts.raise_exceptions()


def run(command: Callable[[], Any]) -> int:
    """The exit code, after everything was said."""
    # A name may hold what the terminal's encoding cannot; an output that is not exact beats none.
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, failures.BrokenOutput):
        return _quietly()
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    except SystemExit as end:
        return _as_python_ends(end.code)
    except Exception as problem:
        if os.environ.get("AMUX_DEBUG"):
            raise
        return _after_output(problem)
    finally:
        interrupts.end_quietly()


def leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # What went wrong with the output was told, or Ctrl-C came, and nobody reads it any more.
        with contextlib.suppress(OSError):
            stream.flush()
    # To take the interpreter apart would take a tenth of the time that a command takes.
    os._exit(code)


def _as_python_ends(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    failures.say(str(code))
    return failures.DID_NOT_WORK


def _after_output(problem: Exception) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quietly()
    except OSError:
        # It is this that the problem tells of.
        closed_streams.discard_output()
    return failures.tell(problem)


def _quietly() -> int:
    closed_streams.discard_output()
    return failures.BROKEN_PIPE
