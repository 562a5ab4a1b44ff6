"""What the server says of itself on the bus, and that the tools of others get along with it."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bus_fixtures import BusDaemon, Client, bus_daemon, client, in_loop  # noqa: F401
from server_fixtures import (
    INTROSPECTABLE,
    ITEM,
    MANAGER,
    OBJECT_MANAGER,
    PEER,
    PROPERTIES,
    TEST,
    Item,
    serving,
)

from amuxd.bus.interface import load

MACHINE_ID = Path("/etc/machine-id").read_text().strip() if Path("/etc/machine-id").exists() else ""
LOG_CONTROL = "/org/freedesktop/LogControl1"


class LogControl:
    interface = load("org.freedesktop.LogControl1")

    def __init__(self) -> None:
        self.level = "info"

    def get_property(self, name: str) -> object:
        return {"LogLevel": self.level, "LogTarget": "journal", "SyslogIdentifier": "amuxd"}[name]

    async def set_log_level(self, level: str) -> None:
        self.level = level


@in_loop
async def test_peer_answers_everywhere(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        assert await service.result("Ping", path="/any/where", interface=PEER) == ()
        if MACHINE_ID:
            assert await service.result("GetMachineId", interface=PEER) == (MACHINE_ID,)


@in_loop
async def test_every_level_can_be_introspected(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        service.server.export(LOG_CONTROL, LogControl(), Item(service.server))

        async def node(path: str) -> tuple[list[str | None], list[str | None]]:
            [xml] = await service.result("Introspect", path=path, interface=INTROSPECTABLE)
            root = ElementTree.fromstring(xml)
            return [i.get("name") for i in root.findall("interface")], [
                c.get("name") for c in root.findall("node")
            ]

        common = [INTROSPECTABLE, PEER, PROPERTIES]
        assert await node("/") == (common, ["org"])
        assert await node("/org") == (common, ["amux", "freedesktop"])
        assert await node(MANAGER) == ([TEST, *common, OBJECT_MANAGER], ["sessions"])
        assert await node(MANAGER + "/sessions") == (common, ["a1"])
        assert await node(ITEM) == ([TEST, *common], [])
        service.server.unexport(ITEM)
        assert await node(MANAGER) == ([TEST, *common, OBJECT_MANAGER], [])
        assert (await node(LOG_CONTROL))[0] == [
            "org.freedesktop.LogControl1",
            TEST,
            *common,
        ]


@pytest.mark.skipif(shutil.which("busctl") is None, reason="busctl is not installed")
@in_loop
async def test_busctl_gets_along(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        log = LogControl()
        service.server.export(LOG_CONTROL, log)
        name = service.bus.unique_name

        async def busctl(*arguments: str) -> str:
            command = ["busctl", f"--address={bus_daemon.address}", *arguments]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return str(done.stdout)

        tree = await busctl("tree", "--list", name)
        assert {"/", "/org", MANAGER, ITEM, LOG_CONTROL} <= set(tree.split())
        for path in ("/", "/org/amux", MANAGER, MANAGER + "/sessions", LOG_CONTROL):
            assert "org.freedesktop.DBus.Introspectable" in await busctl("introspect", name, path)
        assert ".Divide" in await busctl("introspect", name, ITEM)
        control = (name, LOG_CONTROL, "org.freedesktop.LogControl1")
        await busctl("set-property", *control, "LogLevel", "s", "debug")
        assert log.level == "debug"
        assert await busctl("get-property", *control, "LogLevel") == 's "debug"\n'


@pytest.mark.skipif(shutil.which("gdbus") is None, reason="gdbus is not installed")
@in_loop
async def test_gdbus_gets_along(bus_daemon: BusDaemon, client: Client) -> None:
    async with serving(bus_daemon, client) as service:
        where = ["--address", bus_daemon.address, "--dest", service.bus.unique_name, "--object-path", "/"]
        command = ["gdbus", "introspect", *where, "--recurse"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=True, timeout=60
        )
        assert "Divide(in  i dividend," in done.stdout
        assert "readwrite s Name = 'one';" in done.stdout
