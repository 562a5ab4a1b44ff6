"""What amuxd does about a shutdown that logind announces, calls off, or does not let it delay."""

import contextlib
import json
import os
import select
import subprocess
import threading
from collections.abc import Iterator

import pytest
from agent_fixtures import Agents
from harness.daemon import Amux
from harness.machine import Machine
from harness.waiting import until
from jeepney import (
    DBusAddress,
    HeaderFields,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import open_dbus_connection

LOGIN = DBusAddress("/org/freedesktop/login1", interface="org.freedesktop.login1.Manager")


class Logind:
    """As much of it as a delay needs, on a system bus of its own."""

    def __init__(self, machine: Machine, allows: bool) -> None:
        self.address = f"unix:path={machine.runtime}/system-bus"
        self.allows = allows
        self.asked: list[tuple[str, ...]] = []
        self._locks: list[int] = []
        self._bus = machine.popen(
            ["dbus-daemon", "--session", "--nofork", f"--address={self.address}", "--print-address"],
            stdout=subprocess.PIPE,
        )
        assert self._bus.stdout is not None
        self._bus.stdout.readline()
        outside = f"unix:path={machine.outside(machine.runtime / 'system-bus')}"
        self._connection = open_dbus_connection(outside, enable_fds=True)
        self._connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.login1"))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def is_delayed(self) -> bool:
        """A lock is given back by closing it."""
        held = [lock for lock in self._locks if not select.select([lock], [], [], 0)[0]]
        assert len(held) <= 1
        return bool(held)

    def announce(self, going_down: bool) -> None:
        self._connection.send(new_signal(LOGIN, "PrepareForShutdown", "b", (going_down,)))

    def close(self) -> None:
        self._bus.terminate()
        self._bus.wait(10)
        assert self._bus.stdout is not None
        self._bus.stdout.close()
        self._thread.join()
        self._connection.close()
        for lock in self._locks:
            os.close(lock)

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionError, EOFError):
            while True:
                message = self._connection.receive()
                if message.header.message_type is not MessageType.method_call:
                    continue
                assert message.header.fields[HeaderFields.member] == "Inhibit"
                self.asked.append(message.body)
                if not self.allows:
                    name = "org.freedesktop.DBus.Error.AccessDenied"
                    self._connection.send(new_error(message, name, "s", ("not you",)))
                    continue
                ours, theirs = os.pipe()
                self._connection.send(new_method_return(message, "h", (theirs,)))
                os.close(theirs)
                self._locks.append(ours)


@pytest.fixture
def logind(shared_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Logind]:
    logind = Logind(shared_machine, allows=getattr(request, "param", True))
    shared_machine.systemctl("set-environment", f"DBUS_SYSTEM_BUS_ADDRESS={logind.address}")
    try:
        yield logind
    finally:
        shared_machine.systemctl("unset-environment", "DBUS_SYSTEM_BUS_ADDRESS")
        logind.close()


@pytest.fixture
def delaying(logind: Logind, amux: Amux) -> Logind:
    """With an amuxd that was started when logind was there."""
    return logind


def test_it_is_delayed_for_as_long_as_anything_runs(delaying: Logind, amux: Amux) -> None:
    first, second = amux.create(["sleep", "infinity"]), amux.create(["sleep", "infinity"])
    until(delaying.is_delayed)
    first.stop()
    assert delaying.is_delayed()
    second.stop()
    until(lambda: not delaying.is_delayed())
    assert delaying.asked == [("shutdown", "amux", "sessions are marked suspended first", "delay")]
    second.call("Restart")
    until(delaying.is_delayed)
    amux.stop()
    assert not delaying.is_delayed()


def test_all_are_suspended_before_it_goes_on_and_run_if_it_is_called_off(
    delaying: Logind, amux: Amux
) -> None:
    agents = Agents(amux)
    agents.configure()
    parked = agents.create()
    parked.send("apples")
    until(lambda: "heard 1: apples" in parked.log())
    parked.call("Park")
    sessions = [amux.create(["sleep", "infinity"]) for _ in range(3)]
    pids = [session.get("Pid") for session in sessions]
    until(delaying.is_delayed)
    delaying.announce(True)
    until(lambda: not delaying.is_delayed())
    for session in sessions:
        stored = json.loads((amux.state / "sessions" / session.id / "state.json").read_text())
        assert (stored["state"], stored["reason"]) == ("suspended", "the machine was shut down")
        assert session.get("SessionAlive") == "alive"
    assert parked.state == "suspended"
    # What ends in between has ended, and is not suspended.
    amux.machine.kill(pids[0])
    sessions[0].wait_state("failed")
    delaying.announce(False)
    for session in [parked, *sessions[1:]]:
        session.wait_state("running")
    assert parked.get("Parked")
    until(delaying.is_delayed)
    assert [session.get("Pid") for session in sessions[1:]] == pids[1:]
    assert sessions[0].state == "failed"


@pytest.mark.parametrize("logind", [False], indirect=True)
def test_a_refusal_is_told_and_nothing_else_comes_of_it(delaying: Logind, amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"])
    until(lambda: "a shutdown will not wait for amuxd: not you" in json.dumps(amux.journal()))
    assert session.state == "running"
    assert not delaying.is_delayed()
