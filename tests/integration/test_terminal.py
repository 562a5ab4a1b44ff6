"""What a person sees and presses in a session's own terminal."""

import pytest
from agent_fixtures import Agents
from attention_fixtures import report
from harness.client import Session
from harness.daemon import Amux
from harness.terminal import Terminal
from harness.waiting import until


@pytest.fixture
def session(amux_everywhere: Amux) -> Session:
    """Its first run ends when it is sent a line; the second is one that stays."""
    amux = amux_everywhere
    marker = amux.machine.temporary / "once"
    marker.unlink(missing_ok=True)
    text = f"echo run; [ -e {marker} ] && exec cat; touch {marker}; read x; exit 3"
    return amux.create(["sh", "-c", text], name="build #1 50%")


def attached(session: Session) -> Terminal:
    terminal = session.amux.terminal("attach", session.id, columns=120)
    terminal.expect("run")
    until(lambda: session.get("Attached") == 1)
    return terminal


def test_the_status_line_says_name_state_and_how_to_leave(session: Session) -> None:
    with attached(session) as terminal:
        # And not which program of amux waits in the pane.
        terminal.expect("build #1 50%   ")
        terminal.expect("running | C-b d detaches")
        terminal.type("x\r")
        terminal.expect("failed (exit 3) | C-b d detaches")


def test_the_status_line_says_what_ls_says_whatever_window_is_looked_at(session: Session) -> None:
    with attached(session) as terminal:
        terminal.type("\x02c")
        terminal.expect("1:")
        terminal.expect("running | C-b d detaches")
        session.amux.cli("kill", "-s", "TERM", session.id)
        terminal.expect("failed (SIGTERM) | C-b d detaches")
        assert "failed (SIGTERM)\t" in session.amux.cli("ls").stdout


def test_the_status_line_tells_that_it_waits_and_when_it_is_over(amux: Amux) -> None:
    session = amux.create(["cat"], name="build")
    with amux.terminal("attach", session.id, columns=120) as terminal:
        terminal.expect("running | C-b d detaches")
        until(lambda: session.get("Attached") == 1)
        report(amux, session, "permission")
        terminal.expect("running (waiting: permission) | C-b d detaches")
        assert "running (waiting: permission)\t" in amux.cli("ls").stdout
        terminal.type("yes\r")
        terminal.expect("running | C-b d detaches")


def test_the_status_line_tells_of_an_open_shell_and_then_of_its_end(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    session = amux.create(["echo over; exit 3"], shell=True, env={"SHELL": "/bin/bash"})
    until(lambda: session.get("ShellOpen"))
    with amux.terminal("attach", session.id, columns=120) as terminal:
        terminal.expect("failed (exit 3, shell open) | C-b d detaches")
        assert "failed (exit 3, shell open)\t" in amux.cli("ls").stdout
        until(lambda: session.get("Attached") == 1)
        terminal.type("exit\r")
        # The terminal is not left as if somebody were still there.
        terminal.expect("Process exited with code 3. Click or press R to restart.")
        terminal.expect("failed (exit 3) | C-b d detaches")
        terminal.type("R")
        terminal.expect("over")
        until(lambda: session.get("Run") == 2 and session.get("ShellOpen"))
        terminal.expect("failed (exit 3, shell open) | C-b d detaches")


def test_other_windows_are_listed_beside_the_sessions_own(session: Session) -> None:
    with attached(session) as terminal:
        terminal.type("\x02c")
        terminal.expect("0:main- 1:")


@pytest.mark.parametrize("press", ["R", "r", "\x1b[<0;5;5M\x1b[<0;5;5m"])
def test_a_dead_pane_is_restarted_by_a_key_and_by_a_click(session: Session, press: str) -> None:
    with attached(session) as terminal:
        # As long as it lives the keys are its own.
        terminal.type("Rr\r")
        terminal.expect("Process exited with code 3. Click or press R to restart.")
        session.wait_state("failed")
        with session.amux.events() as events:
            terminal.type(press)
            events.wait(lambda event: event.member == "SessionStateChanged" and event.body[4] == "running")
        assert session.get("Run") == 2
        terminal.type("Rr is text again\r")
        until(lambda: session.log().count("Rr is text again") == 2)
        assert session.get("Run") == 2
        assert session.get("Attached") == 1


def test_pressed_twice_it_is_restarted_once(session: Session) -> None:
    with attached(session) as terminal:
        terminal.type("x\r")
        terminal.expect("press R to restart")
        session.wait_state("failed")
        terminal.type("RR")
        session.wait_state("running")
        terminal.type("and goes on\r")
        until(lambda: session.log().count("and goes on") == 2)
        until(lambda: not any("restart" in words for words in session.amux.machine.command_lines().values()))
        assert session.get("Run") == 2


def test_it_is_restarted_in_place_whatever_its_words_end_in(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    directory = amux.machine.temporary / "work;"
    directory.mkdir()
    text = 'echo "in $PWD, with $0 and $OTHER"; read x; exit 3'
    session = amux.create(
        ["sh", "-c", text, "word;"], name="semi; colon;", cwd=str(directory), env={"OTHER": "value;"}
    )
    says = f"in {directory}, with word; and value;"
    with amux.terminal("attach", session.id, columns=120) as terminal:
        terminal.expect(says)
        until(lambda: session.get("Attached") == 1)
        terminal.type("x\r")
        terminal.expect("press R to restart")
        session.wait_state("failed")
        terminal.type("R")
        session.wait_state("running")
        until(lambda: says in session.log())
        # In the same terminal, and so for who looks at it.
        terminal.type("y\r")
        terminal.expect("press R to restart")
        assert session.get("Run") == 2


def test_other_windows_keep_their_keys(session: Session) -> None:
    with attached(session) as terminal:
        terminal.type("\x02c")
        terminal.expect("1:")
        session.send("x")
        session.wait_state("failed")
        terminal.type("echo R-is-$((40+2))\r")
        terminal.expect("R-is-42")
        assert session.get("Run") == 1


def test_why_a_restart_failed_is_said_in_the_terminal(session: Session) -> None:
    with attached(session) as terminal:
        terminal.type("x\r")
        terminal.expect("press R to restart")
        session.wait_state("failed")
        # Another process has it, so to say: the file of its state cannot be written.
        file = session.amux.state / "sessions" / session.id / "state.json"
        kept = file.read_bytes()
        file.unlink()
        file.mkdir()
        terminal.type("R")
        terminal.expect("stays failed")
        file.rmdir()
        file.write_bytes(kept)


def test_attach_offers_what_is_possible(amux: Amux) -> None:
    marker = amux.machine.temporary / "once"
    marker.unlink(missing_ok=True)
    session = amux.create(["sh", "-c", f"[ -e {marker} ] && exec cat; touch {marker}; exit 3"], name="build")
    session.wait_state("failed")
    with amux.terminal("attach", "build") as terminal:
        terminal.expect("[R] Restart  [T] Teardown (archive for good)  [C] Cancel")
        terminal.type("c")
        assert terminal.wait() == 0
    with amux.terminal("attach", "build") as terminal:
        terminal.expect("[C] Cancel")
        terminal.type("r")
        terminal.expect("detaches")
    assert session.get("Run") == 2
    session.stop()
    with amux.terminal("attach", "build") as terminal:
        terminal.expect("[C] Cancel")
        terminal.type("T")
        assert terminal.wait() == 0
    assert session.state == "archived"
    with amux.terminal("attach", session.id) as terminal:
        assert terminal.wait() == 4


def test_attach_offers_no_restart_where_there_is_nowhere_to_run(amux: Amux) -> None:
    directory = amux.machine.temporary / "gone"
    directory.mkdir()
    amux.cli("ws", "add", "here", "--path", str(directory))
    session = amux.create(["sh", "-c", "echo ready; exec cat"], name="build", workspace="here")
    until(lambda: "ready" in session.log())
    directory.rmdir()
    session.wait_state("orphaned")
    with amux.terminal("attach", "build", columns=120) as terminal:
        assert "[R]" not in terminal.expect("[T] Teardown (archive for good)  [C] Cancel")
        until(terminal.takes_keys)
        # The letter of what is not possible does nothing.
        terminal.type("rc")
        assert terminal.wait() == 0
    assert session.state == "orphaned"
    directory.mkdir()
    with amux.terminal("attach", "build") as terminal:
        terminal.expect("[R] Restart  [T] Teardown (archive for good)  [C] Cancel")
        terminal.type("r")
        terminal.expect("detaches")
    assert (session.state, session.get("Run")) == ("running", 2)


def test_attach_offers_to_go_on_with_a_conversation(amux: Amux) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create(name="agent")
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    session.stop()
    with amux.terminal("attach", "agent", columns=120) as terminal:
        terminal.expect("[S] Resume  [R] Restart  [T] Teardown (archive for good)  [C] Cancel")
        terminal.type("s")
        terminal.expect("remembering")
    assert (session.state, session.get("Run")) == ("running", 2)
