"""A signal to a session in a shell is one to the command that runs there, and not to what waits for it."""

import shutil
from pathlib import Path

import pytest
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

SHELLS = [
    pytest.param(
        path, id=name, marks=pytest.mark.skipif(not Path(path).exists(), reason=f"{name} is not installed")
    )
    for name, path in [
        (name, shutil.which(name) or f"/bin/{name}") for name in ("bash", "dash", "zsh", "fish")
    ]
]
# In an own shell, so that the others need not know its language.
HEARS = """sh -c 'trap "echo heard; exit 0" {name}; echo ready; while :; do sleep 0.05; done'"""
GOES_ON = """sh -c 'trap "echo heard" USR1; echo ready; until read word; do :; done; exit 7'"""


def ready(amux: Amux, line: str, shell: str = "/bin/bash") -> Session:
    session = amux.create([line], shell=True, env={"SHELL": shell})
    shown(session, "ready")
    return session


def shown(session: Session, word: str) -> None:
    until(lambda: f"{word}\n" in session.log().replace("\r", ""))


def opens(session: Session) -> None:
    until(lambda: session.get("ShellOpen"))
    session.send("echo opened-$USER")
    until(lambda: "opened-root" in session.log())


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("USR1", 138), ("INT", 130), ("KILL", 137)])
def test_the_command_is_ended_by_it_and_the_shell_opens(amux: Amux, shell: str, name: str, code: int) -> None:
    session = ready(amux, "sh -c 'echo ready; exec sleep 1000'", shell)
    session.call("Kill", "s", f"SIG{name}")
    if (name, Path(shell).name) == ("INT", "dash"):
        # It stays, and asks what to do next, as after Ctrl-C.
        session.send("exit 130")
    assert session.wait_state("failed", timeout=20) == "failed"
    assert (session.get("ExitCode"), session.get("ExitSignal")) == (code, "")
    opens(session)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["TERM", "USR1", "INT"])
def test_what_the_command_ends_with_then_is_told(amux: Amux, shell: str, name: str) -> None:
    session = ready(amux, HEARS.format(name=name), shell)
    session.call("Kill", "s", f"SIG{name}")
    assert session.wait_state("completed", "failed", timeout=20) == "completed"
    assert session.get("Reason") == "exited with code 0"
    shown(session, "heard")
    opens(session)


def test_a_command_that_goes_on_goes_on(amux: Amux) -> None:
    session = ready(amux, GOES_ON)
    session.call("Kill", "s", "SIGUSR1")
    shown(session, "heard")
    assert session.state == "running"
    session.send("go")
    session.wait_state("failed")
    assert session.get("ExitCode") == 7


def test_what_cannot_be_handled_ends_all_of_the_line(amux: Amux) -> None:
    session = ready(amux, "echo ready; while true; do sleep 0.05; done")
    session.call("Kill", "s", "SIGKILL")
    session.wait_state("failed")
    assert session.get("ExitCode") == 137
    opens(session)


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_command_that_took_the_place_of_the_shell_runs_is_not_signalled_alone(
    amux: Amux, shell: str
) -> None:
    session = ready(amux, "exec " + HEARS.format(name="TERM"), shell)
    session.call("Kill", "s", "SIGTERM")
    assert session.wait_state("completed", "failed", timeout=20) == "completed"
    shown(session, "heard")


def test_a_line_that_runs_nothing_just_then_is_the_shells_own(amux: Amux) -> None:
    session = ready(amux, "sleep 1000 & echo ready; read word; exit 5")
    session.call("Kill", "s", "SIGUSR1")
    session.wait_state("failed")
    assert session.get("ExitCode") == 138
