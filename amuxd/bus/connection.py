"""The connection to the bus: calls, replies, signals and names."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus

from amuxd.bus.messages import (
    DBUS,
    DBUS_ERROR,
    DBUS_PATH,
    BusError,
    BusLost,
    BusTimeout,
    Call,
    Match,
    NameOwned,
    Signal,
    call_from,
    error_from,
    signal_from,
)
from amuxd.bus.outbox import Outbox
from amuxd.bus.routes import Routes, Subscription
from amuxd.bus.values import to_python, to_wire

__all__ = ["Bus", "BusError", "BusLost", "BusTimeout", "Call", "Match", "NameOwned", "Signal", "Subscription"]

logger = logging.getLogger(__name__)

# The bus disconnects whoever sends it an array of more than this, and so any message that could hold one.
LARGEST_MESSAGE = 64 * 1024 * 1024
CONNECT_TIMEOUT = 25.0
DO_NOT_QUEUE = 4
PRIMARY_OWNER, ALREADY_OWNER = 1, 4


class Bus:
    """A connection to the message bus that survives a slow bus, and says when the bus is gone.

    dbus-fast authenticates, reads and marshals. Its writer is not used: it takes a full socket buffer for the
    end of the connection, and 1.84 writes what had to wait in the reverse order.
    """

    def __init__(self, wire: MessageBus) -> None:
        assert wire.unique_name is not None
        assert wire._sock is not None
        self.unique_name: str = wire.unique_name
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(wire._sock, self._lose)
        self._handler: Callable[[Call], None] | None = None
        self._replies: dict[int, asyncio.Future[list[Any]]] = {}
        self._routes = Routes()
        self._owners: dict[str, str] = {}
        self._following = asyncio.Lock()
        self._lost: asyncio.Future[str] = self._loop.create_future()
        wire.add_message_handler(self._received)
        self._watch = asyncio.ensure_future(self._wait_for_end())

    @classmethod
    async def connect(cls, address: str, descriptors: bool = False) -> "Bus":
        wire: MessageBus | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                wire = MessageBus(bus_address=address, negotiate_unix_fd=descriptors)
                await wire.connect()
        except Exception as error:
            if wire is not None and wire._sock is not None:
                wire.disconnect()
            reason = str(error) or type(error).__name__
            raise BusError(DBUS_ERROR + "NoServer", f"no bus at {address}: {reason}") from error
        return cls(wire)

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: Sequence[object] = (),
        timeout: float = 25.0,  # noqa: ASYNC109
    ) -> list[Any]:
        if self._lost.done():
            raise BusLost(self._lost.result())
        serial = self._wire.next_serial()
        reply: asyncio.Future[list[Any]] = self._loop.create_future()
        self._replies[serial] = reply
        try:
            self._send(
                Message(
                    destination=destination,
                    path=path,
                    interface=interface,
                    member=member,
                    signature=signature,
                    body=to_wire(signature, body),
                    serial=serial,
                )
            )
            async with asyncio.timeout(timeout):
                return await reply
        except TimeoutError:
            raise BusTimeout(f"{destination} did not answer {member} within {timeout:g} s") from None
        finally:
            del self._replies[serial]

    def signal(
        self, path: str, interface: str, member: str, signature: str = "", body: Sequence[object] = ()
    ) -> None:
        self._send(
            Message(
                message_type=MessageType.SIGNAL,
                path=path,
                interface=interface,
                member=member,
                signature=signature,
                body=to_wire(signature, body),
            )
        )

    def set_handler(self, handler: Callable[[Call], None]) -> None:
        self._handler = handler

    def reply(self, call: Call, signature: str = "", body: Sequence[object] = ()) -> None:
        self._answer(call, MessageType.METHOD_RETURN, signature, body)

    def error(self, call: Call, name: str, text: str) -> None:
        self._answer(call, MessageType.ERROR, "s", [text], error_name=name)

    async def request_name(self, name: str) -> None:
        [result] = await self._ask_bus("RequestName", "su", [name, DO_NOT_QUEUE])
        if result not in (PRIMARY_OWNER, ALREADY_OWNER):
            raise NameOwned(name)

    async def has_owner(self, name: str) -> bool:
        """Also where the bus does not say."""
        try:
            [has_owner] = await self._ask_bus("NameHasOwner", "s", [name])
        except BusError:
            return True
        return bool(has_owner)

    async def pid_of(self, name: str) -> int:
        """0 where the bus does not say."""
        try:
            [pid] = await self._ask_bus("GetConnectionUnixProcessID", "s", [name])
        except BusError:
            return 0
        return int(pid)

    async def add_match(self, match: Match, handler: Callable[[Signal], None]) -> Subscription:
        if match.sender is not None and _is_well_known(match.sender):
            await self._follow_owner(match.sender)
        # The first signal can arrive together with the reply: whoever waits for that would be too late.
        subscription = self._routes.add(match, handler)
        try:
            await self._ask_bus("AddMatch", "s", [match.rule()])
        except BaseException:
            self._routes.remove(subscription)
            raise
        return subscription

    def remove_match(self, subscription: Subscription) -> None:
        if subscription.active:
            self._routes.remove(subscription)
            self._send(
                Message(
                    destination=DBUS,
                    path=DBUS_PATH,
                    interface=DBUS,
                    member="RemoveMatch",
                    flags=MessageFlag.NO_REPLY_EXPECTED,
                    signature="s",
                    body=[subscription.match.rule()],
                )
            )

    async def ping(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        await self.call(DBUS, DBUS_PATH, DBUS, "GetId", timeout=timeout)

    async def lost(self) -> str:
        """Returns why, once the connection is gone."""
        return await asyncio.shield(self._lost)

    async def flush(self) -> None:
        await self._outbox.flush()
        if self._lost.done():
            raise BusLost(self._lost.result())

    def close(self) -> None:
        self._lose("amuxd closed the connection")

    async def _ask_bus(self, member: str, signature: str, body: Sequence[object]) -> list[Any]:
        return await self.call(DBUS, DBUS_PATH, DBUS, member, signature, body)

    def _send(self, message: Message) -> None:
        if self._lost.done():
            return
        if not message.serial:
            message.serial = self._wire.next_serial()
        data = message._marshall(False)
        if len(data) > LARGEST_MESSAGE:
            raise ValueError(f"a message of {len(data)} bytes is more than the bus takes")
        self._outbox.put(data)

    def _answer(
        self,
        call: Call,
        kind: MessageType,
        signature: str,
        body: Sequence[object],
        error_name: str | None = None,
    ) -> None:
        if call.answered:
            logger.error("%s from %s was answered twice", call.member, call.sender)
            return
        if call.reply_expected:
            self._send(
                Message(
                    message_type=kind,
                    destination=call.sender,
                    reply_serial=call.serial,
                    error_name=error_name,
                    signature=signature,
                    body=to_wire(signature, body),
                )
            )
        call.answered = True

    def _received(self, message: Message) -> bool:
        # Whatever gets out of here, or is not called handled, dbus-fast answers in its own words.
        try:
            for descriptor in message.unix_fds:
                # As dbus-fast receives them, whatever amuxd begins would hold logind's lock as well.
                os.set_inheritable(descriptor, False)
            if message.message_type is MessageType.METHOD_CALL:
                self._received_call(message)
            elif message.message_type is MessageType.SIGNAL:
                self._received_signal(message)
            else:
                self._received_reply(message)
        except Exception:
            logger.exception("%s from %s could not be handled", message.member, message.sender)
        finally:
            for descriptor in message.unix_fds:
                os.close(descriptor)
        return True

    def _received_call(self, message: Message) -> None:
        call = call_from(message)
        try:
            if self._handler is None:
                self.error(call, DBUS_ERROR + "UnknownObject", f"There is nothing at {call.path}.")
            else:
                self._handler(call)
        except Exception:
            logger.exception("the call of %s by %s failed", call.member, call.sender)
            if not call.answered:
                self.error(call, DBUS_ERROR + "Failed", "The call could not be handled.")

    def _received_reply(self, message: Message) -> None:
        reply = self._replies.get(message.reply_serial or 0)
        if reply is None or reply.done():
            return
        if message.message_type is MessageType.ERROR:
            reply.set_exception(error_from(message))
        elif message.signature == "h":
            # The caller's from here on; every other descriptor that comes is closed.
            reply.set_result([message.unix_fds.pop(message.body[0])])
        else:
            reply.set_result(to_python(message.signature, message.body))

    def _received_signal(self, message: Message) -> None:
        signal = signal_from(message)
        if signal.sender == DBUS and signal.member == "NameOwnerChanged" and signal.body[0] in self._owners:
            self._owners[signal.body[0]] = signal.body[2]
        self._routes.deliver(signal, self._owners)

    async def _follow_owner(self, name: str) -> None:
        async with self._following:
            if name in self._owners:
                return
            # Asked before the rule is installed, so that no signal arrives whose sender is not known yet.
            match = Match(sender=DBUS, interface=DBUS, member="NameOwnerChanged", path=DBUS_PATH, arg0=name)
            self._owners[name] = ""
            try:
                await self._ask_bus("AddMatch", "s", [match.rule()])
                [self._owners[name]] = await self._ask_bus("GetNameOwner", "s", [name])
            except BusError as error:
                if error.name != DBUS_ERROR + "NameHasNoOwner":
                    del self._owners[name]
                    raise
            except BaseException:
                del self._owners[name]
                raise

    async def _wait_for_end(self) -> None:
        try:
            await self._wire.wait_for_disconnect()  # type: ignore[no-untyped-call, unused-ignore]
        except EOFError:
            self._lose("the bus closed the connection")
        except Exception as error:
            self._lose(f"the connection to the bus failed: {error}")
        else:
            self._lose("the connection to the bus was closed")

    def _lose(self, reason: str) -> None:
        if self._lost.done():
            return
        self._lost.set_result(reason)
        self._outbox.close()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(BusLost(reason))
        self._wire.disconnect()


def _is_well_known(name: str) -> bool:
    return not name.startswith(":") and name != DBUS
