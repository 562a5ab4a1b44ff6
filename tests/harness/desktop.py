"""A desktop in a machine: an X server with dunst; and a notification server that is as odd as is wished."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import open_dbus_connection

from harness.client import Client
from harness.waiting import until

NAME = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
DUNST = """
[global]
    font = Monospace 10
    dmenu = {dmenu}
    script = {script}
    width = 500
    notification_limit = 20
    dmenu_timeout = 5
"""


class Dunst:
    """What it was asked to show is in `told`, one title a line."""

    def __init__(self, amux: Client) -> None:
        self._machine = amux.machine
        self._directory = amux.machine.temporary / "dunst"
        self._directory.mkdir(exist_ok=True)
        self._told = self._directory / "told"
        self._told.write_text("")
        self._choice = self._directory / "choice"
        told = self._script("told.sh", f'echo "$DUNST_SUMMARY|$DUNST_BODY" >>{self._told}')
        # The menu of actions, and a person who picks one by its name.
        dmenu = self._script("dmenu.sh", f'grep -F "$(cat {self._choice})"')
        config = self._directory / "dunstrc"
        config.write_text(DUNST.format(dmenu=dmenu, script=told))
        argv = ["Xvfb", "-displayfd", "1", "-screen", "0", "900x600x24", "-nolisten", "tcp"]
        self._x = self._machine.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._x.stdout is not None
        self.display = f":{self._x.stdout.readline().strip()}"
        self._config = config
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._dunst, self._x):
            process.kill()
            process.wait(10)
        assert self._x.stdout is not None
        self._x.stdout.close()

    @property
    def told(self) -> list[str]:
        return self._told.read_text().splitlines()

    def start(self) -> None:
        self._dunst = self._machine.popen(
            ["dunst", "-conf", str(self._config)], env={"DISPLAY": self.display}, stderr=subprocess.DEVNULL
        )
        until(lambda: self._ctl("count", check=False).returncode == 0)

    def stop(self) -> None:
        self._dunst.terminate()
        self._dunst.wait(10)

    def displayed(self) -> int:
        return int(self._ctl("count", "displayed").stdout)

    def press(self, action: str) -> None:
        self._choice.write_text(action)
        self._ctl("context")

    def screenshot(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._machine.run(["import", "-window", "root", str(file)], env={"DISPLAY": self.display})

    def _ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._machine.run(["dunstctl", *arguments], check=check)

    def _script(self, name: str, text: str) -> Path:
        path = self._directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path


@dataclass(frozen=True)
class Shown:
    number: int
    replaces: int
    title: str
    body: str
    actions: list[str]
    urgency: int
    # When this process read it, as time.perf_counter() says.
    received: float = field(compare=False)


class Server:
    """A notification server that does what a real one does not do on demand."""

    def __init__(
        self, amux: Client, capabilities: tuple[str, ...] = ("actions", "body"), hangs: bool = False
    ) -> None:
        self.shown: list[Shown] = []
        self.withdrawn: list[int] = []
        self.asked = 0
        self._capabilities = list(capabilities)
        self._hangs = hangs
        self._changed = threading.Condition()
        self._connection = open_dbus_connection(amux.bus_address, auth_timeout=10)
        reply = self._connection.send_and_get_reply(message_bus.RequestName(NAME, 4))
        assert reply.body == (1,)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._connection.sock.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._connection.close()

    def wait(self, predicate: Callable[[Self], Any], timeout: float = 60) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: predicate(self), timeout):
                raise TimeoutError(
                    f"shown {self.shown}, withdrawn {self.withdrawn}, asked {self.asked} times"
                )
            return predicate(self)

    def standing(self) -> dict[int, Shown]:
        return {one.number: one for one in self.shown if one.number not in self.withdrawn}

    def tell(self, member: str, signature: str, *body: object) -> None:
        emitter = DBusAddress(PATH, interface=NAME)
        self._connection.send(new_signal(emitter, member, signature, body))

    def _serve(self) -> None:
        try:
            while True:
                message = self._connection.receive()
                if message.header.message_type is MessageType.method_call:
                    self._answer(message)
        except (OSError, EOFError, ConnectionError):
            return

    def _answer(self, message: Message) -> None:
        received = time.perf_counter()
        member = message.header.fields[HeaderFields.member]
        with self._changed:
            self.asked += 1
            self._changed.notify_all()
            if self._hangs:
                return
            if member == "GetCapabilities":
                self._connection.send(new_method_return(message, "as", (self._capabilities,)))
            elif member == "Notify":
                _, replaces, _, title, body, actions, hints, _ = message.body
                number = replaces or len(self.shown) + 100
                urgency = hints["urgency"][1]
                self.shown.append(Shown(number, replaces, title, body, actions, urgency, received))
                self._connection.send(new_method_return(message, "u", (number,)))
            elif member == "CloseNotification":
                self.withdrawn.append(message.body[0])
                self._connection.send(new_method_return(message))
                self.tell("NotificationClosed", "uu", message.body[0], 3)
            else:
                self._connection.send(new_error(message, "org.freedesktop.DBus.Error.UnknownMethod"))
            self._changed.notify_all()


BUILD = Path(os.environ.get("AMUX_BUILD_DIRECTORY") or Path(__file__).resolve().parents[2] / "build")
