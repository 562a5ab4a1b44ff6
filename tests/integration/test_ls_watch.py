"""What amux ls --watch shows is so: also what amuxd tells nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

BUSY_ONCE_TOLD = 'until [ -e "$0" ]; do sleep 0.1; done; while :; do echo busy; sleep 0.2; done'


@pytest.fixture
def quiet(amux: Amux) -> Session:
    """A session that is idle after two seconds, and prints for ever once the file busy is there."""
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text('[sessions]\nidle_after = "2s"\n')
    amux.manager.call("Reload")
    return amux.create(["sh", "-c", BUSY_ONCE_TOLD, str(amux.machine.temporary / "busy")], name="quiet")


@contextmanager
def busy(amux: Amux) -> Iterator[None]:
    file = amux.machine.temporary / "busy"
    file.touch()
    try:
        yield
    finally:
        file.unlink()


def test_on_a_terminal_idle_comes_and_goes(amux: Amux, quiet: Session) -> None:
    with amux.terminal("ls", "--watch", columns=120) as terminal:
        terminal.expect("running (idle ")
        with busy(amux):
            until(lambda: "busy" in quiet.log())
            terminal.expect("running  ", timeout=60)


def test_in_a_pipe_idle_comes_and_goes(amux: Amux, quiet: Session, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    with shown.open("w") as output:
        watching = amux.popen("ls", "--watch", stdout=output)

    def last() -> str:
        rows = [line.split("\t") for line in shown.read_text().splitlines()]
        return next((row[5].partition(" (")[2] or row[5] for row in reversed(rows) if len(row) > 5), "")

    try:
        until(lambda: last().startswith("idle "))
        with busy(amux):
            until(lambda: last() == "running")
    finally:
        watching.kill()
        watching.wait(20)
