"""The server of the bus: calls, properties, signals, and what is wrong with them."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
import json
import time
from typing import Any

import pytest
from bus_fixtures import BusDaemon, Client, bus_daemon, client, error_name, in_loop, is_return  # noqa: F401
from jeepney import DBusAddress, HeaderFields, MessageFlag, new_method_call
from server_fixtures import (
    ERROR,
    INTROSPECTABLE,
    ITEM,
    MANAGER,
    OBJECT_MANAGER,
    PEER,
    PROPERTIES,
    TEST,
    Item,
    member,
    path_of,
    serving,
)

from amuxd.bus.interface import load, parse
from amuxd.bus.server import Server

INTERNAL = "org.amux.Amux1.Error.Internal"
BUSY = "org.amux.Amux1.Error.Busy"


@in_loop
async def test_arguments_and_results_are_plain_values(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        options = {"memory_max": ("t", 5), "env": ("a{ss}", {"A": "ü"}), "deep": ("v", ("as", ["x"]))}
        [text] = await service.result("Describe", "a{sv}a(sv)", options, [("a", ("b", True))])
        assert json.loads(text) == [{"memory_max": 5, "env": {"A": "ü"}, "deep": ["x"]}, [["a", True]]]
        assert await service.result("Divide", "ii", 17, 5) == (3, 2)
        assert await service.result("Nothing") == ()
        [result] = await service.result("Options")
        assert result == {"n": ("u", 1), "list": ("as", ["ü"]), "nested": ("a{sv}", {"d": ("d", 1.0)})}


@pytest.mark.parametrize(
    ("path", "interface", "name", "signature", "body", "error"),
    [
        ("/org/amux/Amux1/made/up", TEST, "Nothing", "", (), "UnknownObject"),
        ("/org/amux/Amux1/made/up", INTROSPECTABLE, "Introspect", "", (), "UnknownObject"),
        ("/org/amux/Amux1/made/up", PROPERTIES, "GetAll", "s", ("",), "UnknownObject"),
        ("/org/amux/Amux1/made/up", OBJECT_MANAGER, "GetManagedObjects", "", (), "UnknownObject"),
        (ITEM, "org.amux.Other", "Nothing", "", (), "UnknownInterface"),
        (ITEM, OBJECT_MANAGER, "GetManagedObjects", "", (), "UnknownInterface"),
        (MANAGER + "/sessions", TEST, "Nothing", "", (), "UnknownInterface"),
        (ITEM, TEST, "Other", "", (), "UnknownMethod"),
        (ITEM, None, "Other", "", (), "UnknownMethod"),
        (ITEM, TEST, "Divide", "is", (1, "x"), "InvalidArgs"),
        (ITEM, TEST, "Divide", "", (), "InvalidArgs"),
        (ITEM, PROPERTIES, "Get", "s", (TEST,), "InvalidArgs"),
        (ITEM, PROPERTIES, "Get", "ss", (TEST, "Other"), "UnknownProperty"),
        (ITEM, PROPERTIES, "Get", "ss", ("org.amux.Other", "Name"), "UnknownInterface"),
        (ITEM, PROPERTIES, "GetAll", "s", ("org.amux.Other",), "UnknownInterface"),
        (ITEM, PROPERTIES, "Set", "ssv", (TEST, "Fixed", ("s", "x")), "PropertyReadOnly"),
        (ITEM, PROPERTIES, "Set", "ssv", (TEST, "Locked", ("s", "x")), "PropertyReadOnly"),
        (ITEM, PROPERTIES, "Set", "ssv", (TEST, "Name", ("u", 5)), "InvalidArgs"),
        (ITEM, PROPERTIES, "Set", "ssv", (TEST, "Other", ("u", 5)), "UnknownProperty"),
    ],
)
@in_loop
async def test_what_is_wrong_is_refused_by_its_standard_name(
    bus_daemon: BusDaemon,
    client: Client,
    path: str,
    interface: str | None,
    name: str,
    signature: str,
    body: tuple[Any, ...],
    error: str,
) -> None:
    async with serving(bus_daemon, client) as service:
        assert await service.error(name, signature, *body, path=path, interface=interface) == ERROR + error


@in_loop
async def test_a_failure_has_our_name_and_no_traceback(
    bus_daemon: BusDaemon, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(bus_daemon, client) as service:
        refused = await service.call("Refuse")
        assert error_name(refused) == "org.amux.Amux1.Error.InvalidTransition"
        assert refused.body == ("It is stopped; only a restart is possible.",)
        assert "Refuse" not in caplog.text
        for name in ("Crash", "Misspell"):
            broken = await service.call(name)
            assert error_name(broken) == INTERNAL
            assert broken.body == (f"amuxd could not answer {name}; its log says why.",)
        assert "secret at line 1" in caplog.text


@in_loop
async def test_a_call_may_leave_out_the_interface(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        assert await service.result("Divide", "ii", 7, 2, interface=None) == (3, 1)
        assert await service.result("Ping", interface=None) == ()
        [value] = await service.result("Get", "ss", "", "Name", interface=None)
        assert value == ("s", "one")


@in_loop
async def test_properties_are_read_and_set(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        [value] = await service.result("Get", "ss", TEST, "Quiet", interface=PROPERTIES)
        assert value == ("t", 5)
        service.subscribe()
        await service.result("Set", "ssv", TEST, "Name", ("s", "two"), interface=PROPERTIES)
        [change] = await service.all_received()
        assert change.body == (TEST, {"Name": ("s", "two")}, [])
        assert await service.result("GetAll", "s", PEER, interface=PROPERTIES) == ({},)


@in_loop
async def test_a_property_that_cannot_be_read_hides_no_other(
    bus_daemon: BusDaemon, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    good = {
        "Name": ("s", "one"),
        "Number": ("u", 1),
        "Fixed": ("s", "f"),
        "Quiet": ("t", 5),
        "Locked": ("s", "l"),
    }
    async with serving(bus_daemon, client) as service:
        [values] = await service.result("GetAll", "s", TEST, interface=PROPERTIES)
        assert values == good
        [objects] = await service.result("GetManagedObjects", path=MANAGER, interface=OBJECT_MANAGER)
        assert objects == {ITEM: {TEST: good}}
        assert await service.error("Get", "ss", TEST, "Broken", interface=PROPERTIES) == INTERNAL
        assert await service.error("Get", "ss", TEST, "TooLarge", interface=PROPERTIES) == INTERNAL
        assert "org.amux.Test1.Broken cannot be read" in caplog.text


@in_loop
async def test_changes_are_told_once_a_turn_as_each_property_wants(
    bus_daemon: BusDaemon, client: Client
) -> None:
    async with serving(bus_daemon, client) as service:
        service.subscribe()
        for name in ("two", "three"):
            service.item.values["Name"] = name
            service.server.changed(ITEM, TEST, {"Name", "Fixed", "Quiet"})
        service.server.changed(ITEM, TEST, ["Number", "Broken"])
        service.server.changed(ITEM, TEST, ["Quiet"])
        service.server.changed(MANAGER + "/sessions/gone", TEST, ["Name"])
        [change] = await service.all_received()
        assert (member(change), path_of(change)) == ("PropertiesChanged", ITEM)
        assert change.body == (TEST, {"Name": ("s", "three")}, ["Number", "Broken"])
        service.server.changed(ITEM, TEST, ["Quiet", "Fixed"])
        assert await service.all_received() == []


@in_loop
async def test_a_change_is_told_before_the_reply(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        service.subscribe()
        address = DBusAddress(ITEM, bus_name=service.bus.unique_name, interface=TEST)
        serial = client.send(new_method_call(address, "Rename", "s", ("new",)))
        change = await asyncio.to_thread(client.received.get, True, 20)
        reply = await asyncio.to_thread(client.received.get, True, 20)
        assert change.body == (TEST, {"Name": ("s", "new")}, [])
        assert reply.header.fields[HeaderFields.reply_serial] == serial


@in_loop
async def test_objects_come_and_go_from_the_managers_path(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        service.subscribe()
        address = DBusAddress(ITEM, bus_name=service.bus.unique_name, interface=TEST)
        serial = client.send(new_method_call(address, "Create"))
        added = await asyncio.to_thread(client.received.get, True, 20)
        reply = await asyncio.to_thread(client.received.get, True, 20)
        [path] = reply.body
        assert reply.header.fields[HeaderFields.reply_serial] == serial
        assert (member(added), path_of(added)) == ("InterfacesAdded", MANAGER)
        assert added.body[0] == path
        assert added.body[1][TEST]["Name"] == ("s", "one")
        service.server.changed(path, TEST, ["Name"])
        service.server.unexport(path)
        changed, removed = await service.all_received()
        assert member(changed) == "PropertiesChanged"
        assert (member(removed), path_of(removed)) == ("InterfacesRemoved", MANAGER)
        assert removed.body == (path, [TEST])
        assert await service.error("Nothing", path=path) == ERROR + "UnknownObject"
        service.server.export("/elsewhere", Item(service.server))
        service.server.export(path, Item(service.server), announce=False)
        assert await service.all_received() == []


@in_loop
async def test_signals_have_the_types_of_the_xml(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        service.subscribe()
        service.server.emit(MANAGER, TEST, "Happened", "it", 3)
        [signal] = await service.all_received()
        assert (member(signal), signal.body) == ("Happened", ("it", 3))
        assert signal.header.fields[HeaderFields.signature] == "su"


@in_loop
async def test_running_handlers_may_end(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        call = asyncio.create_task(service.call("Wait"))
        await service.item.waiting.wait()
        drained = asyncio.create_task(service.server.drain(20))
        late = await service.call("Nothing")
        assert (error_name(late), late.body) == (BUSY, ("amuxd is stopping",))
        assert not drained.done()
        service.item.go_on.set()
        await drained
        assert is_return(await call)


@pytest.mark.parametrize("handler", ["Wait", "WaitForEver"])
@in_loop
async def test_a_cancelled_handler_answers_once(bus_daemon: BusDaemon, client: Client, handler: str) -> None:
    async with serving(bus_daemon, client) as service:
        call = asyncio.create_task(service.call(handler))
        await service.item.waiting.wait()
        await service.server.drain(0.01)
        reply = await call
        unfinished = "amuxd is stopping, and what was asked for may be done yet"
        assert (error_name(reply), reply.body) == (INTERNAL, (unfinished,))
        assert await service.all_received() == []


@in_loop
async def test_a_handler_cancelled_before_it_began_answers(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        loop = asyncio.get_running_loop()

        def cancelled_at_birth(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
            task = asyncio.Task(coroutine, loop=loop, **options)
            if coroutine.__qualname__ == "Item.wait":
                task.cancel()
            return task

        loop.set_task_factory(cancelled_at_birth)
        reply = await service.call("Wait")
        loop.set_task_factory(None)
        assert not service.item.waiting.is_set()
        assert error_name(reply) == INTERNAL


@in_loop
async def test_who_wants_no_reply_gets_none(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        for name in ("Nothing", "Crash", "Refuse", "Unknown"):
            address = DBusAddress(ITEM, bus_name=service.bus.unique_name, interface=TEST)
            message = new_method_call(address, name)
            message.header.flags = MessageFlag.no_reply_expected
            client.send(message)
        await service.result("Nothing")
        assert await service.all_received() == []


class Session:
    interface = load("org.amux.Amux1.Session")
    samples = {"s": "some text of a session", "as": ["command", "argument"], "o": "/", "b": True}  # noqa: RUF012

    def get_property(self, name: str) -> object:
        return self.samples.get(self.interface.properties[name].type, 7)


class Lister:
    [interface] = parse(
        '<node><interface name="org.amux.Lister1"><method name="List">'
        '<arg name="sessions" type="a(oa{sv})" direction="out"/></method></interface></node>'
    )

    def __init__(self, server: Server, paths: list[str]) -> None:
        self.server = server
        self.paths = paths

    def get_property(self, name: str) -> object:
        raise KeyError(name)

    async def list(self) -> list[tuple[str, object]]:
        return [(path, self.server.property_map(path, Session.interface.name)) for path in self.paths]


@in_loop
async def test_a_thousand_sessions_are_listed_quickly(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        paths = [f"{MANAGER}/sessions/s{number}" for number in range(1000)]
        for path in paths:
            service.server.export(path, Session())
        service.server.export("/lister", Lister(service.server, paths))
        # Of the processor, which others want as well; what the client takes of it counts, too.
        started = time.process_time()
        [sessions] = await service.result("List", path="/lister", interface=Lister.interface.name)
        assert time.process_time() - started < 2
        [objects] = await service.result("GetManagedObjects", path=MANAGER, interface=OBJECT_MANAGER)
        assert [path for path, _ in sessions] == paths
        assert len(sessions[0][1]) == len(Session.interface.properties)
        assert sessions[0][1]["LastActivityUSec"] == ("t", 7)
        assert len(objects) == 1001
