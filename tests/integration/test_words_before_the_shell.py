"""What a death certificate quotes is the command's, also where a shell opens after it and prints as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.client import Client, Session
from harness.daemon import Amux
from harness.machine import Machine
from harness.waiting import until

# Also before the command, the shell that runs it is interactive.
GREETS = """\
if [ -z "$BASH_EXECUTION_STRING" ]; then
    for number in $(seq 30); do echo "banner $number"; done
fi
PS1='ready> '
"""
# Longer than anybody would wait for it to be quiet.
KEEPS_ON_GREETING = """\
if [ -z "$BASH_EXECUTION_STRING" ]; then
    trap 'exit' HUP
    while :; do echo banner; sleep 0.02; done
fi
"""


@pytest.fixture
def bashrc(shared_machine: Machine) -> Iterator[Path]:
    path = shared_machine.home / ".bashrc"
    path.write_text(GREETS)
    yield path
    path.unlink()


def in_bash(amux: Client, line: str) -> Session:
    return amux.create([line], shell=True, env={"SHELL": "/bin/bash"})


def last_lines(session: Session) -> list[str]:
    return list(session.certificate()["last_lines"])


def log_of(session: Session) -> Path:
    return Path(session.get("LogPath"))


def type_into(session: Session, line: str) -> None:
    """Also while amuxd is away."""
    socket = session.amux.runtime / "tmux" / f"{session.id}.sock"
    session.amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", line, "Enter"])


def test_what_the_shell_prints_is_not_the_commands(amux: Amux, bashrc: Path) -> None:
    session = in_bash(amux, "echo THE ERROR; false")
    session.wait_state("failed")
    until(lambda: "ready> " in session.log())
    assert last_lines(session) == ["THE ERROR"]
    shown = amux.cli("show", session.id).stdout
    assert shown.endswith("It last printed:\n  THE ERROR\n")


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("printf 'half a line'", ["half a line"]),
        ("seq 1 3; printf '4\\033[31m5'", ["1", "2", "3", "45"]),
        (":", []),
        ("printf 'a title that never ends: \\033]0;title'", ["a title that never ends:"]),
        ("seq 1 10000", [str(number) for number in range(9981, 10001)]),
    ],
    ids=["without a newline", "in the midst of a colour", "nothing", "in the midst of a word", "much"],
)
def test_it_is_whole(amux: Amux, bashrc: Path, printed: str, lines: list[str]) -> None:
    session = in_bash(amux, f"{printed}; (exit 3)")
    session.wait_state("failed")
    assert last_lines(session) == lines


def test_a_shell_that_never_rests_keeps_no_certificate_waiting(amux: Amux, bashrc: Path) -> None:
    bashrc.write_text(KEEPS_ON_GREETING)
    session = in_bash(amux, "echo THE ERROR; false")
    session.wait_state("failed")
    until(lambda: session.log().count("banner") > 100)
    assert last_lines(session) == ["THE ERROR"]


def test_a_shell_that_leaves_at_once(amux: Amux, bashrc: Path) -> None:
    bashrc.write_text(GREETS + '[ -n "$BASH_EXECUTION_STRING" ] || exit\n')
    session = in_bash(amux, "echo THE ERROR; false")
    session.wait_state("failed")
    assert last_lines(session) == ["THE ERROR"]
    until(lambda: session.get("HostAlive") != "alive")
    assert "banner 30" in session.log()


@pytest.mark.parametrize("shell", ["stays open", "has ended"])
def test_amuxd_was_away_when_the_shell_opened(amux: Amux, bashrc: Path, shell: str) -> None:
    session = in_bash(amux, "echo ready; read answer; echo THE ERROR; false")
    until(lambda: "ready" in session.log())
    log = log_of(session)
    amux.stop()
    type_into(session, "go")
    until(lambda: b"ready> " in log.read_bytes())
    type_into(session, "seq 101 199")
    until(lambda: b"199\r\n" in log.read_bytes())
    if shell == "has ended":
        type_into(session, "exit")
        until(session.command_has_ended)
    amux.start()
    session.wait_state("failed")
    assert last_lines(session)[-1] == "THE ERROR"
    until(lambda: session.get("HostAlive") == ("alive" if shell == "stays open" else "dead"))
    assert b"7702" not in amux_logs(amux, session)


def test_amuxd_is_killed_before_it_was_certified(amux: Amux, bashrc: Path) -> None:
    session = in_bash(amux, "echo ready; read answer; echo THE ERROR; false")
    until(lambda: "ready" in session.log())
    with amux.events() as events:
        type_into(session, "go")
        events.wait(lambda event: event.member == "SessionExited")
        amux.kill()
    amux.start()
    assert session.wait_state("failed") == "failed"
    assert last_lines(session)[-1] == "THE ERROR"


def amux_logs(amux: Amux, session: Session, *options: str) -> bytes:
    return amux.cli("logs", *options, session.id).stdout.encode()


def test_nobody_sees_where_the_shell_began(amux: Amux, bashrc: Path) -> None:
    bashrc.write_text(GREETS.replace("30", "3"))
    session = in_bash(amux, "printf 'half a line'; false")
    session.wait_state("failed")
    log = log_of(session)
    until(lambda: b"ready> " in log.read_bytes())
    shown = session.call("Capture", "u", 24)
    assert shown.rstrip() == "half a linebanner 1\nbanner 2\nbanner 3\nready>"
    printed = b"half a linebanner 1\nbanner 2\nbanner 3\n"
    assert amux_logs(amux, session).startswith(printed)
    assert amux_logs(amux, session, "-n", "4").startswith(printed)
    type_into(session, "echo on-$((1 + 1))")
    until(lambda: b"on-2\r\n" in log.read_bytes())
    session.stop()
    # Nobody writes to it any more: now it is what the terminal printed, byte for byte.
    kept = log.read_bytes()
    assert kept.startswith(b"half a linebanner 1\r\nbanner 2\r\nbanner 3\r\n")
    assert b"on-2\r\n" in kept
    assert b"7702" not in kept
    assert last_lines(session) == ["half a line"]


def test_the_next_run_has_words_of_its_own(amux: Amux, bashrc: Path) -> None:
    session = in_bash(amux, "echo run $AMUX_SESSION_ID; false")
    session.wait_state("failed")
    until(lambda: session.get("HostAlive") == "alive")
    first = log_of(session)
    until(lambda: b"ready> " in first.read_bytes())
    # It prints what the first one's log holds, mark and all.
    type_into(session, f"cat {first}")
    session.call("Restart")
    session.wait_state("failed")
    assert session.certificate(2)["last_lines"] == [f"run {session.id}"]
    session.remove(force=True)
