"""Somebody who waits for signals, with as little as possible between the socket and the clock."""

import socket
import time
from typing import NamedTuple

from jeepney import HeaderFields, MatchRule, MessageType, message_bus
from jeepney.io.blocking import open_dbus_connection
from jeepney.low_level import Parser


class Told(NamedTuple):
    moment: float
    member: str
    key: str


class Subscriber:
    """Of the two signals that say that something ended; the key says what."""

    def __init__(self, address: str, members: dict[str, int]) -> None:
        """With each member, which of its arguments is the key."""
        self._members = members
        self._connection = open_dbus_connection(address, auth_timeout=10)
        for member in members:
            call = message_bus.AddMatch(MatchRule(type="signal", member=member))
            self._connection.send_and_get_reply(call, timeout=10)
        self._socket: socket.socket = self._connection.sock
        self._parser = Parser()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._connection.close()

    def read(self) -> list[Told]:
        self._parser.add_data(self._socket.recv(1 << 16))
        moment = time.perf_counter()
        told = []
        while message := self._parser.get_next_message():
            member = message.header.fields.get(HeaderFields.member)
            if message.header.message_type is MessageType.signal and member in self._members:
                told.append(Told(moment, member, str(message.body[self._members[member]])))
        return told
