"""For the scripts here: amuxd where there is no systemd to ask. Run by the Python of an amux.

embedded.py version    what the running amuxd is; it ends with 1 where none runs, as the next two do
embedded.py stop       ends amuxd; the sessions go on
embedded.py stop FILE  the same, if amuxd is older than the file
embedded.py end        ends amuxd and the message bus that was started for it
embedded.py sessions   the sockets of the terminals that are alive
"""

import os
import select
import signal
import socket
import sys
from pathlib import Path

import psutil
from jeepney import DBusAddress

from amuxd import addresses, paths
from amuxd.cli import private_bus
from amuxd.cli.client import PROPERTIES_INTERFACE
from amuxd.cli.connection import BUS, Connection
from amuxd.cli.failures import RemoteError, Unreachable

ANSWERS = 10
# amuxd gives itself less to mark its sessions, and systemd as much.
ENDS = 30


def bus() -> Connection | None:
    """None: there is none of this user's."""
    try:
        return private_bus.connect(ANSWERS, start=False)
    except (Unreachable, OSError):
        return None


def process(bus: Connection, name: str) -> int | None:
    try:
        return int(bus.call(BUS, "GetConnectionUnixProcessID", "s", name, timeout=ANSWERS)[0])
    except RemoteError:
        return None


def end(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not select.select([descriptor], [], [], ENDS)[0]:
            sys.exit(f"process {pid} does not end")
    finally:
        os.close(descriptor)


def version() -> bool:
    if not (connection := bus()) or process(connection, addresses.BUS_NAME) is None:
        return False
    manager = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, PROPERTIES_INTERFACE)
    asked = connection.call(manager, "Get", "ss", addresses.MANAGER_INTERFACE, "Version", timeout=ANSWERS)
    print(asked[0][1])
    return True


def stop(than: str = "") -> bool:
    if not (connection := bus()) or (pid := process(connection, addresses.BUS_NAME)) is None:
        return False
    if than and psutil.Process(pid).create_time() > Path(than).stat().st_mtime:
        return False
    end(pid)
    return True


def end_both() -> bool:
    stop()
    if (connection := bus()) and (pid := process(connection, BUS.bus_name)):
        end(pid)
    return True


def sessions() -> bool:
    for terminal in sorted((paths.runtime_directory() / "tmux").glob("*.sock")):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(terminal)) == 0:
                print(terminal)
    return True


WORDS = {"version": version, "stop": stop, "end": end_both, "sessions": sessions}
if __name__ == "__main__":
    try:
        sys.exit(not WORDS[sys.argv[1]](*sys.argv[2:]))
    except (RemoteError, OSError) as problem:
        sys.exit(f"amuxd does not answer: {problem!r}")
