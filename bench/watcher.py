"""The floor of looking after sessions: what each prints, that it ends, that the bus lives. A unit of its own.

Its arguments are the bus's address and, for each session, its process and its log. As amuxd it sleeps while
they are quiet, hears what is printed once a second, asks the bus for a sign of life; and nothing comes of it.
"""

import ctypes
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

BEAT, PING = 1.0, 15.0
IN_MODIFY, IN_ONESHOT = 0x2, 0x80000000
EVENT = struct.Struct("iIII")
BUS = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")


class Logs:
    def __init__(self, paths: list[str]) -> None:
        self._libc = ctypes.CDLL(None)
        self.inotify: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths = [Path(path) for path in paths]
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        self._sizes = [path.stat().st_size for path in self._paths]
        self._armed = {self._arm(number): number for number in range(len(paths))}
        self.busy: set[int] = set()

    def _arm(self, number: int) -> int:
        path = os.fsencode(self._paths[number])
        watch: int = self._libc.inotify_add_watch(self.inotify, path, IN_MODIFY | IN_ONESHOT)
        return watch

    def wake(self) -> None:
        events = os.read(self.inotify, 1 << 16)
        for watch, *_ in EVENT.iter_unpack(events):
            if (number := self._armed.pop(watch, None)) is not None:
                self.busy.add(number)

    def look(self) -> None:
        for number in list(self.busy):
            size = self._paths[number].stat().st_size
            if size == self._sizes[number]:
                self.busy.discard(number)
                self._armed[self._arm(number)] = number
                continue
            printed = os.pread(self._files[number], size - self._sizes[number], self._sizes[number])
            self._sizes[number] = size
            # A bell would call for a person.
            printed.count(b"\a")


def main(address: str, words: list[str]) -> None:
    connection = open_dbus_connection(address)
    logs = Logs(words[1::2])
    poll = select.poll()
    poll.register(logs.inotify, select.POLLIN)
    for pid in words[::2]:
        poll.register(os.pidfd_open(int(pid)), select.POLLIN)
    _tell("READY=1")
    ping, beat = time.monotonic() + PING, 0.0
    while True:
        due = min(ping, beat) if logs.busy else ping
        for descriptor, _ in poll.poll(max(0.0, due - time.monotonic()) * 1000):
            if descriptor == logs.inotify:
                logs.wake()
            else:
                poll.unregister(descriptor)
        now = time.monotonic()
        if logs.busy and now >= beat:
            logs.look()
            beat = now + BEAT
        if now >= ping:
            connection.send_and_get_reply(new_method_call(BUS, "GetId"))
            _tell("WATCHDOG=1")
            ping = now + PING


def _tell(word: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.sendto(word.encode(), os.environ["NOTIFY_SOCKET"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
