"""amux ls, show and history, against a stand-in for amuxd: on terminals, in pipes, as JSON."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import os
import re
import signal
from pathlib import Path

import pytest
from cli_fixtures import (
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
)

from amuxd.cli.text import width


def test_an_empty_list(stand: Stand) -> None:
    headings = "SESSION\tNAME\tDESCRIPTION\tAGENT\tWORKSPACE\tSTATUS\tIN-STATUS\tTOTAL\n"
    assert stand.amux("ls") == (0, headings, "")
    assert stand.amux("ls", "--state", "failed") == (0, headings, "")
    assert stand.amux("ls", "--json") == (0, "[]\n", "")
    watching = stand.begin("ls", "--watch")
    assert watching.until("\n\n") == headings + "\n"
    watching.process.send_signal(signal.SIGINT)
    assert watching.ends()[0] == 130
    assert "no sessions yet" in stand.terminal("ls").ends()[1]


def test_ls_in_a_pipe_has_columns_for_programs(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", 3, "")
    code, out, err = build.amux("ls")
    assert (code, err) == (0, "")
    head, row = [line.split("\t") for line in out.splitlines()]
    columns = ["SESSION", "NAME", "DESCRIPTION", "AGENT", "WORKSPACE", "STATUS", "IN-STATUS", "TOTAL"]
    assert head == columns
    assert row[:6] == ["s001", "build", "what for", "-", "-", "failed (exit 3)"]


def test_ls_on_a_terminal_fits_it_and_shows_names_harmless(stand: Stand) -> None:
    stand.amux("run", "-n", "日本\x1b[2Jx" + "y" * 80, "-d", "long " * 40, "make")
    code, out = stand.terminal("ls", columns=70).ends()
    assert code == 0
    assert "\x1b[2J" not in out
    assert "\\e[2J" in out
    assert "…" in out
    assert "\x1b[32mrunning" in out
    assert "AGENT" not in out
    plain = stand.terminal("ls", columns=70, NO_COLOR="1").ends()[1]
    assert "\x1b" not in plain
    assert all(width(line) <= 70 for line in plain.splitlines())


WAITING = {"Attention": "permission"}
GONE = {"SessionAlive": "dead", "Unwritten": "it is failed"}


@pytest.mark.parametrize("columns", range(20, 101, 5))
def test_ls_on_a_narrow_terminal_cuts_all_else_before_the_state(stand: Stand, columns: int) -> None:
    for name, changes in (("a-long-name-of-it", WAITING), ("another-long-name", GONE)):
        stand.amux("run", "-n", name, "-d", "what it is for", "make")
        stand.tell("Set", "ss", f"s{1 + (changes is GONE):03}", json.dumps(changes))
    lines = stand.terminal("ls", columns=columns, NO_COLOR="1").ends()[1].splitlines()
    assert all(width(line) <= columns for line in lines)
    head, *rows = lines
    for row, status in zip(
        rows, ("running (waiting: permission)", "running (ended, not written)"), strict=True
    ):
        assert row.startswith("s00")
        # s001, two blanks, and the longer of the two.
        assert (status if columns >= len("SESSION") + 2 + 29 else "running") in row
    names = head.split()
    if columns >= 50:
        assert "NAME" in names
    if columns >= 60:
        assert "IN-STATUS" in names
    if columns == 100:
        assert names == ["SESSION", "NAME", "DESCRIPTION", "STATUS", "IN-STATUS", "TOTAL"]
        assert "a-long-name-of-it" in rows[0]


def test_ls_filters(build: Stand) -> None:
    build.amux("run", "nope")
    assert build.amux("ls", "--state", "failed")[1].count("\n") == 2
    build.amux("archive", "nope")
    assert "nope" not in build.amux("ls")[1]
    assert "nope" in build.amux("ls", "-a")[1]
    assert "nope" in build.amux("ls", "--state", "archived", "--state", "failed")[1]
    assert build.amux("ls", "--state", "happy")[0] == 2


def test_json_is_snake_case_with_null(build: Stand) -> None:
    (listed,) = json.loads(build.amux("ls", "--json")[1])
    assert listed == json.loads(build.amux("show", "--json", "build")[1])
    assert (listed["id"], listed["state"], listed["session_alive"]) == ("s001", "running", True)
    assert (listed["exit_code"], listed["exit_signal"], listed["workspace"]) == (None, None, None)
    assert listed["command"] == ["make", "-j4"]


def test_ls_watch_shows_each_change(build: Stand) -> None:
    watching = build.begin("ls", "--watch")
    watching.until("running")
    build.tell("Exit", "sis", "s001", 2, "")
    watching.until(r"failed \(exit 2\)")
    build.stop()
    build.start()
    build.amux("run", "-n", "after", "make")
    watching.until("after")
    watching.process.send_signal(signal.SIGINT)
    code, _, err = watching.ends()
    assert (code, err.strip()) == (130, "")


@pytest.mark.parametrize(("rows", "hidden"), [(23, 0), (22, 2), (4, 20), (2, 20)])
def test_ls_watch_says_how_many_do_not_fit(stand: Stand, rows: int, hidden: int) -> None:
    for number in range(20):
        stand.amux("run", "-q", "-n", f"session-{number}", "true")
    watching = stand.terminal("ls", "--watch", rows=rows)
    screen = watching.until(r"session-19 .*\n" if not hidden else f"and {hidden} more, for which .*\n")
    assert screen.count("\n") <= rows - 1
    assert screen.count("session-") == 20 - hidden
    os.kill(watching.process.pid, signal.SIGINT)
    assert watching.ends()[0] == 130


def test_show_leaves_out_what_nobody_would_read(stand: Stand) -> None:
    stand.amux("run", "-n", "long", "-d", "why", "echo", "x" * 100_000)
    shown = stand.amux("show", "long")[1]
    assert len(shown) < 3000
    assert re.search(r"Command: +echo x{900,}… and 99005 more characters: --json has them\n", shown)
    assert json.loads(stand.amux("show", "--json", "long")[1])["command"] == ["echo", "x" * 100_000]


def test_show_tells_the_end(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", -1, "SIGSEGV")
    code, out, _ = build.amux("show", "build")
    assert code == 0
    assert "State:       failed (SIGSEGV): killed by SIGSEGV\n" in out
    assert "Ended:       SIGSEGV, 20" in out
    assert "  the last line\\e[31m\n  of all\n" in out
    assert "Next:        amux logs|restart|archive|rm s001" in out


def test_show_tells_of_a_log_only_where_one_is_kept(build: Stand) -> None:
    log = Path(json.loads(build.amux("show", "--json", "build")[1])["log_path"])

    def shown() -> tuple[str, bool]:
        out = build.amux("show", "build")[1]
        told = re.search(r"^Log: +(.*)$", out, re.MULTILINE)
        return told[1] if told else "", "|logs" in out

    assert shown() == (str(log), True)
    log.rename(log.with_name("output.log.1"))
    assert shown() == (str(log), True)
    log.with_name("output.log.1").unlink()
    assert shown() == ("gone", False)
    build.tell("Set", "ss", "s001", json.dumps({"State": "created", "StartedUSec": 0}))
    assert shown() == ("", False)


def test_show_tells_how_a_run_ended(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", 3, "")
    out = build.amux("show", "--run", "1", "build")[1]
    assert re.search(r"Session: +build \(s001\)\nRun: +1\nEnded: +exited with code 3, 20", out)
    assert "  the last line\\e[31m\n  of all\n" in out
    assert build.amux("show", "--run", "0", "build")[0] == 2


def test_history(build: Stand) -> None:
    out = build.amux("history", "build")[1]
    assert [line.split("\t")[1:5] for line in out.splitlines()][1:] == [
        ["1", "created", "starting", "asked to start"],
        ["1", "starting", "running", "started"],
    ]
    last = json.loads(build.amux("history", "--json", "build")[1])[-1]
    assert {**last, "at_usec": 0} == {
        "at_usec": 0,
        "run": 1,
        "from": "starting",
        "to": "running",
        "reason": "started",
        "by": "standin",
    }
