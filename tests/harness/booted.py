"""A booted Debian 13 with logind, a user and what that user installed: it can reboot, and lose its power."""

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

import psutil

from harness import debian13
from harness.machine import REPOSITORY, SYSTEM_PATH, CommandFailed, MachineError
from harness.waiting import until

SCRIPT = Path(__file__).with_name("booted.sh")
USER = "alice"
UID = 1000
HOME = Path("/home") / USER
RUNTIME = Path(f"/run/user/{UID}")
NEEDED = "mount -t tmpfs tmpfs /run; mkdir /run/cgroup; mount -t cgroup2 cgroup2 /run/cgroup"
BOOT_TIMEOUT = 60.0
HALT_TIMEOUT = 60.0
INSTALL_TIMEOUT = 300.0


def why_impossible() -> str:
    """What a machine that boots needs and this system lets nobody do; empty where it can be tried."""
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
        "sh",
        "-ec",
        NEEDED,
    ]
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else ""


class Booted:
    """Everything in it ends with close(), or with this process, however it ends."""

    def __init__(self, programs: Sequence[Path] = ()) -> None:
        """With these programs of this system in its PATH, beside its own."""
        if shutil.which("systemd-nspawn") is None:
            raise MachineError("a booted machine needs a package that is missing: systemd-container")
        root = debian13.tree()
        # It becomes the machine's name as well, which must not have every letter that mkdtemp uses.
        self.base = Path(tempfile.gettempdir()) / f"amux-booted-{secrets.token_hex(6)}"
        self.base.mkdir(mode=0o700)
        self._console: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._furnish(self.base / "upper")
        binds = [f"--bind-ro={path}" for path in _local_package_indexes()]
        binds += [f"--bind-ro={path.resolve()}:/usr/local/bin/{path.name}" for path in programs]
        self._outer = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--", "sh", str(SCRIPT), "outer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._console,
            text=True,
            start_new_session=True,
            env=os.environ
            | {
                "BOOTED_NAME": self.base.name,
                "BOOTED_ROOT": str(root),
                "BOOTED_DISK": str(self.base),
                "BOOTED_BINDS": " ".join(binds),
            },
        )
        self._leader: psutil.Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def boot(self) -> None:
        """Returns when the system, and with lingering its user's manager, is up."""
        self._order("boot")
        self._leader = until(self._find_leader, timeout=BOOT_TIMEOUT)
        until(self._is_up, timeout=BOOT_TIMEOUT)

    def power_off(self) -> None:
        """In order, as by the button."""
        self.run(["systemctl", "poweroff"], check=False)
        self._halted()

    def lose_power(self) -> None:
        assert self._leader is not None
        self._leader.send_signal(signal.SIGKILL)
        self._halted()

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60,
        user: bool = False,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As root, or as the user with no more than a shell of theirs would have."""
        assert self._leader is not None
        command = ["nsenter", f"--target={self._leader.pid}", "--all", f"--wdns={cwd or '/'}", "--"]
        environment = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"} | dict(env or {})
        if user:
            command += ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups", "--"]
            environment = {"HOME": str(HOME), "USER": USER, "XDG_RUNTIME_DIR": str(RUNTIME)} | environment
        result = subprocess.run(
            [*command, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
        )
        if check and result.returncode != 0:
            raise CommandFailed(result.returncode, list(map(str, argv)), result.stdout, result.stderr)
        return result

    def add_user(self) -> None:
        self.run(["useradd", "--create-home", f"--uid={UID}", "--shell=/bin/bash", USER])

    def as_user(self, *argv: str | Path, check: bool = True, timeout: float = 60) -> str:
        return self.run(argv, user=True, check=check, timeout=timeout).stdout.strip()

    def has(self, program: str) -> bool:
        return self.run(["sh", "-c", f"command -v {program}"], check=False).returncode == 0

    def write(self, path: Path, text: str) -> None:
        """A file of the user's."""
        self.run(["mkdir", "--parents", path.parent], user=True)
        self.outside(path).write_text(text)
        self.run(["chown", f"{UID}:{UID}", path])

    def install(self) -> None:
        """make install, by the user, from a copy of this checkout."""
        source = HOME / "amux"
        litter = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
        copy = self.outside(source)
        shutil.copytree(REPOSITORY, copy, ignore=litter)
        subprocess.run(["chown", "-R", f"{UID}:{UID}", copy], check=True)
        self.run(["make", "install"], user=True, cwd=source, env=_pip_settings(), timeout=INSTALL_TIMEOUT)

    def linger(self, on: bool) -> None:
        # logind asks in which unit its caller is, and who comes from outside is in none.
        verb = "enable-linger" if on else "disable-linger"
        self.run(["systemd-run", "--wait", "--collect", "--quiet", "loginctl", verb, USER])

    def log_in(self) -> None:
        """A session of logind's, which lasts until log_out()."""
        self.run(
            [
                *("systemd-run", "--unit=login", "--property=PAMName=login", f"--property=User={USER}"),
                *("sleep", "infinity"),
            ]
        )
        # The session is there before the manager that it starts has its bus.
        until(lambda: self._manager_state == "active" and USER in self._logged_in(), timeout=60)

    def _logged_in(self) -> str:
        return self.run(["loginctl", "list-sessions", "--no-legend", "--no-pager"]).stdout

    def log_out(self) -> None:
        self.run(["systemctl", "stop", "login.service"])

    @property
    def manager_runs(self) -> bool:
        return self._manager_state not in ("inactive", "failed")

    @property
    def _manager_state(self) -> str:
        show = ["systemctl", "show", "--property=ActiveState", "--value", f"user@{UID}.service"]
        return self.run(show).stdout.strip()

    @property
    def boot_id(self) -> str:
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def outside(self, path: Path | str) -> Path:
        assert self._leader is not None
        return Path(f"/proc/{self._leader.pid}/root") / Path(path).relative_to("/")

    def journal(self) -> str:
        if self._leader is None:
            return self.console()
        return self.run(
            ["journalctl", "--quiet", "--output=short-precise", "--lines=400"], check=False
        ).stdout

    def console(self) -> str:
        self._console.seek(0)
        return self._console.read()

    def close(self) -> None:
        assert self._outer.stdin is not None
        assert self._outer.stdout is not None
        if self._leader is not None:
            self.lose_power()
        self._outer.stdin.close()
        code = self._outer.wait(HALT_TIMEOUT)
        self._outer.stdout.close()
        console = self.console()
        self._console.close()
        shutil.rmtree(self.base, ignore_errors=True)
        if code != 0:
            raise MachineError(f"the booted machine was not taken away ({code}): {console}")

    def _furnish(self, upper: Path) -> None:
        """A logind that does not wait ten seconds after the last logout."""
        directory = upper / "etc/systemd/logind.conf.d"
        directory.mkdir(parents=True)
        (directory / "tests.conf").write_text("[Login]\nUserStopDelaySec=0\n")

    def _order(self, order: str) -> None:
        assert self._outer.stdin is not None
        self._outer.stdin.write(order + "\n")
        self._outer.stdin.flush()

    def _find_leader(self) -> psutil.Process | None:
        """Process 1 of the innermost namespace, once it is systemd."""
        assert self._outer.stdout is not None
        # It says a word when its system has ended, which this one had no time for.
        if self._outer.poll() is not None or select.select([self._outer.stdout], [], [], 0)[0]:
            raise MachineError(f"the machine did not boot: {self.console()}")
        for process in psutil.Process(self._outer.pid).children(recursive=True):
            with contextlib.suppress(OSError, psutil.Error):
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                numbers = next(line.split()[1:] for line in status if line.startswith("NSpid:"))
                if numbers[-1] == "1" and process.name() == "systemd":
                    return process
        return None

    def _is_up(self) -> bool:
        # Until there is a bus to ask, it says that it is offline.
        said = self.run(["systemctl", "is-system-running"], check=False).stdout.strip()
        if said == "degraded":
            failed = self.run(["systemctl", "--failed", "--plain", "--no-legend"]).stdout
            raise MachineError(f"the machine did not come up well: {failed}")
        return said == "running"

    def _halted(self) -> None:
        assert self._outer.stdout is not None
        self._leader = None
        # The code of systemd-nspawn says how its system ended, which whoever ended it knows.
        if not self._outer.stdout.readline():
            raise MachineError(f"the machine did not end: {self.console()}")


def _pip_settings() -> dict[str, str]:
    """Where packages come from is a matter of this system, not of the user."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        if name.startswith(("global.", "install.", ":env:.")):
            settings["PIP_" + name.rpartition(".")[2].upper().replace("-", "_")] = value.strip("'")
    return settings


def _local_package_indexes() -> list[Path]:
    words = " ".join(_pip_settings().values()).replace("file://", "").split()
    paths = {Path(word) for word in words if word.startswith("/")}
    # An index names files beside itself.
    return sorted({path.parent if path.name == "simple" else path for path in paths if path.exists()})
