"""A stand-in by the name of claude, so that amux knows of it what it knows of claude."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.client import Client, Session
from harness.machine import REPOSITORY
from harness.waiting import until

STANDIN = REPOSITORY / "tests/harness/claude.py"


def program(amux: Client, command: Sequence[str | Path] = ()) -> Path:
    """It runs the command, or else what keeps conversations as claude does."""
    program = amux.machine.home / "programs/claude"
    program.parent.mkdir(exist_ok=True)
    words = command or [amux.machine.bindir / "python3", STANDIN]
    program.write_text(f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
    program.chmod(0o755)
    return program


def create(amux: Client, program: Path, *given: str, **options: Any) -> Session:
    """In the machine's home, where it keeps its conversations."""
    home = str(amux.machine.home)
    environment = {"PATH": f"{program.parent}:{amux.environment['PATH']}", "HOME": home}
    return amux.create(given, agent="claude", cwd=home, env=environment, **options)


def begin(amux: Client, *given: str, **options: Any) -> Session:
    session = create(amux, program(amux), *given, **options)
    until(lambda: "remembering []" in session.log())
    return session


def say(session: Session, text: str) -> None:
    session.send(text)
    until(lambda: f"heard {text}" in session.log())
