"""A person's own terminal while it is lent to a session, and after it, however that ended."""

import json
import re
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest
from harness.client import Session
from harness.daemon import Amux
from harness.terminal import Terminal
from harness.waiting import until

LEAVE = "\x02d"
SCREEN, BACK = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def session(amux_everywhere: Amux) -> Session:
    return amux_everywhere.create(["sh", "-c", "echo ready; exec cat"], name="build")


@pytest.fixture
def shell(session: Session) -> Iterator[Terminal]:
    """A shell with job control, as people have; what is typed into it is not shown twice."""
    amux = session.amux
    argv = ["bash", "--norc", "--noediting", "-i"]
    with Terminal(amux.machine, argv, columns=120, env=amux.environment | {"PS1": "$ "}) as terminal:
        terminal.expect("$ ")
        yield terminal


def attach(shell: Terminal, session: Session) -> None:
    shell.type(f"{session.amux.bindir / 'amux'} attach build; echo code=$?\n")
    shell.expect("detaches")
    until(lambda: session.get("Attached") == 1)


def kill_terminal_server(session: Session) -> None:
    state = json.loads((session.amux.state / "sessions" / session.id / "state.json").read_text())
    session.amux.machine.kill(int(state["server"]["pid"]))


def kill_unit(session: Session) -> None:
    session.amux.machine.systemctl("kill", "--signal=SIGKILL", f"amux-{session.id}.service")


def process_of(session: Session, *last_words: str) -> psutil.Process:
    lines = session.amux.machine.command_lines()
    [pid] = [pid for pid, words in lines.items() if words[-len(last_words) :] == list(last_words)]
    return psutil.Process(pid)


@pytest.mark.parametrize("strike", [kill_terminal_server, kill_unit])
def test_a_terminal_is_as_it_was_after_a_crash_and_says_what_happened(
    session: Session, shell: Terminal, strike: Callable[[Session], None]
) -> None:
    before = shell.settings()
    attach(shell, session)
    during = shell.settings()
    strike(session)
    said = shell.expect("code=1")
    assert re.search(rf"build \({session.id}\) is failed.*terminal server died \(SIGKILL\)", said)
    shell.expect("$ ")
    assert during != before
    assert shell.settings() == before
    assert shell.everything.rindex(BACK) > shell.everything.rindex(SCREEN)


def test_a_client_that_is_killed_is_told_of(session: Session, shell: Terminal) -> None:
    before = shell.settings()
    attach(shell, session)
    process_of(session, *session.call("AttachCommand")[1:]).kill()
    assert f"build ({session.id}) is running" in shell.expect("code=1")
    shell.expect("$ ")
    assert shell.settings() == before
    assert shell.everything.rindex(BACK) > shell.everything.rindex(SCREEN)


def test_who_leaves_is_told_that_it_goes_on(session: Session, shell: Terminal) -> None:
    before = shell.settings()
    attach(shell, session)
    # These keys are the session's.
    shell.type("\x1c\x03")
    until(lambda: session.state != "running")
    session.call("Restart")
    session.wait_state("running")
    shell.type(LEAVE)
    assert f"build ({session.id}) is running" in shell.expect("code=0")
    shell.expect("$ ")
    assert shell.settings() == before
    assert shell.everything.count(BACK) == shell.everything.count(SCREEN)


def test_of_one_that_is_stopped_elsewhere_it_is_said(session: Session, shell: Terminal) -> None:
    attach(shell, session)
    session.stop()
    assert f"build ({session.id}) is stopped" in shell.expect("code=0")
    shell.expect("$ ")


def test_a_terminal_that_tmux_cannot_use_is_told(session: Session, shell: Terminal) -> None:
    shell.type(f"TERM=nonsense {session.amux.bindir / 'amux'} attach build; echo code=$?\n")
    said = shell.expect("code=1")
    assert "nonsense" in said
    assert f"build ({session.id}) is running" in said


def test_of_what_ends_at_once_it_is_told_what_it_printed(amux_everywhere: Amux) -> None:
    """Whether it has ended when it is looked at, when it is taken, or just after that."""
    amux = amux_everywhere
    for attempt in range(1, 9):
        name = f"brief-{attempt}"
        with amux.terminal("run", "-n", name, "--attach", "--", "sh", "-c", "echo one; echo two") as terminal:
            _, said = terminal.expect_any("is completed", "press R to restart")
            is_kept = said != "is completed"
            if is_kept:
                # It was taken in time, and stays to be looked at.
                terminal.type(LEAVE)
            assert terminal.wait() == 0
        standing = f"{name} ({amux.session(name).id}) is completed: exited with code 0\r\n"
        assert terminal.everything.endswith(standing if is_kept else f"one\r\ntwo\r\n{standing}")
        assert terminal.everything.count("is completed") == 1
        assert not re.search("not possible|no server|error connecting", terminal.everything)


def test_it_is_suspended_and_resized_as_a_job_of_the_shell(session: Session, shell: Terminal) -> None:
    attach(shell, session)
    shell.type("\x02\x1a")
    shell.expect("Stopped")
    shell.expect("$ ")
    shell.resize(97, 31)
    shell.type("echo here-$((40 + 2))\n")
    shell.expect("here-42")
    shell.type("fg\n")
    shell.expect("detaches")
    # Without the line that tells of the session.
    until(lambda: size(session) == "97 30")
    shell.resize(88, 26)
    until(lambda: size(session) == "88 25")
    shell.type(LEAVE)
    shell.expect("is running")


def size(session: Session) -> str:
    argv = [*session.call("AttachCommand")[:4], "display-message", "-p", "#{pane_width} #{pane_height}"]
    return str(session.amux.machine.run(argv).stdout.strip())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_amux_that_is_ended_takes_its_client_along(session: Session, number: signal.Signals) -> None:
    amux = session.amux
    with amux.terminal("attach", "build") as terminal:
        before = terminal.settings()
        terminal.expect("detaches")
        until(lambda: session.get("Attached") == 1)
        process_of(session, "attach", "build").send_signal(number)
        until(lambda: session.get("Attached") == 0)
        assert terminal.process.wait(10) in (128 + number, -number)
        until(lambda: terminal.settings() == before)
    assert session.state == "running"
