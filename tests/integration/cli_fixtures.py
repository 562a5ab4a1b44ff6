"""A stand-in for amuxd on a private bus, and the CLI beside it: on terminals, in pipes, in the background."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

from amuxd import addresses

ROOT = Path(__file__).parents[2]
STANDIN = Path(__file__).with_name("standin.py")
DEADLINE = 20
AMUX = [sys.executable, "-m", "amuxd.cli"]
CONFIG = """<busconfig><type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<servicedir>{services}</servicedir><policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"""


def read_until(descriptor: int, pattern: str) -> str:
    """What is read until the pattern is in it; at the end of the output, all of it."""
    text = b""
    deadline = time.monotonic() + DEADLINE
    while not re.search(pattern, text.decode(errors="replace")):
        assert select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0], text
        try:
            block = os.read(descriptor, 4096)
        except OSError:
            block = b""
        if not block:
            raise AssertionError(f"ended before {pattern!r}: {text!r}")
        text += block
    return text.decode(errors="replace")


class Background:
    """An amux that goes on while the test does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        return read_until(self.process.stdout.fileno(), pattern)

    def ends(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, (out or b"").decode(), err.decode()


class Terminal:
    def __init__(
        self, arguments: list[str], environment: dict[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.main, slave = pty.openpty()
        os.set_blocking(self.main, True)
        subprocess.run(["stty", "cols", str(columns), "rows", str(rows)], stdin=slave, check=True)
        self.process = subprocess.Popen(
            arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def until(self, pattern: str) -> str:
        return read_until(self.main, pattern)

    def type(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def ends(self) -> tuple[int, str]:
        text = b""
        while True:
            assert select.select([self.main], [], [], DEADLINE)[0], text
            try:
                block = os.read(self.main, 4096)
            except OSError:
                break
            if not block:
                break
            text += block
        return self.process.wait(DEADLINE), text.decode()


class Stand:
    """A bus, a stand-in on it, and the CLI beside them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "session-bus"
        self.services = directory / "services"
        self.services.mkdir()
        self.address = f"unix:path={self.socket}"
        unwanted = ("AMUX_", "DBUS_", "XDG_", "PYTHONUNBUFFERED", "NO_COLOR", "COLUMNS", "TMUX")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)} | {
            "DBUS_SESSION_BUS_ADDRESS": self.address,
            # An amuxd of whoever runs the tests is none of theirs.
            "HOME": str(directory / "home"),
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "PYTHONPATH": str(ROOT),
            "STANDIN_FILE": str(directory / "standin.json"),
            "TERM": "xterm-256color",
        }
        (directory / "run").mkdir(mode=0o700)
        (directory / "home").mkdir()
        self.running: list[subprocess.Popen[bytes]] = []
        self.bus = self._start_bus()
        self.standin: subprocess.Popen[bytes] | None = None

    def _start_bus(self) -> subprocess.Popen[bytes]:
        config = self.directory / "bus.conf"
        config.write_text(CONFIG.format(socket=self.socket, services=self.services))
        command = [
            "dbus-daemon",
            "--config-file",
            str(config),
            "--nofork",
            "--nopidfile",
            "--print-address=1",
        ]
        bus = self._started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert bus.stdout is not None
        assert bus.stdout.readline()
        return bus

    def _started(self, command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=self.environment, **settings)
        self.running.append(process)
        return process

    def start(self, **kept: Any) -> None:
        file = Path(self.environment["STANDIN_FILE"])
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | kept))
        self.standin = self._started([sys.executable, str(STANDIN)], stdout=subprocess.PIPE)
        assert self.standin.stdout is not None
        assert self.standin.stdout.readline() == b"ready\n"

    def stop(self, how: int = signal.SIGKILL) -> None:
        assert self.standin is not None
        self.standin.send_signal(how)
        self.standin.wait(DEADLINE)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(DEADLINE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def amux(self, *arguments: str | bytes, text: str = "", **environment: str) -> tuple[int, str, str]:
        finished = subprocess.run(
            [*AMUX, *arguments],
            input=text.encode(),
            capture_output=True,
            env=self.environment | environment,
            timeout=DEADLINE,
            check=False,
        )
        return finished.returncode, finished.stdout.decode(), finished.stderr.decode()

    def begin(self, *arguments: str, stdout: int = subprocess.PIPE) -> Background:
        return Background(self._started([*AMUX, *arguments], stdout=stdout, stderr=subprocess.PIPE))

    def terminal(self, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
        terminal = Terminal([*AMUX, *arguments], self.environment | environment, columns, rows)
        self.running.append(terminal.process)
        return terminal

    def tell(self, member: str, signature: str = "", *body: Any) -> tuple[Any, ...]:
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = self.address
        with open_dbus_connection() as connection:
            address = DBusAddress(addresses.MANAGER_PATH, addresses.BUS_NAME, "org.amux.Standin")
            call = new_method_call(address, member, signature or None, body)
            reply = connection.send_and_get_reply(call, timeout=DEADLINE)
        assert reply.header.message_type is MessageType.method_return, reply.body
        return tuple(reply.body)

    def sent(self) -> list[Any]:
        return list(json.loads(self.tell("Sent")[0]))

    def kill_standin(self) -> None:
        standin, _ = self._processes()
        os.kill(standin, signal.SIGKILL)

    def owner_of_bus(self) -> int:
        return self._processes()[1]

    def _processes(self) -> tuple[int, int]:
        """amuxd's stand-in and the bus itself."""
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = self.address
        address = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        with open_dbus_connection() as connection:
            found = [
                connection.send_and_get_reply(
                    new_method_call(address, "GetConnectionUnixProcessID", "s", (name,)), timeout=DEADLINE
                ).body[0]
                for name in (addresses.BUS_NAME, "org.freedesktop.DBus")
            ]
        return found[0], found[1]

    def waiting(self, *names: str, options: Sequence[str] = ()) -> Background:
        """An amux wait that has asked for the names and then looked: from here on it only listens."""
        before = self.tell("Calls")[0].count("GetAll")
        background = self.begin("wait", *options, *names)
        wait_for(lambda: self.tell("Calls")[0].count("GetAll") >= before + 2 * len(names))
        return background


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unset")
    stand = Stand(tmp_path)
    try:
        yield stand
    finally:
        stand.close()


@pytest.fixture
def stand(bus: Stand) -> Stand:
    bus.start()
    return bus


@pytest.fixture
def build(stand: Stand) -> Stand:
    """With a session build, s001, that runs."""
    assert stand.amux("run", "-n", "build", "-d", "what for", "make", "-j4")[0] == 0
    return stand


def wait_for(condition: Callable[[], bool]) -> None:
    """For what only looking tells: the bus's own books, a terminal's mode."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()
