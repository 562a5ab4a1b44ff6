"""The CLI where amuxd or the bus hangs, goes away, is another version or is not there at all."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fixtures import (
    DEADLINE,
    ROOT,
    STANDIN,
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)
from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

from amuxd import __version__, addresses


def test_amuxd_that_hangs(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"silent": ["ListSessions"]}')
    before = time.monotonic()
    code, _, err = stand.amux("ls")
    assert time.monotonic() - before > 9
    assert (code, err.splitlines()[0]) == (5, "amux: amuxd does not answer (waited 10 s)")
    assert "journalctl --user -u amuxd" in err


def test_amuxd_that_goes_away_in_a_call(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"silent": ["ListSessions"]}')
    listing = stand.begin("ls")
    wait_for(lambda: "ListSessions" in stand.tell("Calls")[0])
    stand.stop()
    code, _, err = listing.ends()
    assert code == 5
    assert err.startswith("amux: amuxd went away before it answered\n")


@pytest.mark.parametrize(
    ("which", "said"),
    [("amuxd", "amuxd went away before it answered"), ("bus", "the message bus closed the connection")],
)
def test_run_says_that_it_may_be_there_where_nobody_answers_any_more(
    stand: Stand, which: str, said: str
) -> None:
    stand.tell("Behave", "s", '{"silent": ["CreateSession"]}')
    running = stand.begin("run", "-n", "named", "make")
    wait_for(lambda: "CreateSession" in stand.tell("Calls")[0])
    stand.stop() if which == "amuxd" else stand.bus.kill()
    assert running.ends() == (5, "", f"amux: {said}; named may have been started\n      amux ls\n")


def test_run_says_nothing_of_that_where_it_was_not_asked_for(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"silent": ["Ping"]}')
    running = stand.begin("run", "make")
    wait_for(lambda: "Ping" in stand.tell("Calls")[0])
    stand.bus.kill()
    assert running.ends() == (5, "", "amux: the message bus closed the connection\n")


def test_amuxd_of_another_version(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"unknown": ["ListSessions"], "version": "0.0.9"}')
    code, _, err = stand.amux("ls")
    assert code == 5
    assert (
        err.splitlines()[0] == f"amux: amuxd is 0.0.9, amux {__version__}: they do not understand each other"
    )
    assert "systemctl --user restart amuxd" in err
    stand.tell("Behave", "s", json.dumps({"version": __version__}))
    assert stand.amux("ls")[0] == 1


def test_amuxd_that_does_not_start(bus: Stand) -> None:
    service = f"[D-BUS Service]\nName={addresses.BUS_NAME}\nExec=/bin/false\n"
    (bus.services / "amux.service").write_text(service)
    reload(bus)
    code, _, err = bus.amux("ls")
    assert code == 5
    assert err.startswith("amux: amuxd does not start: ")
    assert err.endswith("journalctl --user -u amuxd\n")


def test_amuxd_is_started_by_the_first_call(bus: Stand) -> None:
    service = f"[D-BUS Service]\nName={addresses.BUS_NAME}\nExec={sys.executable} {STANDIN}\n"
    (bus.services / "amux.service").write_text(service)
    reload(bus)
    assert bus.amux("ls", "--json") == (0, "[]\n", "")
    bus.kill_standin()


def reload(bus: Stand) -> None:
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    with open_dbus_connection() as connection:
        address = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        connection.send_and_get_reply(new_method_call(address, "ReloadConfig"), timeout=DEADLINE)


@pytest.mark.parametrize("command", [["watch"], ["wait", "build"], ["ls", "--watch"]])
def test_a_bus_that_dies(build: Stand, command: list[str]) -> None:
    before = build.tell("Calls")[0].count("ListSessions")
    waiting = build.waiting("build") if command[0] == "wait" else build.begin(*command)
    wait_for(lambda: command[0] == "wait" or build.tell("Calls")[0].count("ListSessions") > before)
    build.bus.kill()
    code, _, err = waiting.ends()
    assert (code, err) == (5, "amux: the message bus closed the connection\n")


def test_an_address_that_was_asked_for_is_the_only_one(bus: Stand) -> None:
    address = f"unix:path={bus.directory}/nothing"
    code, _, err = bus.amux("ls", AMUX_BUS_ADDRESS=address)
    assert (code, err) == (5, f"amux: no message bus at {address}: No such file or directory\n")
    assert bus.amux("ls", AMUX_BUS_ADDRESS=bus.address)[0] == 5
    assert not (bus.directory / "run" / "amux").exists()


@pytest.fixture
def bare(bus: Stand) -> Iterator[Stand]:
    """No session bus, and a program that stands in for `python -m amuxd` on the private one."""
    package = bus.directory / "path" / "amuxd"
    package.mkdir(parents=True)
    for module in (ROOT / "amuxd").iterdir():
        if module.name != "__main__.py":
            (package / module.name).symlink_to(module)
    (package / "__main__.py").write_text(
        f"import runpy\nrunpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
    )
    bus.environment["PYTHONPATH"] = str(package.parent)
    bus.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={bus.directory}/nothing"
    yield bus
    bus.address = f"unix:path={bus.directory}/run/amux/bus"
    if Path(bus.address.removeprefix("unix:path=")).exists():
        bus.kill_standin()
        os.kill(bus.owner_of_bus(), signal.SIGTERM)


def test_without_a_session_bus_one_is_started_once(bare: Stand) -> None:
    first = [bare.begin("run", "-q", "-n", str(at), "make") for at in range(4)]
    ended = [process.ends() for process in first]
    assert [code for code, _, _ in ended] == [0] * 4, ended
    assert bare.amux("ls")[1].count("running") == 4
    assert (bare.directory / "run" / "amux").stat().st_mode & 0o777 == 0o700


def test_a_private_bus_that_died_is_replaced(bare: Stand) -> None:
    assert bare.amux("run", "-q", "make")[0] == 0
    bare.address = f"unix:path={bare.directory}/run/amux/bus"
    bus = bare.owner_of_bus()
    descriptor = os.pidfd_open(bus)
    os.kill(bus, signal.SIGKILL)
    select.select([descriptor], [], [], DEADLINE)
    os.close(descriptor)
    assert bare.amux("run", "-q", "-n", "second", "make")[0] == 0


def test_a_session_bus_without_amuxd_is_as_good_as_none(bare: Stand) -> None:
    bare.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={bare.socket}"
    assert bare.amux("run", "-q", "--wait", "exit", "4") == (4, "s001\n", "")


def test_another_version_on_a_private_bus(bare: Stand) -> None:
    assert bare.amux("run", "-q", "make")[0] == 0
    bare.address = f"unix:path={bare.directory}/run/amux/bus"
    bare.tell("Behave", "s", '{"unknown": ["ListSessions"], "version": "0.0.9"}')
    code, _, err = bare.amux("ls")
    assert code == 5
    told, hint = err.splitlines()
    assert told.startswith("amux: amuxd is 0.0.9, ")
    # There is no systemctl to do it; what it says has the next amux start the new one.
    file = Path(bare.environment["STANDIN_FILE"])
    known = json.loads(file.read_text())
    subprocess.run(["sh", "-c", hint.partition("(")[0]], check=True)
    file.write_text(json.dumps(known | {"unknown": [], "version": __version__}))
    wait_for(lambda: bare.amux("ls")[1].count("running") == 1)


def test_amuxd_that_goes_away_in_a_call_on_a_private_bus(bare: Stand) -> None:
    assert bare.amux("run", "-q", "make")[0] == 0
    bare.address = f"unix:path={bare.directory}/run/amux/bus"
    bare.tell("Behave", "s", '{"silent": ["Stop"]}')
    stopping = bare.begin("stop", "s001")
    wait_for(lambda: "Stop" in bare.tell("Calls")[0])
    bare.kill_standin()
    code, _, err = stopping.ends()
    said, hint = err.splitlines()
    assert (code, said) == (5, "amux: amuxd went away before it answered")
    # None is started by hand for that.
    assert hint == f"      tail {bare.directory}/home/.local/state/amux/amuxd.log"
    assert bare.amux("ls")[1].count("running") == 1


def test_without_dbus_daemon(bare: Stand) -> None:
    code, _, err = bare.amux("ls", PATH="/nowhere")
    assert code == 5
    assert err.startswith("amux: there is no session bus, and dbus-daemon to start one is not installed\n")
    assert "apt install dbus" in err
