"""An amuxd that is killed at a point of what it does.

A point is a write, a call on the bus or of tmux.
"""

import fcntl
import json
import signal
import subprocess
from pathlib import Path

from harness import logind
from harness.client import BUS_NAME, Client
from harness.machine import REPOSITORY, Machine
from harness.waiting import until

PROGRAM = Path(__file__).with_name("amuxd_that_dies.py")
DBUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
SYSTEMD = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")

# Says which run it is each time that it begins, and ends with the code that it is told.
COMMAND = 'echo begun >>"$0"; exec 3<"$1"; echo ready; read -r code <&3; echo "bye $code"; exit "$code"'

# An agent that begins and continues in the same way, so that it can be parked and resumed.
CONFIGURATION = f"""
[sessions]
stop_grace = "5s"
[agents.marked]
start = {json.dumps(["sh", "-c", COMMAND])}
resume = {json.dumps(["sh", "-c", COMMAND])}
[agents.staying]
start = {json.dumps(["sh", "-c", COMMAND])}
resume = {json.dumps(["sh", "-c", COMMAND])}
on_exit = "stay"
"""


class Killable(Client):
    """amuxd without systemd's care: it starts when the test says so, and stays dead when it dies."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIGURATION)
        self.armed = machine.temporary / "armed"
        self.reached = machine.temporary / "reached"
        self.exit_code: int | None = None
        self._nursery = machine.popen(
            [machine.bindir / "python3", PROGRAM, self.armed, self.reached],
            env={"PYTHONPATH": str(REPOSITORY), "DBUS_SYSTEM_BUS_ADDRESS": logind.address_in(machine)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self) -> None:
        self.exit_code = None
        self._order("start")

    def start(self) -> None:
        self.begin()
        assert self.comes_up()

    def comes_up(self) -> bool:
        """True once it serves, False once it has died instead."""
        until(lambda: self.serves or self.has_ended, timeout=60)
        return not self.has_ended

    @property
    def serves(self) -> bool:
        return bool(self.bus.call(*DBUS, "NameHasOwner", "s", BUS_NAME))

    @property
    def has_ended(self) -> bool:
        if self.exit_code is None and (answer := self._order("poll", answered=True)) != "alive":
            self.exit_code = int(answer)
        return self.exit_code is not None

    def end(self, number: int) -> None:
        self._order(f"signal {int(number)}")
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """The bus may hear of it after its parent did, and must not take callers of the next one to it."""
        until(lambda: self.has_ended and not self.serves, timeout=60)

    def arm(self, point: int | str) -> None:
        self.reached.write_text("")
        scratch = self.armed.with_suffix(".new")
        scratch.write_text(str(point))
        scratch.rename(self.armed)

    def disarm(self) -> list[str]:
        self.armed.unlink()
        with self.reached.open() as reached:
            fcntl.flock(reached, fcntl.LOCK_EX)
            return reached.read().splitlines()

    def units(self) -> set[str]:
        found = self.bus.call(*SYSTEMD, "ListUnitsByPatterns", "asas", [], ["amux-*.service"])
        return {unit[0] for unit in (found or []) if unit[3] not in ("inactive", "failed")}

    def close(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        if not self.has_ended:
            self.end(signal.SIGKILL)
        self._nursery.stdin.close()
        self._nursery.stdout.close()
        self._nursery.wait(10)
        super().close()

    def _order(self, words: str, answered: bool = False) -> str:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(words + "\n")
        self._nursery.stdin.flush()
        return str(self._nursery.stdout.readline()).strip() if answered else ""
