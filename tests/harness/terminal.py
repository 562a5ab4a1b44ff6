"""A person's terminal: a command of the machine on a pseudo-terminal that it controls."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from harness.machine import Machine

ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


class Terminal:
    def __init__(
        self,
        machine: Machine,
        argv: Sequence[str | Path],
        *,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> None:
        self._output = ""
        # All that ever came, escape sequences and all.
        self.everything = ""
        self._master, slave = pty.openpty()
        try:
            self.resize(columns, lines)
            # It also makes the terminal the controlling one: Ctrl-C is a key here.
            command = ["setsid", "--ctty", *argv]
            self.process: subprocess.Popen[Any] = machine.popen(
                command, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave
            )
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def text(self) -> str:
        """All that was printed and read so far, without escape sequences."""
        return ESCAPE.sub("", self._output)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._master)

    def takes_keys(self) -> bool:
        """Whether a key is read when it is pressed, and not thrown away by a change to that."""
        return not self.settings()[3] & termios.ICANON

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str, timeout: float = 60) -> str:
        """Reads until the text was printed, and forgets what is up to its end; gives what came before it."""
        return self.expect_any(text, timeout=timeout)[0]

    def expect_any(self, *texts: str, timeout: float = 60) -> tuple[str, str]:
        """The same with the first of several; gives also which one it was."""
        deadline = time.monotonic() + timeout
        while not (found := [(self.text.find(text), text) for text in texts if text in self.text]):
            if not self._read(deadline - time.monotonic()):
                wanted = " or ".join(map(repr, texts))
                raise TimeoutError(f"{wanted} was not printed within {timeout} s, but {self.text!r}")
        position, first = min(found)
        before = self.text[:position]
        self._output = self.text[position + len(first) :]
        return before, first

    def wait(self, timeout: float = 60) -> int:
        """The exit code, once it ended; it never blocks on output that nobody reads."""
        deadline = time.monotonic() + timeout
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def close(self) -> None:
        """Hangs up, as when a window is closed; what ignores that is killed."""
        os.close(self._master)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
            return
        self.process.kill()
        self.process.wait()

    def _read(self, timeout: float) -> bool:
        if timeout <= 0 or not select.select([self._master], [], [], timeout)[0]:
            return False
        try:
            came = os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            # Its last user has closed the other end.
            return False
        self._output += came
        self.everything += came
        return True
