"""This terminal, lent to a program until that ends, and put right after it however it ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any, NamedTuple

_PR_SET_PDEATHSIG = 1
# What a tmux client may have turned on, in the order in which tmux turns it off: the scrolled region, colours
# and character sets, keys of the keypad, the hidden cursor, the mouse, focus, pasting, synchronized output,
# changes of theme, other keys, and last the alternate screen.
_AS_IT_WAS = (
    "\x1b[r\x1b[0m\x1b(B\x0f\x1b[?1l\x1b>\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l"
    "\x1b[?1004l\x1b[?2004l\x1b[?2026l\x1b[?2031l\x1b[>4m\x1b[?1049l"
)


class _Passing:
    """What comes for us is meant for the program that has the terminal: it ends first, and then we do."""

    def __init__(self) -> None:
        self.to: int | None = None
        self.asked = 0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.asked = number
        if self.to is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.to, number)


class Returned(NamedTuple):
    # -N where signal N ended the program.
    code: int
    # What it wrote beside all that it drew on the terminal, which it was given as its standard input.
    said: str
    complaints: str


def lend(command: list[str], environment: dict[str, str]) -> Returned:
    """A signal that was to end us does so after the program."""
    terminal = sys.stdin.fileno()
    before, blocking = termios.tcgetattr(terminal), os.get_blocking(terminal)
    passing = _Passing()
    sys.stdout.flush()
    with _handling(passing), _kept("said") as said, _kept("complaints") as complaints:
        try:
            code = _run(command, environment, said, complaints, passing)
        finally:
            passing.to = None
            _put_right(terminal, before, blocking)
        returned = Returned(code, _text_of(said), _text_of(complaints))
    if passing.asked:
        os.kill(os.getpid(), passing.asked)
    return returned


def _kept(name: str) -> IO[bytes]:
    """Whatever is written to it, nobody has to read along."""
    return os.fdopen(os.memfd_create(name), "w+b")


def _text_of(kept: IO[bytes]) -> str:
    kept.seek(0)
    return kept.read().decode(errors="replace")


@contextlib.contextmanager
def _handling(passing: _Passing) -> Iterator[None]:
    # A key is the program's; with a handler, instead of ignored, it is the program's to say what it does.
    handlers: dict[int, Any] = {signal.SIGINT: _leave, signal.SIGQUIT: _leave}
    for end in (signal.SIGTERM, signal.SIGHUP):
        # Who has us ignore it is obeyed.
        if signal.getsignal(end) is not signal.SIG_IGN:
            handlers[end] = passing
    kept = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    pass


def _run(
    command: list[str],
    environment: dict[str, str],
    said: IO[bytes],
    complaints: IO[bytes],
    passing: _Passing,
) -> int:
    prctl = ctypes.CDLL(None).prctl
    # If we are killed it must not go on reading the keys of whoever has the terminal next.
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=said,
        stderr=complaints,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    passing.to = process.pid
    if passing.asked:
        os.kill(process.pid, passing.asked)
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode
        # The shell that we are a job of looks at us, not at the program.
        os.kill(os.getpid(), signal.SIGTSTP)
        os.kill(process.pid, signal.SIGCONT)
        # Of what was resized meanwhile only the shell was told.
        os.kill(process.pid, signal.SIGWINCH)


def _put_right(terminal: int, before: list[Any], blocking: bool) -> None:
    try:
        os.set_blocking(terminal, blocking)
        if termios.tcgetattr(terminal) == before:
            return
        # Whoever set it otherwise is gone without putting it back.
        termios.tcsetattr(terminal, termios.TCSANOW, before)
        sys.stdout.write(_AS_IT_WAS)
        sys.stdout.flush()
    except (OSError, termios.error):
        # It hung up.
        pass
