import asyncio
import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

DEADLINE = 20.0

CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_replies_per_connection">50000</limit>
  <limit name="max_match_rules_per_connection">50000</limit>
  <limit name="max_message_size">1000000000</limit>
</busconfig>
"""


class BusDaemon:
    def __init__(self, directory: Path) -> None:
        configuration = directory / "bus.conf"
        configuration.write_text(CONFIGURATION.format(socket=directory / "bus"))
        self._process = subprocess.Popen(
            ["dbus-daemon", "--nofork", "--print-address", f"--config-file={configuration}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture(scope="session")
def bus_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusDaemon]:
    daemon = BusDaemon(tmp_path_factory.mktemp("bus"))
    yield daemon
    daemon.kill()


@pytest.fixture
def own_bus_daemon(tmp_path: Path) -> Iterator[BusDaemon]:
    """For the tests that stop or kill it."""
    daemon = BusDaemon(tmp_path)
    yield daemon
    daemon.kill()


class Client:
    """jeepney in a thread of its own: another implementation than the daemon's, and it may block.

    Replies go to who waits for them; all else is kept in the order of arrival.
    """

    def __init__(self, address: str, *, enable_fds: bool = False) -> None:
        self._connection: DBusConnection = open_dbus_connection(address, enable_fds=enable_fds)
        self.unique_name: str = self._connection.unique_name
        self.received: queue.Queue[Message] = queue.Queue()
        self._replies: dict[int, queue.Queue[Message]] = {}
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[str | None, tuple[Any, ...]]] = {}
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def _receive(self) -> None:
        while True:
            try:
                message = self._connection.receive()
            except (OSError, EOFError, ValueError):
                return
            if message.header.message_type is MessageType.method_call:
                self._answer(message)
            if message.header.fields.get(HeaderFields.member) in ("NameAcquired", "NameLost"):
                continue
            serial = message.header.fields.get(HeaderFields.reply_serial)
            with self._lock:
                waiting = self._replies.get(serial) if serial is not None else None
            (self.received if waiting is None else waiting).put(message)

    def _answer(self, call: Message) -> None:
        member = call.header.fields[HeaderFields.member]
        if member in self._answers:
            signature, body = self._answers[member]
            self._connection.send(new_method_return(call, signature, body))
        elif member != "Silence":
            self._connection.send(new_error(call, "org.example.Error.Unknown", "s", (f"no {member} here",)))

    def answers(self, member: str, signature: str | None = None, body: tuple[Any, ...] = ()) -> None:
        self._answers[member] = (signature, body)

    def send(self, message: Message) -> int:
        serial = int(next(self._connection.outgoing_serial))
        self._connection.send(message, serial=serial)
        return serial

    def ask(self, message: Message) -> Message:
        replies: queue.Queue[Message] = queue.Queue()
        serial = next(self._connection.outgoing_serial)
        with self._lock:
            self._replies[serial] = replies
        self._connection.send(message, serial=serial)
        return replies.get(timeout=DEADLINE)

    def call(
        self,
        destination: str,
        path: str,
        interface: str | None,
        member: str,
        signature: str | None = None,
        body: tuple[Any, ...] = (),
    ) -> Message:
        address = DBusAddress(path, bus_name=destination, interface=interface)
        return self.ask(new_method_call(address, member, signature, body))

    def signal(
        self, path: str, interface: str, member: str, signature: str | None = None, body: tuple[Any, ...] = ()
    ) -> None:
        self.send(new_signal(DBusAddress(path, interface=interface), member, signature, body))

    def subscribe(self, rule: str) -> None:
        assert is_return(self.ask(message_bus.AddMatch(rule)))

    def request_name(self, name: str) -> int:
        [result] = self.ask(message_bus.RequestName(name)).body
        return int(result)

    def release_name(self, name: str) -> None:
        assert is_return(self.ask(message_bus.ReleaseName(name)))

    def next_signal(self, member: str) -> Message:
        while True:
            message = self.received.get(timeout=DEADLINE)
            if message.header.fields.get(HeaderFields.member) == member:
                return message

    def everything_until_now(self) -> list[Message]:
        """All that arrived before the answer to a question asked now."""
        assert is_return(self.ask(message_bus.GetId()))
        messages = []
        while not self.received.empty():
            messages.append(self.received.get())
        return messages

    def close(self) -> None:
        # Unless the bus was first. Its thread would wait for ever on a descriptor that is another's by then.
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._receiver.join()
        self._connection.close()


@pytest.fixture
def client(bus_daemon: BusDaemon) -> Iterator[Client]:
    client = Client(bus_daemon.address)
    yield client
    client.close()


def is_return(message: Message) -> bool:
    return message.header.message_type is MessageType.method_return


def error_name(message: Message) -> str:
    assert message.header.message_type is MessageType.error, message.body
    return str(message.header.fields[HeaderFields.error_name])


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test in a loop of its own, with a deadline."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(3 * DEADLINE):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run
