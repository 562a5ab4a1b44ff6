"""A connection to a message bus: calls with a time limit, and the signals that come in between."""

import os
import re
import select
import socket
from collections import deque
from struct import unpack_from
from time import monotonic, time
from typing import Any, NamedTuple

from jeepney import DBusAddress, Header, HeaderFields, MessageFlag, new_method_call
from jeepney.low_level import parse_signature

from amuxd.cli import decode
from amuxd.cli.failures import RemoteError

BUS = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
_RETURN, _ERROR, _SIGNAL = 2, 3, 4
# What poll takes, some 24 days: whoever waits longer looks again.
_LONGEST_POLL = 2**31 - 1


class Signal(NamedTuple):
    path: str
    interface: str
    member: str
    body: tuple[Any, ...]


class Refused(ConnectionError):
    """Something listens there, but not for us."""


class Connection:
    def __init__(self, socket_path: str, timeout: float) -> None:
        deadline = monotonic() + timeout
        self.began = time()
        self._socket = socket.socket(socket.AF_UNIX)
        self._buffer = bytearray()
        self._serial = 0
        self._awaited: set[int] = set()
        self._replies: dict[int, tuple[Any, ...] | RemoteError] = {}
        self._signals: deque[Signal] = deque()
        # Whoever waits for more to print there waits in vain once nobody reads it any more.
        self.output: int | None = None
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(socket_path)
            self._authenticate(deadline)
            self.call(BUS, "Hello", timeout=deadline - monotonic())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(
        self, address: DBusAddress, member: str, signature: str = "", *body: Any, timeout: float
    ) -> tuple[Any, ...]:
        return self.reply(self.send(address, member, signature, *body), timeout)

    def send(
        self, address: DBusAddress, member: str, signature: str = "", *body: Any, activate: bool = True
    ) -> int:
        """The call's serial, to ask for its reply with."""
        message = new_method_call(address, member, signature or None, body)
        if not activate:
            message.header.flags |= MessageFlag.no_auto_start
        self._serial += 1
        self._awaited.add(self._serial)
        try:
            self._socket.sendall(message.serialise(serial=self._serial))
        except BrokenPipeError:
            # That name is for an output that nobody reads any more.
            raise ConnectionResetError from None
        return self._serial

    def has_reply(self, serial: int, timeout: float) -> bool:
        """Whether it came in time; later it may still."""
        deadline = monotonic() + timeout
        while serial not in self._replies:
            if not self._receive(deadline):
                return False
        return True

    def reply(self, serial: int, timeout: float) -> tuple[Any, ...]:
        try:
            if not self.has_reply(serial, timeout):
                raise TimeoutError
        finally:
            self._awaited.discard(serial)
        answer = self._replies.pop(serial)
        if isinstance(answer, RemoteError):
            raise answer
        return answer

    def next_signal(self, timeout: float | None) -> Signal | None:
        deadline = None if timeout is None else monotonic() + timeout
        while not self._signals:
            if not self._receive(deadline):
                return None
        return self._signals.popleft()

    def signals_at_hand(self) -> list[Signal]:
        """Those that came before the last reply."""
        signals = list(self._signals)
        self._signals.clear()
        return signals

    def _authenticate(self, deadline: float) -> None:
        self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        while b"\r\n" not in self._buffer:
            if not self._read_some(deadline):
                raise TimeoutError
        if not self._buffer.startswith(b"OK "):
            raise Refused("the message bus refused us")
        self._buffer.clear()
        self._socket.sendall(b"BEGIN\r\n")

    def _receive(self, deadline: float | None) -> bool:
        """Takes in one message; False when there was none in time."""
        while not (raw := self._whole_message()):
            if not self._read_some(deadline):
                return False
        kind = raw[1]
        if kind == _SIGNAL:
            header, body = _parsed(raw)
            fields = header.fields
            interface, member = fields[HeaderFields.interface], fields[HeaderFields.member]
            # What the bus tells each connection of that one's own names is no news of amuxd.
            if interface != BUS.interface or member not in ("NameAcquired", "NameLost"):
                self._signals.append(Signal(fields[HeaderFields.path], interface, member, body))
        elif kind in (_RETURN, _ERROR):
            header, body = _parsed(raw)
            serial = header.fields[HeaderFields.reply_serial]
            if serial in self._awaited:
                self._replies[serial] = body if kind == _RETURN else _remote_error(header, body)
        return True

    def _whole_message(self) -> bytes | None:
        if len(self._buffer) < 16:
            return None
        order = "<" if self._buffer[0] == ord("l") else ">"
        body_length, _, fields_length = unpack_from(order + "III", self._buffer, 4)
        size = (16 + fields_length + 7 & -8) + body_length
        if len(self._buffer) < size:
            return None
        raw = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return raw

    def _read_some(self, deadline: float | None) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if self.output is not None:
            # No event is asked for: that it is closed is told all the same.
            poll.register(self.output, 0)
        ready = poll.poll(None if deadline is None else _milliseconds_until(deadline))
        if any(descriptor == self.output for descriptor, _ in ready):
            raise BrokenPipeError
        if not ready:
            return False
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError
        self._buffer += data
        return True


def _milliseconds_until(deadline: float) -> float:
    return min(max(0.0, deadline - monotonic()) * 1000, _LONGEST_POLL)


def _parsed(raw: bytes) -> tuple[Header, tuple[Any, ...]]:
    header, at = Header.from_buffer(raw)
    at = at + 7 & -8
    signature = header.fields.get(HeaderFields.signature, "")
    if signature == decode.OBJECTS:
        return header, (decode.objects(raw, at, header.endianness),)
    return header, parse_signature(list(f"({signature})")).parse_data(raw, at, header.endianness)[0]


def _remote_error(header: Header, body: tuple[Any, ...]) -> RemoteError:
    message = body[0] if body and isinstance(body[0], str) else ""
    error = RemoteError(header.fields[HeaderFields.error_name], message)
    error.sender = header.fields.get(HeaderFields.sender, "")
    return error


def socket_paths(address: str) -> list[str]:
    """Where to connect to for a D-Bus address; a leading NUL stands for the abstract namespace."""
    found = []
    for part in address.split(";"):
        transport, _, rest = part.partition(":")
        options = dict(option.partition("=")[::2] for option in rest.split(","))
        if transport != "unix":
            continue
        if "path" in options:
            found.append(_unescaped(options["path"]))
        elif "abstract" in options:
            found.append("\0" + _unescaped(options["abstract"]))
        elif options.get("runtime") == "yes" and (runtime := os.environ.get("XDG_RUNTIME_DIR")):
            found.append(runtime + "/bus")
    return found


def _unescaped(value: str) -> str:
    octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), os.fsencode(value))
    return os.fsdecode(octets)
