"""amuxd in a machine: installed as for a user, and taken away without a trace."""

import contextlib
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from harness.client import Client
from harness.machine import REPOSITORY, Machine
from harness.waiting import until

UNITS = ("systemd/amuxd.service", "systemd/amuxd.socket", "systemd/amux.slice")
ACTIVATION = "packaging/org.amux.Amux1.service.in"


# A notification server that this system may have is not to be started by each session that fails.
NOTIFIER = "org.freedesktop.Notifications.service"
NO_NOTIFIER = "[D-BUS Service]\nName=org.freedesktop.Notifications\nExec=/bin/false\n"


class LeftBehind(Exception):
    """A session's processes outlived it, or a test's settings would hold for the next one's amuxd."""


class Amux(Client):
    """amuxd as a user service."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._since = f"{time.time():.6f}"
        self.install()
        # The bus is activated by its first client, which must not count as something that a session left.
        self.bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId")
        self._before = {process.pid for process in machine.processes()}

    def install(self) -> None:
        """Where neither $HOME nor /usr is touched; what is there already and the same stays."""
        runtime = self.machine.outside(self.machine.runtime)
        units = {runtime / "systemd/user" / Path(unit).name: _text(unit) for unit in UNITS}
        services = runtime / "dbus-1/services"
        activated = {services / "org.amux.Amux1.service": _text(ACTIVATION), services / NOTIFIER: NO_NOTIFIER}
        changed = False
        for target, template in (units | activated).items():
            text = template.replace("@BINDIR@", str(self.bindir))
            if not target.exists() or target.read_text() != text:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
                changed = True
        if changed:
            self.machine.systemctl("daemon-reload")
            self.bus.call(
                "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ReloadConfig"
            )

    @property
    def pid(self) -> int:
        """The daemon's process, as numbered in the machine; 0: it does not run."""
        return int(self.machine.systemctl("show", "--property=MainPID", "--value", "amuxd.service"))

    def start(self) -> None:
        self.machine.systemctl("start", "amuxd.service")

    def stop(self) -> None:
        self.machine.systemctl("stop", "amuxd.service")

    def restart(self) -> None:
        self.machine.systemctl("restart", "amuxd.service")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signals the daemon alone and waits for its end; what its unit does about it comes after."""
        self.machine.kill(self.pid, number)

    def journal(self, **matches: str) -> list[dict[str, Any]]:
        """What amuxd logged since this fixture was made; journal(AMUX_SESSION=id) narrows it."""
        return self.machine.journal(f"--since=@{self._since}", "--user-unit=amuxd.service", **matches)

    def close(self) -> None:
        """Ends and removes everything of amux; LeftBehind names what should not have been there any more."""
        super().close()
        systemctl = self.machine.systemctl
        systemctl("stop", "amuxd.socket", "amuxd.service", check=False)
        systemctl("kill", "--signal=SIGKILL", "amux-*.service", check=False)
        systemctl("stop", "amux-*.service", "amux.slice", check=False)
        systemctl("reset-failed", check=False)
        remains = [*self._leftovers(), *self._settings()]
        for directory in (self.state, self.config.parent, self.machine.outside(self.runtime)):
            shutil.rmtree(directory, ignore_errors=True)
        if remains:
            raise LeftBehind("left behind: " + "; ".join(remains))

    def _leftovers(self) -> list[str]:
        with contextlib.suppress(TimeoutError):
            until(lambda: not self._strangers(), timeout=10)
        remains = []
        for process in self._strangers():
            try:
                cgroup = Path(f"/proc/{process.pid}/cgroup").read_text().strip().rpartition(":")[2]
                remains.append(f"{process.cmdline()} in {cgroup}")
                process.kill()
            except (OSError, psutil.NoSuchProcess):
                continue
        return remains

    def _settings(self) -> list[str]:
        left = sorted(self.machine.outside(self.machine.runtime).glob("systemd/user/amux*.d/*"))
        for path in left:
            path.unlink()
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        if left:
            self.machine.systemctl("daemon-reload")
        return [f"{path.parent.name}/{path.name}" for path in left]

    def _strangers(self) -> list[psutil.Process]:
        return [process for process in self.machine.processes() if process.pid not in self._before]


def _text(file: str) -> str:
    return (REPOSITORY / file).read_text()


class Embedded(Client):
    """amux where there is neither systemd nor a session bus: the CLI starts what it needs."""

    @property
    def bus_address(self) -> str:
        return f"unix:path={self.machine.outside(self.runtime / 'bus')}"
