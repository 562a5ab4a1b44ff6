"""An amuxd that the user stopped: whoever only looks on leaves it at that, and says so once."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.waiting import until

STOPPED = (
    "amux: amuxd was stopped; this goes on once it is started again\n      systemctl --user start amuxd\n"
)

Begin = Callable[..., tuple[Callable[[], str], Callable[[], str]]]


@pytest.fixture
def begin(amux: Amux, tmp_path: Path) -> Iterator[Begin]:
    running = []

    def begin(*arguments: str) -> tuple[Callable[[], str], Callable[[], str]]:
        """What it has printed, and what it has said on standard error."""
        out, err = tmp_path / "out", tmp_path / "err"
        with out.open("w") as stdout, err.open("w") as stderr:
            running.append(amux.popen(*arguments, stdout=stdout, stderr=stderr))
        return out.read_text, err.read_text

    yield begin
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.wait(20)


def is_active(amux: Amux) -> str:
    return amux.machine.systemctl("is-active", "amuxd.service", check=False)


@pytest.mark.parametrize(
    ("command", "first", "last"),
    [
        (["watch"], "running: ", "stopping → stopped: "),
        (["ls", "--watch"], "\trunning\t", "\tstopped\t"),
        (["badge", "--follow"], "1\n", "0\n"),
    ],
)
def test_who_looks_on_does_not_start_it_again(
    amux: Amux, begin: Begin, command: list[str], first: str, last: str
) -> None:
    session = amux.create(["sleep", "infinity"], name="build")
    printed, said = begin(*command)
    until(lambda: first in printed())
    amux.stop()
    until(lambda: said() == STOPPED)
    assert is_active(amux) == "inactive"
    amux.start()
    session.stop()
    until(lambda: last in printed())
    # And no more than once while it is away.
    assert said() == STOPPED
    amux.stop()
    until(lambda: said() == STOPPED * 2)


def test_who_waits_for_an_answer_starts_it_again(amux: Amux, begin: Begin) -> None:
    session = amux.create(["sleep", "infinity"], name="build")
    begin("wait", "build")
    until(lambda: amux.machine.run(["pgrep", "-f", "amux wait build"], check=False).stdout)
    # Where it is quicker than the end of amuxd, the stop itself is called off.
    amux.machine.systemctl("stop", "amuxd.service", check=False)
    until(lambda: is_active(amux) == "active")
    assert session.state == "running"


def test_a_restart_is_not_spoken_of(amux: Amux, begin: Begin) -> None:
    amux.create(["sleep", "infinity"], name="build")
    printed, said = begin("watch")
    until(lambda: "running: " in printed())
    amux.restart()
    until(lambda: "suspended → running" in printed())
    assert said() == ""
