"""amux attach, against a stand-in for amuxd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import re
import subprocess

import pytest
from cli_fixtures import (
    Stand,
    Terminal,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)


def test_attach_takes_the_terminal(build: Stand) -> None:
    code, out = build.terminal("attach", "build", TMUX="outer").ends()
    assert (code, out) == (0, "attached to s001 tmux=\r\nbuild (s001) is running\r\n")
    out = build.terminal("run", "--attach", "-q", "make").ends()[1]
    assert out.startswith("s002\r\nattached to s002 tmux=\r\n")


def test_attach_without_a_terminal(build: Stand) -> None:
    code, _, err = build.amux("attach", "build")
    assert (code, err.splitlines()[0]) == (1, "amux: attach needs a terminal")


def test_run_attach_without_a_terminal_starts_nothing(build: Stand) -> None:
    code, out, err = build.amux("run", "--attach", "make")
    assert (code, out, err.splitlines()[0]) == (1, "", "amux: attach needs a terminal")
    assert "s002" not in build.amux("ls", "-a")[1]


def test_attach_to_itself(build: Stand) -> None:
    code, out = build.terminal("attach", "build", AMUX_SESSION_ID="s001").ends()
    assert (code, out) == (4, "amux: this terminal is build (s001) itself\r\n")


def test_attach_to_one_that_ended_in_a_pipe(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", 1, "")
    code, _, err = build.amux("attach", "build")
    assert code == 4
    assert err.startswith("amux: build (s001) is failed (exit 1): exited with code 1\n")


@pytest.mark.parametrize(
    ("key", "code", "says", "state"),
    [
        (b"r", 0, "attached to s001", "running"),
        (b"T", 0, "archived build", "archived"),
        (b"c", 0, "C\r\n", "failed"),
        (b"x\x03", 0, "C\r\n", "failed"),
        (b"tc", 0, "t\r\nonly a capital T does that\r\n[R] Restart  [T] ", "failed"),
        (b"ttT", 0, "archived build", "archived"),
    ],
)
def test_attach_offers_what_is_possible(build: Stand, key: bytes, code: int, says: str, state: str) -> None:
    build.tell("Exit", "sis", "s001", 1, "")
    terminal = build.terminal("attach", "build")
    terminal.until(re.escape("[R] Restart  [T] Teardown (archive for good)  [C] Cancel "))
    wait_for(lambda: "-icanon" in settings(terminal))
    terminal.type(key)
    ended, out = terminal.ends()
    assert ended == code
    assert says in out
    assert json.loads(build.amux("show", "--json", "build")[1])["state"] == state


LATE = ["refused", "without server", "without a word"]
TOLD = r"the last line\e[31m" + "\r\nof all\r\n{} is failed (exit 3): exited with code 3\r\n"


@pytest.mark.parametrize("late", LATE)
def test_run_attach_of_what_ended_first_tells_what_it_printed(stand: Stand, late: str) -> None:
    stand.tell("Behave", "s", json.dumps({"late": late}))
    code, out = stand.terminal("run", "--attach", "make").ends()
    assert (code, out) == (1, "started make (s001)\r\n" + TOLD.format("make (s001)"))


def test_run_attach_of_what_has_ended_at_once(stand: Stand) -> None:
    code, out = stand.terminal("run", "--attach", "exit", "3").ends()
    assert (code, out) == (1, "started exit (s001)\r\n" + TOLD.format("exit (s001)"))


@pytest.mark.parametrize("late", LATE)
def test_attach_to_one_that_ends_just_then_offers_what_is_possible(build: Stand, late: str) -> None:
    build.tell("Behave", "s", json.dumps({"late": late}))
    terminal = build.terminal("attach", "build")
    said = terminal.until(re.escape("[R] Restart  [T] Teardown (archive for good)  [C] Cancel "))
    assert said.startswith("build (s001) is failed (exit 3): exited with code 3\r\n[R]")
    wait_for(lambda: "-icanon" in settings(terminal))
    terminal.type(b"r")
    # It ends so again, and is not asked about again.
    code, out = terminal.ends()
    assert (code, out) == (1, "R\r\n" + TOLD.format("build (s001)"))


def settings(terminal: Terminal) -> str:
    return subprocess.run(
        ["stty", "-a"], stdin=terminal.main, capture_output=True, text=True, check=True
    ).stdout
