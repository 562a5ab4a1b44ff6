"""A stand-in for logind, on a system bus of its own."""

import contextlib
import os
import select
import subprocess
import threading

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

from harness.machine import Machine

LOGIN = DBusAddress("/org/freedesktop/login1", interface="org.freedesktop.login1.Manager")


def address_in(machine: Machine) -> str:
    """Of that bus, for programs in the machine."""
    return f"unix:path={machine.runtime}/system-bus"


class Logind:
    """As much of it as a delay needs."""

    def __init__(self, machine: Machine, allows: bool = True) -> None:
        self.allows = allows
        self.asked: list[tuple[str, ...]] = []
        self._locks: list[int] = []
        self._bus = machine.popen(
            ["dbus-daemon", "--session", "--nofork", f"--address={address_in(machine)}", "--print-address"],
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
