"""Calls, signals and errors, as everybody but the connection knows them."""

from dataclasses import dataclass
from typing import Any

from dbus_fast import Message, MessageFlag

from amuxd.bus.values import to_python

DBUS = "org.freedesktop.DBus"
DBUS_PATH = "/org/freedesktop/DBus"
DBUS_ERROR = "org.freedesktop.DBus.Error."
NO_REPLY_EXPECTED = MessageFlag.NO_REPLY_EXPECTED.value


class BusError(Exception):
    """An error reply, or the reason why there is none."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.message = message


class BusTimeout(BusError):
    def __init__(self, message: str) -> None:
        super().__init__(DBUS_ERROR + "NoReply", message)


class BusLost(BusError):
    def __init__(self, message: str) -> None:
        super().__init__(DBUS_ERROR + "Disconnected", message)


class NameOwned(BusError):
    def __init__(self, name: str) -> None:
        super().__init__(DBUS_ERROR + "AddressInUse", f"another program owns {name}")


@dataclass(slots=True, eq=False)
class Call:
    """A method call to answer; the body is as it came, with its variants still wrapped."""

    serial: int
    sender: str
    path: str
    interface: str
    member: str
    signature: str
    body: list[Any]
    reply_expected: bool
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    sender: str
    path: str
    interface: str
    member: str
    signature: str
    body: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    sender: str | None = None
    interface: str | None = None
    member: str | None = None
    path: str | None = None
    path_namespace: str | None = None
    arg0: str | None = None

    def rule(self) -> str:
        parts = ["type='signal'"]
        for key in ("sender", "interface", "member", "path", "path_namespace", "arg0"):
            if (value := getattr(self, key)) is not None:
                # Nothing can be escaped inside quotes: an apostrophe stands outside of them.
                parts.append(f"{key}='" + value.replace("'", r"'\''") + "'")
        return ",".join(parts)

    def accepts(self, signal: Signal, sender: str | None) -> bool:
        """Whether the signal fits, given the unique name that the match's sender stands for."""
        return (
            (self.sender is None or signal.sender == sender)
            and self.interface in (None, signal.interface)
            and self.member in (None, signal.member)
            and self.path in (None, signal.path)
            and self._in_namespace(signal.path)
            and (self.arg0 is None or signal.body[:1] == [self.arg0])
        )

    def _in_namespace(self, path: str) -> bool:
        namespace = self.path_namespace
        return namespace in (None, "/", path) or path.startswith(f"{namespace}/")


def call_from(message: Message) -> Call:
    return Call(
        serial=message.serial,
        sender=message.sender or "",
        path=message.path or "",
        interface=message.interface or "",
        member=message.member or "",
        signature=message.signature,
        body=message.body,
        reply_expected=not message.flags.value & NO_REPLY_EXPECTED,
    )


def signal_from(message: Message) -> Signal:
    return Signal(
        sender=message.sender or "",
        path=message.path or "",
        interface=message.interface or "",
        member=message.member or "",
        signature=message.signature,
        body=to_python(message.signature, message.body),
    )


def error_from(message: Message) -> BusError:
    text = message.body[0] if message.body and isinstance(message.body[0], str) else ""
    return BusError(str(message.error_name), text)
