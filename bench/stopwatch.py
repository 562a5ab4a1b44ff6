"""Whole processes, timed inside of a machine: a line with the command in, a line with the seconds out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from harness.client import Client


class Stopwatch:
    def __init__(self, amux: Client) -> None:
        self._process = amux.machine.popen(
            [sys.executable, "-S", Path(__file__).with_name("timing.py")],
            env=amux.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands: IO[str] = self._process.stdin
        self._answers: IO[str] = self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()

    def time(self, *command: str | os.PathLike[str]) -> float:
        self._commands.write(json.dumps([os.fspath(word) for word in command]) + "\n")
        self._commands.flush()
        answer = json.loads(self._answers.readline())
        if answer["status"]:
            raise RuntimeError(f"{command} ended with {answer['status']}")
        return float(answer["seconds"])
