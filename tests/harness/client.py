"""What a test does with a running amuxd: the CLI, the objects on the bus, their signals."""

import json
import shutil
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.bus import Bus, Events, Proxy, Signal
from harness.machine import REPOSITORY, Machine
from harness.terminal import Terminal

BUS_NAME = "org.amux.Amux1"
MANAGER_PATH = "/org/amux/Amux1"
MANAGER = "org.amux.Amux1.Manager"
SESSION = "org.amux.Amux1.Session"

OPTIONS = {
    "name": "s",
    "description": "s",
    "agent": "s",
    "workspace": "s",
    "cwd": "s",
    "env": "a{ss}",
    "shell": "b",
    "host": "s",
    "image": "s",
    "resume": "s",
    "start": "b",
    "queue": "b",
    "memory_max": "t",
    "memory_high": "t",
    "cpu_quota": "u",
    "cpu_weight": "t",
    "tasks_max": "t",
    "umask": "u",
}


def launchers(machine: Machine) -> Path:
    """Where amux and amuxd are: the entry points of this Python, or the same made from the checkout."""
    if machine.root is None and all((machine.bindir / name).exists() for name in ("amux", "amuxd")):
        return machine.bindir
    directory = machine.base / "bin"
    directory.mkdir(exist_ok=True)
    for name, module in (("amux", "amuxd.cli"), ("amuxd", "amuxd.daemon")):
        launcher = directory / name
        launcher.write_text(
            textwrap.dedent(f"""\
                #!{machine.bindir}/python3
                import sys
                sys.path.insert(0, {str(REPOSITORY)!r})
                from {module} import main
                sys.exit(main())
                """)
        )
        launcher.chmod(0o755)
    return directory


class Session(Proxy):
    def __init__(self, amux: "Client", path: str) -> None:
        super().__init__(amux.bus, BUS_NAME, path, SESSION)
        self.amux = amux
        self.id = path.rpartition("/")[2]

    @property
    def state(self) -> str:
        return str(self.get("State"))

    def wait_state(self, *states: str, timeout: float = 60) -> str:
        """By event: subscribed first, then looked, so that no change falls in between."""
        # To listen takes a connection, and most are there already.
        if (state := self.state) in states:
            return state
        with self.amux.events() as events:
            if (state := self.state) in states:
                return state

            def arrived(event: Signal) -> bool:
                return (
                    event.member == "SessionStateChanged"
                    and event.body[1] == self.id
                    and event.body[4] in states
                )

            try:
                return str(events.wait(arrived, timeout).body[4])
            except TimeoutError as error:
                error.add_note(f"session {self.id} is {self.state}: {self.get('Reason')}")
                raise

    def stop(self, grace: float | None = None, timeout: float = 60) -> None:
        self.call("Stop", "a{sv}", {} if grace is None else {"grace": ("d", grace)}, timeout=timeout)

    def remove(self, force: bool = False, timeout: float = 60) -> None:
        self.call("Remove", "a{sv}", {"force": ("b", force)}, timeout=timeout)

    def send(self, text: str, enter: bool = True) -> None:
        self.call("Send", "sb", text, enter)

    def log(self) -> str:
        return Path(self.get("LogPath")).read_text(errors="replace")

    def delete_files(self) -> None:
        """In one step: amuxd and the logger write anew what is gone, and would do so between two."""
        files = self.amux.state / "sessions" / self.id
        shutil.rmtree(files.rename(self.amux.machine.temporary / f"deleted-{self.id}"))

    def command_has_ended(self) -> bool:
        """Also while amuxd is away: the kernel keeps the end until amuxd has read it."""
        state = self.amux.state / "sessions" / self.id / "state.json"
        command = json.loads(state.read_text())["command"]["pid"]
        look = ["grep", "-q", "^State:.Z", f"/proc/{command}/status"]
        return self.amux.machine.run(look, check=False).returncode == 0

    def certificate(self, run: int = 0) -> dict[str, Any]:
        return {name: value[1] for name, value in self.call("Certificate", "u", run).items()}


class Client:
    """A person's shell in a machine, with amux in its PATH."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state = machine.state_home / "amux"
        self.config = machine.config_home / "amux" / "config.toml"
        self.runtime = machine.runtime / "amux"
        self.bindir = launchers(machine)
        self._recorders: list[Events] = []
        self._bus: Bus | None = None

    @property
    def bus_address(self) -> str:
        return self.machine.bus_address

    @property
    def environment(self) -> dict[str, str]:
        environment = self.machine.environment
        if self.bindir == self.machine.bindir:
            return environment
        # Not installed: what the CLI starts with "python -m amuxd" finds the checkout too.
        return environment | {"PATH": f"{self.bindir}:{environment['PATH']}", "PYTHONPATH": str(REPOSITORY)}

    @property
    def bus(self) -> Bus:
        if self._bus is None:
            self._bus = Bus(self.bus_address)
        return self._bus

    @property
    def manager(self) -> Proxy:
        return self.bus.proxy(BUS_NAME, MANAGER_PATH, MANAGER)

    def cli(
        self,
        *arguments: str,
        check: bool = True,
        input: str | None = None,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return self.machine.run(
            [self.bindir / "amux", *arguments],
            check=check,
            input=input,
            timeout=timeout,
            env=self.environment | dict(env or {}),
            cwd=cwd,
        )

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """The CLI, running: for what follows, waits or draws on a terminal."""
        env = self.environment | dict(options.pop("env", None) or {})
        return self.machine.popen([self.bindir / "amux", *arguments], env=env, **options)

    def terminal(self, *arguments: str, columns: int = 80, lines: int = 24) -> Terminal:
        """The CLI as on a person's terminal."""
        argv = [str(self.bindir / "amux"), *arguments]
        return Terminal(self.machine, argv, columns=columns, lines=lines, env=self.environment)

    def create(self, command: Sequence[str], timeout: float = 60, **options: Any) -> Session:
        variants = {name: (OPTIONS[name], value) for name, value in options.items()}
        path = self.manager.call("CreateSession", "asa{sv}", list(command), variants, timeout=timeout)
        return Session(self, path)

    def session(self, name: str) -> Session:
        return Session(self, self.manager.call("GetSession", "s", name))

    def sessions(self, **filter: tuple[str, Any]) -> dict[str, dict[str, Any]]:
        """The properties of each session, by id; a filter is a variant: states=("as", ["running"])."""
        found = self.manager.call("ListSessions", "a{sv}", filter)
        return {
            path.rpartition("/")[2]: {name: value[1] for name, value in properties.items()}
            for path, properties in found
        }

    def events(self) -> Events:
        events = Events(self.bus_address, BUS_NAME)
        self._recorders.append(events)
        return events

    def close(self) -> None:
        for recorder in self._recorders:
            recorder.close()
        if self._bus is not None:
            self._bus.close()
