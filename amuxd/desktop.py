"""The desktop's notification server, which may be absent, old, slow, restarted or noisy."""

import asyncio
import logging
import time
from collections.abc import Callable
from html import escape
from typing import Any

from amuxd.board import Note
from amuxd.bus.connection import Bus, BusError, BusTimeout, Match, Signal
from amuxd.bus.messages import DBUS, DBUS_PATH
from amuxd.bus.values import Typed

logger = logging.getLogger(__name__)

NAME = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
DEADLINE = 5.0
# After it did not answer it is left alone for so many seconds.
REST = 60.0


class Desktop:
    def __init__(
        self,
        bus: Bus,
        invoked: Callable[[int, str], None],
        closed: Callable[[int], None],
        forgotten: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._invoked = invoked
        self._closed = closed
        self._forgotten = forgotten
        self._capabilities: frozenset[str] | None = None
        self._rests_until = 0.0
        # Whose numbers those of the notifications are: the next server begins to count anew.
        self.owner = ""

    async def begin(self) -> None:
        """Never fails: without a server there is nothing to tell, and one may come."""
        owner = Match(sender=DBUS, interface=DBUS, member="NameOwnerChanged", path=DBUS_PATH, arg0=NAME)
        try:
            await self._bus.add_match(owner, self._owner_changed)
            for member, told in (("ActionInvoked", self._on_action), ("NotificationClosed", self._on_close)):
                match = Match(sender=NAME, path=PATH, interface=NAME, member=member)
                await self._bus.add_match(match, told)
            [self.owner] = await self._bus.call(DBUS, DBUS_PATH, DBUS, "GetNameOwner", "s", [NAME])
        except BusError as error:
            logger.debug("no notification server: %s", error.message)

    async def show(self, note: Note, replaces: int) -> int:
        """Its number, 0 where it could not be shown."""
        try:
            able = await self._able()
            body = escape(note.body, quote=False) if "body-markup" in able else note.body
            actions = [word for action in note.actions for word in action] if "actions" in able else []
            hints = {"urgency": Typed("y", note.urgency)}
            [number] = await self._call(
                *("Notify", "susssasa{sv}i", "amux", replaces, "utilities-terminal"),
                *(note.title, body, actions, hints, -1),
            )
        except BusError as error:
            self._failed(error)
            return 0
        return int(number)

    async def close(self, number: int) -> None:
        try:
            await self._call("CloseNotification", "u", number)
        except BusError as error:
            self._failed(error)

    async def _able(self) -> frozenset[str]:
        if self._capabilities is None:
            [found] = await self._call("GetCapabilities", "")
            self._capabilities = frozenset(found)
        return self._capabilities

    async def _call(self, member: str, signature: str, *body: object) -> list[Any]:
        if time.monotonic() < self._rests_until:
            raise BusError("org.amux.Resting", "the notification server did not answer a moment ago")
        return await self._bus.call(NAME, PATH, NAME, member, signature, body, timeout=DEADLINE)

    def _failed(self, error: BusError) -> None:
        if isinstance(error, BusTimeout):
            logger.warning("the notification server does not answer; it is left alone for %.0f s", REST)
            self._rests_until = time.monotonic() + REST
        else:
            logger.debug("no notification: %s", error.message)

    def _owner_changed(self, signal: Signal) -> None:
        self.owner = signal.body[2]
        self._capabilities = None
        self._rests_until = 0.0
        if signal.body[1]:
            self._forgotten()

    # Both in their turn: whoever waits for the reply that came just before has its number by then.

    def _on_action(self, signal: Signal) -> None:
        if signal.signature == "us":
            asyncio.get_running_loop().call_soon(self._invoked, *signal.body)

    def _on_close(self, signal: Signal) -> None:
        if signal.signature == "uu":
            asyncio.get_running_loop().call_soon(self._closed, signal.body[0])
