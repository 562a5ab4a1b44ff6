"""An amuxd that the user stopped: whoever only looks on leaves it at that, and says so once."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until

from amuxd.cli import failures

STOPPED = f"amux: {failures.STOPPED}\n"
ENDED = f"amux: {failures.ENDED}\n"
FOLLOWERS = [
    pytest.param(["watch"], "running: ", "stopping → stopped: ", id="watch"),
    pytest.param(["ls", "--watch"], "\trunning\t", "\tstopped\t", id="ls"),
    pytest.param(["badge", "--follow"], "1\n", "0\n", id="badge"),
    pytest.param(["logs", "-f", "build"], "ready\n", "told to end\n", id="logs"),
]
# Prints all the while that whoever follows it has something else to wait for.
TALKATIVE = "trap 'echo told to end; exit' TERM; echo ready; while :; do echo talk; sleep 0.2; done"

Begin = Callable[..., tuple[Callable[[], str], Callable[[], str]]]


def beginning(amux: Client, tmp_path: Path) -> Iterator[Begin]:
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


@pytest.fixture
def begin(amux: Amux, tmp_path: Path) -> Iterator[Begin]:
    yield from beginning(amux, tmp_path)


@pytest.fixture
def begin_embedded(embedded: Embedded, tmp_path: Path) -> Iterator[Begin]:
    yield from beginning(embedded, tmp_path)


def talkative(amux: Client) -> Session:
    return amux.create(["sh", "-c", TALKATIVE], name="build")


def is_active(amux: Amux) -> str:
    return amux.machine.systemctl("is-active", "amuxd.service", check=False)


@pytest.mark.parametrize(("command", "first", "last"), FOLLOWERS)
def test_who_looks_on_does_not_start_it_again(
    amux: Amux, begin: Begin, command: list[str], first: str, last: str
) -> None:
    session = talkative(amux)
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


def test_who_looks_on_says_it_each_time(amux: Amux, begin: Begin) -> None:
    talkative(amux)
    printed, said = begin("logs", "-f", "build")
    until(lambda: "ready" in printed())
    amux.stop()
    until(lambda: said() == STOPPED)
    amux.start()
    amux.stop()
    until(lambda: said() == STOPPED * 2)


@pytest.mark.parametrize(("command", "first", "last"), FOLLOWERS)
def test_without_systemd_who_looks_on_says_that_nobody_starts_it(
    embedded: Embedded, begin_embedded: Begin, command: list[str], first: str, last: str
) -> None:
    embedded.cli("ls")
    talkative(embedded)
    printed, said = begin_embedded(*command)
    until(lambda: first in printed())
    embedded.machine.kill(int((embedded.state / "amuxd.lock").read_text()))
    until(lambda: said() == ENDED)
    # What it says to do helps.
    embedded.cli(*failures.ENDED.split("amux ")[-1].split())
    embedded.cli("stop", "build")
    until(lambda: last in printed())
    assert said() == ENDED


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
