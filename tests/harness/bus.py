"""The session bus through jeepney: another implementation than the daemon's, so that no fault cancels out."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, message_bus, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection

PROPERTIES = "org.freedesktop.DBus.Properties"


class CallFailed(Exception):
    """An error reply: its name on the bus and the sentence for a person."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


def _body(reply: Message) -> tuple[Any, ...]:
    if reply.header.message_type is MessageType.error:
        text = reply.body[0] if reply.body else ""
        raise CallFailed(reply.header.fields[HeaderFields.error_name], str(text))
    return tuple(reply.body)


def plain(value: Any) -> Any:
    """A property as jeepney gives it, (signature, value), without the signatures, at any depth."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return plain(value[1])
    return value


class Bus:
    """One connection that blocks; threads take turns."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection: DBusConnection = open_dbus_connection(address, auth_timeout=10)
        self._turn = threading.Lock()

    @property
    def unique_name(self) -> str:
        return str(self._connection.unique_name)

    def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        *body: Any,
        timeout: float = 60,
    ) -> Any:
        """The one result, a tuple of several, or None."""
        address = DBusAddress(path, bus_name=destination, interface=interface)
        message = new_method_call(address, member, signature or None, body)
        with self._turn:
            try:
                reply = self._connection.send_and_get_reply(message, timeout=timeout)
            except TimeoutError as error:
                raise TimeoutError(f"{member} of {path} was not answered within {timeout} s") from error
        results = _body(reply)
        return results[0] if len(results) == 1 else results or None

    def proxy(self, destination: str, path: str, interface: str) -> "Proxy":
        return Proxy(self, destination, path, interface)

    def close(self) -> None:
        self._connection.close()


class Proxy:
    """One interface of one object."""

    def __init__(self, bus: Bus, destination: str, path: str, interface: str) -> None:
        self.bus = bus
        self.destination = destination
        self.path = path
        self.interface = interface

    def call(self, member: str, signature: str = "", *body: Any, timeout: float = 60) -> Any:
        return self.bus.call(
            self.destination, self.path, self.interface, member, signature, *body, timeout=timeout
        )

    def get(self, name: str) -> Any:
        value = self.bus.call(self.destination, self.path, PROPERTIES, "Get", "ss", self.interface, name)
        return plain(value)

    def properties(self) -> dict[str, Any]:
        values = self.bus.call(self.destination, self.path, PROPERTIES, "GetAll", "s", self.interface)
        return {name: plain(value) for name, value in values.items()}


@dataclass(frozen=True)
class Signal:
    path: str
    interface: str
    member: str
    body: tuple[Any, ...]
    # When this process read it, on the monotonic clock.
    received: float = field(compare=False)


class Events:
    """Records each signal of a bus name from the moment that it is made, across restarts of the owner."""

    def __init__(self, address: str, sender: str) -> None:
        self.all: list[Signal] = []
        self._arrived = threading.Condition()
        self._failure: Exception | None = None
        self._connection: DBusConnection = open_dbus_connection(address, auth_timeout=10)
        rule = MatchRule(type="signal", sender=sender)
        self._early: list[Message] = []
        self._subscribe(rule)
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(
        self, predicate: Callable[[Signal], bool], timeout: float = 60, after: Signal | None = None
    ) -> Signal:
        """The first signal that matches, of those that came already too; after: only later ones than that."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            position = 0 if after is None else next(i for i, one in enumerate(self.all) if one is after) + 1
            while True:
                for signal in self.all[position:]:
                    if predicate(signal):
                        return signal
                position = max(position, len(self.all))
                if self._failure is not None:
                    raise ConnectionError("the bus went away") from self._failure
                if not self._arrived.wait(deadline - time.monotonic()):
                    seen = "\n".join(f"  {one.member} {one.path} {one.body}" for one in self.all[-50:])
                    raise TimeoutError(f"no such signal within {timeout} s; there were:\n{seen or '  none'}")

    def named(self, member: str) -> list[Signal]:
        with self._arrived:
            return [signal for signal in self.all if signal.member == member]

    def close(self) -> None:
        if not self._reader.is_alive() and self._connection.sock.fileno() == -1:
            return
        # Unless the bus was first.
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def _subscribe(self, rule: MatchRule) -> None:
        call = message_bus.AddMatch(rule)
        serial = next(self._connection.outgoing_serial)
        self._connection.send(call, serial=serial)
        while True:
            message = self._connection.receive(timeout=10)
            if message.header.fields.get(HeaderFields.reply_serial) == serial:
                _body(message)
                return
            # Sent after the match was made, and before its reply: it counts.
            self._early.append(message)

    def _read(self) -> None:
        try:
            for message in self._early:
                self._record(message)
            while True:
                self._record(self._connection.receive())
        except Exception as failure:
            with self._arrived:
                self._failure = failure
                self._arrived.notify_all()

    def _record(self, message: Message) -> None:
        now = time.monotonic()
        fields = message.header.fields
        # What the bus itself says to each client (NameAcquired) has no match rule.
        if message.header.message_type is not MessageType.signal:
            return
        if fields.get(HeaderFields.sender) == "org.freedesktop.DBus":
            return
        signal = Signal(
            path=fields[HeaderFields.path],
            interface=fields[HeaderFields.interface],
            member=fields[HeaderFields.member],
            body=tuple(message.body),
            received=now,
        )
        with self._arrived:
            self.all.append(signal)
            self._arrived.notify_all()
