"""amux wait, watch and logs, against a stand-in for amuxd that ends and comes back."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from cli_fixtures import (
    AMUX,
    DEADLINE,
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
)

from amuxd.cli.connection import BUS, Connection


def test_wait_gives_the_first_code_that_is_not_zero_in_the_order_given(build: Stand) -> None:
    for name in ("two", "three"):
        build.amux("run", "-n", name, "make")
    waiting = build.waiting("build", "two", "three")
    build.tell("Exit", "sis", "s003", 3, "")
    build.tell("Exit", "sis", "s002", 2, "")
    build.tell("Exit", "sis", "s001", 0, "")
    assert waiting.ends() == (2, "", "")


def test_wait_any_gives_the_one_that_ended(build: Stand) -> None:
    build.amux("run", "-n", "two", "make")
    waiting = build.waiting("build", "two", options=["--any"])
    build.tell("Exit", "sis", "s002", 2, "")
    assert waiting.ends() == (2, "s002\n", "")


def test_wait_has_a_time_limit(build: Stand) -> None:
    code, _, err = build.amux("wait", "--timeout", "0.1s", "build")
    assert (code, err) == (124, "amux: build (s001) goes on after 0.1s\n")
    assert build.amux("wait", "--timeout", "soon", "build")[0] == 2


def test_the_time_limit_of_wait_holds_also_where_amuxd_hangs(build: Stand) -> None:
    assert build.standin is not None
    build.standin.send_signal(signal.SIGSTOP)
    code, out, err = build.amux("wait", "--timeout", "1s", "build")
    assert (code, out) == (124, "")
    assert err.startswith("amux: amuxd does not answer (waited ")


def test_a_bus_that_is_not_there_is_no_time_that_is_over(build: Stand) -> None:
    build.environment["AMUX_BUS_ADDRESS"] = "unix:path=/nonexistent"
    assert build.amux("wait", "--timeout", "0", "build")[0] == 5


@pytest.mark.parametrize(
    ("alive", "why", "left"),
    [
        ("dead", "waiting until its end is written", "has ended, and that is not written down"),
        ("alive", "still waiting", "goes on"),
    ],
)
def test_wait_tells_an_end_that_is_not_written_from_a_life(
    build: Stand, alive: str, why: str, left: str
) -> None:
    build.tell("Set", "ss", "s001", json.dumps({"SessionAlive": alive, "Unwritten": "no room"}))
    code, _, err = build.amux("wait", "--timeout", "0.1s", "build")
    assert code == 124
    assert err == f"amux: build (s001): no room; {why}\namux: build (s001) {left} after 0.1s\n"


@pytest.mark.parametrize("limit", ["30d", "99999999999999", "9" * 400])
def test_wait_has_no_limit_for_its_time_limit(build: Stand, limit: str) -> None:
    waiting = build.waiting("build", options=["--timeout", limit])
    build.tell("Exit", "sis", "s001", 3, "")
    assert waiting.ends() == (3, "", "")


def test_wait_does_not_take_suspended_for_an_end_and_survives_a_restart(build: Stand) -> None:
    waiting = build.waiting("build")
    build.tell("Move", "sss", "s001", "suspended", "amuxd stops")
    file = Path(build.environment["STANDIN_FILE"])
    build.stop()
    known = json.loads(file.read_text())
    known["sessions"]["s001"] |= {"State": "failed", "ExitCode": 9}
    build.start(**known)
    assert waiting.ends() == (9, "", "")


def test_wait_for_one_that_is_removed(build: Stand) -> None:
    waiting = build.waiting("build")
    build.amux("rm", "-f", "build")
    assert waiting.ends() == (3, "", "amux: build (s001) was removed\n")


@pytest.mark.parametrize(("verb", "code"), [("stop", 128 + signal.SIGTERM), ("archive", 1)])
def test_wait_for_one_that_the_user_ended(build: Stand, verb: str, code: int) -> None:
    build.amux(verb, "build")
    assert build.amux("wait", "build")[0] == code


@pytest.mark.parametrize("is_late", [False, True])
def test_watch_tells_each_event_once_across_a_restart(build: Stand, is_late: bool) -> None:
    """It listens again before there is anything new, or finds out afterwards."""
    watching = build.begin("watch", "--json")
    watching.until('"event": "session".*\n')
    build.tell("Attention", "sss", "s001", "permission", "may I?")
    watching.until('"event": "attention".*"permission".*\n')
    if is_late:
        watching.process.send_signal(signal.SIGSTOP)
    build.stop()
    build.start()
    build.tell("Exit", "sis", "s001", 1, "")
    watching.process.send_signal(signal.SIGCONT)
    lines = [json.loads(line) for line in watching.until('"exited".*\n').splitlines()]
    assert [(line["event"], line["id"]) for line in lines] == [("state", "s001"), ("exited", "s001")]
    assert (lines[0]["old"], lines[0]["new"], lines[0]["reason"]) == (
        "running",
        "failed",
        "exited with code 1",
    )
    assert (lines[1]["exit_code"], lines[1]["signal"]) == (1, None)
    build.amux("rm", "build")
    watching.until('"removed"')


def test_watch_for_people(build: Stand) -> None:
    watching = build.begin("watch")
    watching.until(r"build \(s001\)  running: started\n")
    build.amux("stop", "build")
    watching.until(r"running → stopped: asked to stop\n(.|\n)*exited: SIGTERM\n")


def test_watch_begins_with_the_states_as_the_list_words_them(build: Stand) -> None:
    why = "it is failed (exited with code 1), and that is not written down: No space left on device"
    build.tell("Set", "ss", "s001", json.dumps({"SessionAlive": "dead", "Unwritten": why}))
    build.begin("watch").until(rf"build \(s001\)  running \(ended, not written\): {re.escape(why)}\n")
    told = json.loads(build.begin("watch", "--json").until("\n"))
    assert (told["state"], told["status"]) == ("running", "running (ended, not written)")


def log_of(stand: Stand, run: int = 1) -> Path:
    return stand.directory / "s001" / "runs" / str(run) / "output.log"


def test_logs_prints_bytes_and_last_lines(build: Stand) -> None:
    log_of(build).with_name("output.log.1").write_bytes(b"one\ntwo\n")
    log_of(build).write_bytes(b"three\n\xffour\n")
    finished = subprocess.run(
        [*AMUX, "logs", "build"], env=build.environment, capture_output=True, check=True
    )
    assert finished.stdout == b"one\ntwo\nthree\n\xffour\n"
    assert build.amux("logs", "build", "-n", "0")[1] == ""
    command = [*AMUX, "logs", "build", "-n", "3"]
    assert subprocess.check_output(command, env=build.environment) == b"two\nthree\n\xffour\n"


def test_logs_of_another_run(build: Stand) -> None:
    log_of(build, 2).parent.mkdir()
    log_of(build, 2).write_bytes(b"second\n")
    assert build.amux("logs", "build", "--run", "2")[1] == "second\n"


def test_a_run_that_there_is_not_is_wrong_usage(build: Stand) -> None:
    wrong = "amux: there is no run 7 of build (s001): the latest is run 1\n"
    assert build.amux("logs", "build", "--run", "7") == (2, "", wrong)
    assert build.amux("logs", "-f", "build", "--run", "7") == (2, "", wrong)
    log_of(build).unlink()
    none = "amux: build (s001) has no output of run 1\n"
    assert build.amux("logs", "build", "--run", "1") == (1, "", none)


def test_logs_follows_across_rotation_and_restart_to_the_end_of_the_run(build: Stand) -> None:
    log = log_of(build)
    log.write_bytes(b"one\n")
    following = build.begin("logs", "-f", "build")
    following.until("one\n")
    log.rename(log.with_name("output.log.1"))
    log.write_bytes(b"two\n")
    following.until("two\n")
    build.stop()
    with log.open("ab") as file:
        file.write(b"three\n")
    following.until("three\n")
    build.start()
    with log.open("ab") as file:
        file.write(b"four\n")
    build.tell("Exit", "sis", "s001", 0, "")
    assert following.ends() == (0, "four\n", "")
    assert build.amux("logs", "-f", "-n", "1", "build")[:2] == (0, "four\n")


@pytest.mark.parametrize("ends", ["pipe", "socket"])
@pytest.mark.parametrize(
    "command",
    [
        ["logs", "-f", "build"],
        ["watch"],
        ["ls", "--watch"],
        ["badge", "--follow"],
    ],
    ids=" ".join,
)
def test_who_looks_on_ends_with_whoever_reads_it(build: Stand, ends: str, command: list[str]) -> None:
    log_of(build).write_bytes(b"ready\n")
    theirs, ours = os.pipe() if ends == "pipe" else (end.detach() for end in socket.socketpair())
    looking = build.begin(*command, stdout=ours)
    os.close(ours)
    assert os.read(theirs, 1 << 16)
    os.close(theirs)
    # amuxd tells nothing more, and nothing is printed.
    assert looking.process.wait(DEADLINE) == 141
    assert looking.ends()[2] == ""


@pytest.mark.parametrize(("options", "once"), [([], "SESSION"), (["--json"], '"id": "s001"')])
def test_the_list_is_shown_once_a_change(build: Stand, options: list[str], once: str) -> None:
    listing = build.begin("ls", "--watch", *options)
    shown = listing.until("running")
    build.tell("Attention", "sss", "s001", "permission", "may I?")
    shown += listing.until("permission")
    assert shown.count(once) == 2


def test_what_the_bus_tells_of_a_connection_itself_is_no_change(bus: Stand) -> None:
    connection = Connection(str(bus.socket), DEADLINE)
    # It comes right after the connection has a name, and so before what is asked for then.
    connection.call(BUS, "GetId", timeout=DEADLINE)
    assert connection.signals_at_hand() == []
    connection.close()
