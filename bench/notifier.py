"""The floor of telling of an end: pidfds, and a signal that is ready to be sent. A process of its own.

Its arguments are the bus's address and the processes; it prints a line when it watches them all.
"""

import os
import select
import sys

from jeepney import DBusAddress, new_signal
from jeepney.io.blocking import open_dbus_connection

MEMBER = "BenchExited"


def main(address: str, pids: list[str]) -> None:
    connection = open_dbus_connection(address)
    source = DBusAddress("/bench", interface="org.amux.Bench")
    poll = select.poll()
    messages = {}
    for pid in pids:
        pidfd = os.pidfd_open(int(pid))
        poll.register(pidfd, select.POLLIN)
        serial = next(connection.outgoing_serial)
        messages[pidfd] = new_signal(source, MEMBER, "s", (pid,)).serialise(serial=serial)
    print("watching", flush=True)
    while messages:
        for pidfd, _ in poll.poll():
            connection.sock.sendall(messages.pop(pidfd))
            poll.unregister(pidfd)
            os.close(pidfd)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
