"""An object of every kind of method, property and signal, served on a bus."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bus_fixtures import BusDaemon, Client, error_name, is_return
from jeepney import HeaderFields, Message

from amuxd.bus.connection import Bus
from amuxd.bus.interface import Interface, parse
from amuxd.bus.server import Server, Typed
from amuxd.errors import InvalidTransition

MANAGER = "/org/amux/Amux1"
ITEM = MANAGER + "/sessions/a1"
TEST = "org.amux.Test1"
PROPERTIES = "org.freedesktop.DBus.Properties"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
PEER = "org.freedesktop.DBus.Peer"
ERROR = "org.freedesktop.DBus.Error."

[TEST_INTERFACE] = parse("""
<node>
  <interface name="org.amux.Test1">
    <method name="Describe">
      <arg name="options" type="a{sv}" direction="in"/>
      <arg name="pairs" type="a(sv)" direction="in"/>
      <arg name="description" type="s" direction="out"/>
    </method>
    <method name="Divide">
      <arg name="dividend" type="i" direction="in"/>
      <arg name="divisor" type="i" direction="in"/>
      <arg name="quotient" type="i" direction="out"/>
      <arg name="remainder" type="i" direction="out"/>
    </method>
    <method name="Nothing"/>
    <method name="Refuse"/>
    <method name="Crash"/>
    <method name="Misspell"><arg name="path" type="o" direction="out"/></method>
    <method name="Options"><arg name="options" type="a{sv}" direction="out"/></method>
    <method name="Wait"/>
    <method name="WaitForEver"/>
    <method name="Rename"><arg name="name" type="s" direction="in"/></method>
    <method name="Create"><arg name="path" type="o" direction="out"/></method>
    <property name="Name" type="s" access="readwrite"/>
    <property name="Number" type="u" access="read">
      <annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="invalidates"/>
    </property>
    <property name="Fixed" type="s" access="read">
      <annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="const"/>
    </property>
    <property name="Quiet" type="t" access="read">
      <annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/>
    </property>
    <property name="Broken" type="s" access="read"/>
    <property name="TooLarge" type="u" access="read"/>
    <property name="Locked" type="s" access="readwrite"/>
    <signal name="Happened"><arg name="what" type="s"/><arg name="count" type="u"/></signal>
  </interface>
</node>
""")


class Item:
    interface: Interface = TEST_INTERFACE

    def __init__(self, server: Server, path: str = ITEM) -> None:
        self.server = server
        self.path = path
        self.values: dict[str, object] = {
            "Name": "one",
            "Number": 1,
            "Fixed": "f",
            "Quiet": 5,
            "TooLarge": 1 << 40,
            "Locked": "l",
        }
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()

    def get_property(self, name: str) -> object:
        return self.values[name]

    async def set_name(self, name: str) -> None:
        self.values["Name"] = name

    async def describe(self, options: dict[str, Any], pairs: list[Any]) -> str:
        return json.dumps([options, [[pair[0], pair[1]] for pair in pairs]])

    async def divide(self, dividend: int, divisor: int) -> tuple[int, int]:
        return divmod(dividend, divisor)

    async def nothing(self) -> None:
        pass

    async def refuse(self) -> None:
        raise InvalidTransition("It is stopped; only a restart is possible.")

    async def crash(self) -> None:
        raise RuntimeError("secret at line 1")

    async def misspell(self) -> str:
        return "/not-a/path"

    async def options(self) -> dict[str, Typed]:
        return {
            "n": Typed("u", 1),
            "list": Typed("as", ["ü"]),
            "nested": Typed("a{sv}", {"d": Typed("d", 1)}),
        }

    async def wait(self) -> None:
        self.waiting.set()
        await self.go_on.wait()

    async def wait_for_ever(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def rename(self, name: str) -> None:
        self.values["Name"] = name
        self.server.changed(self.path, TEST, {"Name"})

    async def create(self) -> str:
        path = MANAGER + "/sessions/new"
        self.server.export(path, Item(self.server, path))
        return path


class Service:
    def __init__(self, bus: Bus, client: Client) -> None:
        self.bus = bus
        self.client = client
        self.server = Server(bus)
        self.item = Item(self.server)
        self.server.export(MANAGER, Item(self.server, MANAGER))
        self.server.export(ITEM, self.item)

    async def call(
        self, member: str, signature: str = "", *body: Any, path: str = ITEM, interface: str | None = TEST
    ) -> Message:
        return await asyncio.to_thread(
            self.client.call, self.bus.unique_name, path, interface, member, signature or None, body
        )

    async def result(self, member: str, signature: str = "", *body: Any, **where: Any) -> tuple[Any, ...]:
        reply = await self.call(member, signature, *body, **where)
        assert is_return(reply), reply.body
        return tuple(reply.body)

    async def error(self, member: str, signature: str = "", *body: Any, **where: Any) -> str:
        return error_name(await self.call(member, signature, *body, **where))

    def subscribe(self) -> None:
        self.client.subscribe(f"type='signal',sender='{self.bus.unique_name}'")

    async def all_received(self) -> list[Message]:
        await self.bus.ping()
        return await asyncio.to_thread(self.client.everything_until_now)


@asynccontextmanager
async def serving(bus_daemon: BusDaemon, client: Client) -> AsyncIterator[Service]:
    bus = await Bus.connect(bus_daemon.address)
    try:
        yield Service(bus, client)
    finally:
        bus.close()


def member(message: Message) -> str:
    return str(message.header.fields[HeaderFields.member])


def path_of(message: Message) -> str:
    return str(message.header.fields[HeaderFields.path])
