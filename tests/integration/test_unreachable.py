"""An amuxd that cannot be had: amux says at once what it is, and how to go on."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from harness.client import Client
from harness.daemon import Amux, Embedded
from harness.machine import REPOSITORY
from harness.small_disks import read_only
from harness.waiting import until

from amuxd.daemon import OTHER_DAEMON_DEADLINE

SAID = "ValueError: it is broken"
BROKEN = f"""[Service]
ExecStart=
ExecStart=/bin/sh -c 'echo "{SAID}" >&2; exit 1'
SyslogIdentifier=amuxd
RestartSec=%s
"""
FAILED = f"amux: amuxd failed too often, and systemd does not start it any more; it last said: {SAID}\n"
# A wait that only a fault makes, and the half of it, which is enough for whatever else a machine has to do.
WAIT = 120.0
AT_ONCE = WAIT / 2
PATIENT = f"""
from amuxd.cli import main
from amuxd.cli.client import Client
Client.__init__.__defaults__ = (True, {WAIT})
main()
"""


def patient(
    client: Client, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """amux as it is, but that it would wait for so long where it has nothing to wait for."""
    python = client.machine.bindir / "python3"
    environment = client.environment | dict(env or {})
    return client.machine.run(
        [python, "-c", PATIENT, *arguments], check=False, timeout=2 * WAIT, env=environment
    )


@pytest.fixture
def broken(amux: Amux) -> Iterator[Callable[[str], None]]:
    """Makes that amuxd cannot start any more, with this pause between two attempts; "": it can again."""
    directory = amux.machine.outside(amux.machine.runtime) / "systemd/user/amuxd.service.d"
    file = directory / "broken.conf"

    def set_pause(pause: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(BROKEN % pause if pause else "")
        amux.machine.systemctl("daemon-reload")

    yield set_pause
    file.unlink()
    directory.rmdir()
    amux.machine.systemctl("daemon-reload")


def test_what_systemd_does_not_start_any_more_is_not_waited_for(
    amux: Amux, broken: Callable[[str], None]
) -> None:
    session = amux.create(["sleep", "infinity"], name="build")
    pid = session.get("Pid")
    watching = [
        amux.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command in (["watch"], ["wait", "build"])
    ]
    assert watching[0].stdout is not None
    assert "build" in watching[0].stdout.readline()
    broken("10ms")
    amux.kill()
    until(lambda: amux.machine.systemctl("is-active", "amuxd.service", check=False) == "failed", timeout=60)
    for command in (["ls"], ["stop", "build"]):
        before = time.monotonic()
        refused = patient(amux, *command)
        assert time.monotonic() - before < AT_ONCE
        assert (refused.returncode, refused.stdout) == (5, "")
        assert refused.stderr.startswith(FAILED)
    for process in watching:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 5
        assert err.startswith(FAILED)

    # What the hint says helps, once the fault is mended.
    broken("")
    hint = refused.stderr.splitlines()[1].rpartition(": ")[2]
    assert hint == "systemctl --user reset-failed amuxd"
    amux.machine.run(hint.split())
    assert "running" in amux.cli("ls").stdout
    assert session.get("Pid") == pid
    assert amux.machine.systemctl("is-active", "amuxd.socket") == "active"


def test_what_is_tried_again_is_waited_for_and_then_told(amux: Amux, broken: Callable[[str], None]) -> None:
    broken("60s")
    amux.stop()
    refused = amux.cli("ls", check=False)
    assert refused.returncode == 5
    told, hint = refused.stderr.splitlines()
    assert told == f"amux: amuxd does not start (waited 10 s); it last said: {SAID}"
    assert hint.strip() == "journalctl --user -u amuxd"


def test_where_nothing_can_be_kept_amuxd_says_so_at_once_and_comes_back(amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"])
    amux.stop()
    with read_only(amux, amux.state):
        for _ in range(3):
            before = time.monotonic()
            refused = patient(amux, "ls")
            assert time.monotonic() - before < AT_ONCE
            assert refused.returncode == 5
            said = f"nothing can be kept in {amux.state}: Read-only file system"
            assert refused.stderr.startswith(f"amux: amuxd does not start; it last said: {said}\n")
        assert amux.machine.systemctl("show", "--property=NRestarts", "--value", "amuxd.service") == "0"
    assert "running" in amux.cli("ls").stdout
    assert session.state == "running"


def test_what_cannot_be_written_of_one_session_is_not_taken_for_its_death(amux: Amux) -> None:
    session, other = amux.create(["sleep", "infinity"]), amux.create(["sleep", "infinity"])
    amux.stop()
    with read_only(amux, amux.state / "sessions" / session.id):
        amux.start()
        shown = amux.cli("show", session.id).stdout
        assert "Alive:       not known yet" in shown
        assert f"Next:        amux logs {session.id}" in shown
        assert amux.cli("rm", session.id, check=False).returncode == 1
        refused = amux.cli("stop", session.id, check=False)
        assert refused.returncode == 1
        why = f"amux: sleep could not be looked at (it cannot be written: {amux.state}/sessions/{session.id} "
        assert refused.stderr.startswith(why)
        way = "stop is not possible until then; its processes can be ended by: "
        hint = f"systemctl --user kill --signal=SIGKILL amux-{session.id}.service"
        assert refused.stderr.endswith(f"{way}{hint}\n")
        assert other.state == "running"
    session.wait_state("running", timeout=60)
    assert "Alive:" not in amux.cli("show", session.id).stdout


def test_of_one_that_hangs_nothing_is_asked_that_it_would_do_later(embedded: Embedded) -> None:
    embedded.cli("ls")
    keeper = embedded.machine.outside_pid(int((embedded.state / "amuxd.lock").read_text()))
    os.kill(keeper, signal.SIGSTOP)
    try:
        asking = [
            embedded.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for command in (["run", "sleep", "infinity"], ["clean"])
        ]
        for process in asking:
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (5, "")
            assert err.splitlines()[0] == "amux: amuxd does not answer (waited 10 s)"
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert embedded.cli("ls", "--json").stdout == "[]\n"


def test_of_one_that_hangs_without_systemd_the_hint_says_how_to_have_another(embedded: Embedded) -> None:
    embedded.cli("run", "-n", "build", "sleep", "infinity")
    keeper = embedded.machine.outside_pid(int((embedded.state / "amuxd.lock").read_text()))
    os.kill(keeper, signal.SIGSTOP)
    refused = embedded.cli("ls", check=False)
    assert refused.returncode == 5
    said, hint = refused.stderr.splitlines()
    assert said == "amux: amuxd does not answer (waited 10 s)"
    way, _, consequence = hint.partition("(")
    assert consequence == "no session ends, and the next amux starts another)"
    embedded.machine.run(way.split())
    assert "running" in embedded.cli("ls").stdout


def test_why_it_does_not_start_without_systemd(embedded: Embedded) -> None:
    lock = embedded.state / "amuxd.lock"
    lock.mkdir(parents=True)
    refused = embedded.cli("ls", check=False)
    assert refused.returncode == 5
    told, hint = refused.stderr.splitlines()
    assert told.startswith("amux: amuxd does not start: ")
    assert told.endswith(f"; it last said: nothing can be kept in {embedded.state}: Is a directory")
    assert hint.endswith("/bin/amuxd")
    lock.rmdir()
    assert embedded.cli("ls").returncode == 0


def test_where_the_user_may_watch_no_more_files(embedded: Embedded) -> None:
    """A user's limit holds in each namespace: here there are none for anybody, and nobody else is touched."""
    limited = ["unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_inotify_instances; exec "$@"', "sh"]
    amux = [*limited, str(embedded.bindir / "amux"), "ls"]
    refused = embedded.machine.run(amux, env=embedded.environment, check=False)
    assert refused.returncode == 5
    assert "it last said: no file can be watched: Too many open files (sysctl " in refused.stderr
    assert "Traceback" not in refused.stderr


def test_why_it_cannot_even_be_loaded_without_systemd(embedded: Embedded, tmp_path: Path) -> None:
    (tmp_path / "sdnotify.py").write_text("raise ImportError('this one is broken')\n")
    # What an amuxd said that could start is not taken for the reason.
    embedded.state.mkdir(parents=True)
    (embedded.state / "amuxd.log").write_text("long ago\n")
    path = f"{tmp_path}:{REPOSITORY}"
    refused = embedded.cli("ls", check=False, env={"PYTHONPATH": path})
    assert refused.returncode == 5
    assert refused.stderr.splitlines()[0].endswith("; it last said: ImportError: this one is broken")


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_somebody_elses_sessions_are_not_taken_for_ours(
    embedded: Embedded, tmp_path: Path, variable: str
) -> None:
    first = {"XDG_STATE_HOME": ""} if variable == "HOME" else {}
    second = first | {variable: str(tmp_path)}
    embedded.cli("run", "-n", "theirs", "cat", env=first)
    for command in (["ls"], ["run", "-n", "mine", "cat"], ["rm", "-f", "theirs"]):
        refused = embedded.cli(*command, check=False, env=second)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert f"and you have yours in {tmp_path}/" in refused.stderr
        assert str(embedded.state) in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert "theirs" in embedded.cli("ls", env=first).stdout

    runtime = embedded.machine.temporary / "runtime"
    runtime.mkdir(mode=0o700)
    apart = second | {"XDG_RUNTIME_DIR": str(runtime)}
    assert embedded.cli("ls", "--json", env=apart).stdout == "[]\n"


@pytest.fixture
def elsewhere(embedded: Embedded) -> dict[str, str]:
    runtime = embedded.machine.temporary / "else where"
    runtime.mkdir(mode=0o700)
    return {"XDG_RUNTIME_DIR": str(runtime)}


@pytest.mark.parametrize("theirs_is_usual", [True, False])
def test_where_the_amuxd_of_this_home_can_be_reached_is_said_at_once(
    embedded: Embedded, elsewhere: dict[str, str], theirs_is_usual: bool
) -> None:
    usual = {"XDG_RUNTIME_DIR": "" if not theirs_is_usual else str(embedded.runtime.parent)}
    first, second = (usual, elsewhere) if theirs_is_usual else (elsewhere, usual)
    embedded.cli("run", "-n", "theirs", "cat", env=first)
    before = {process.pid for process in embedded.machine.processes()}
    began = time.monotonic()
    refused = patient(embedded, "ls", env=second)
    # For so long an amuxd of its own would wait for the other one, before it said the same.
    assert time.monotonic() - began < 0.8 * OTHER_DAEMON_DEADLINE
    assert (refused.returncode, refused.stdout) == (5, "")
    keeper = (embedded.state / "amuxd.lock").read_text().strip()
    runtime = f"'{first['XDG_RUNTIME_DIR']}'" if first is elsewhere else first["XDG_RUNTIME_DIR"]
    assert refused.stderr == (
        f"amux: another amuxd (pid {keeper}) looks after {embedded.state}\n"
        f"      reach it with XDG_RUNTIME_DIR={runtime}\n"
    )
    assert {process.pid for process in embedded.machine.processes()} == before
    assert "theirs" in embedded.cli("ls", env=first).stdout


def test_of_two_that_start_an_amuxd_at_once_the_late_one_takes_its_bus_away(
    embedded: Embedded, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    # In the moment between a look for another amuxd and the start of a bus of its own.
    late = tmp_path / "dbus-daemon"
    late.write_text(
        f"#!/bin/sh\nXDG_RUNTIME_DIR={embedded.runtime.parent} PATH=${{PATH#*:}} amux ls || exit\n"
        'PATH=${PATH#*:} exec dbus-daemon "$@"\n'
    )
    late.chmod(0o755)
    path = f"{tmp_path}:{embedded.environment['PATH']}"
    refused = embedded.cli("ls", check=False, env=elsewhere | {"PATH": path})
    assert refused.returncode == 5
    assert refused.stderr.endswith(f"reach it with XDG_RUNTIME_DIR={embedded.runtime.parent}\n")

    def buses() -> list[str]:
        return [" ".join(words) for words in embedded.machine.command_lines().values()]

    until(lambda: not any(elsewhere["XDG_RUNTIME_DIR"] in command for command in buses()))
    assert embedded.cli("ls").returncode == 0


def test_beside_an_amuxd_that_was_started_by_hand_none_is_started(amux: Amux) -> None:
    amux.stop()
    by_hand = amux.machine.popen([amux.bindir / "amuxd"], env=amux.environment, stderr=subprocess.DEVNULL)
    try:
        name = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", "s")
        until(lambda: amux.bus.call(*name, "org.amux.Amux1"))
        session = amux.create(
            ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], name="deaf"
        )
        until(lambda: "ready" in session.log())
        # It takes longer than amux waits before it looks at the unit.
        amux.cli("stop", "--grace", "2", "deaf")
        assert amux.machine.systemctl("is-active", "amuxd.service", check=False) == "inactive"
    finally:
        by_hand.terminate()
        by_hand.wait(20)
