"""A machine of its own for a test: systemd --user, its session bus and a journal, in private namespaces."""

import contextlib
import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import psutil

SCRIPT = Path(__file__).with_name("machine.sh")
REPOSITORY = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_TIMEOUT = 30.0
CLOSE_TIMEOUT = 30.0

# What each machine is made of, and the package (Debian's name) that has it.
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "find": "findutils",
}
FILES = {
    "/usr/bin/nsenter": "util-linux",
    "/usr/bin/tmux": "tmux",
    "/usr/bin/dbus-daemon": "dbus",
}
MANAGER_FILES = {
    "/usr/lib/systemd/systemd": "systemd",
    "/usr/lib/systemd/systemd-journald": "systemd",
    "/usr/lib/systemd/user/dbus.socket": "dbus-user-session",
}

# Into the cgroup of a login session first: only from outside of the machine's cgroup namespace may one do so.
LOG_IN = (
    "echo 0 >/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope/cgroup.procs"
    ' && exec /usr/bin/nsenter --cgroup=/proc/1/ns/cgroup -- "$@"'
)

CLONE_FS = 0x00000200


class MachineError(Exception):
    """A test machine could not be built, or not be taken away."""


class CommandFailed(subprocess.CalledProcessError):
    def __str__(self) -> str:
        return f"{super().__str__()}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class Machine:
    """Everything in it ends with close(), or with this process, however it ends."""

    alive: ClassVar[list["Machine"]] = []

    def __init__(
        self,
        *,
        manager: bool = True,
        root: Path | None = None,
        binds: Sequence[Path] = (),
        bindir: Path | None = None,
    ) -> None:
        _require(manager, root or Path("/"))
        self.manager = manager
        self.root = root
        self.bindir = bindir or Path(sys.prefix) / "bin"
        self.uid = os.getuid()
        self.runtime = Path(f"/run/user/{self.uid}")
        self.base = Path(tempfile.mkdtemp(prefix="amux-machine-"))
        self.home = self.base / "home"
        self.state_home = self.home / ".local/state"
        self.config_home = self.home / ".config"
        self.temporary = self.base / "tmp"
        for directory in (self.state_home, self.config_home, self.temporary):
            directory.mkdir(parents=True)
        # Without a name, so that it can be read when the machine's directory is gone.
        self._console: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._processes: list[subprocess.Popen[Any]] = []
        self._leader = self._launch(binds)
        Machine.alive.append(self)
        try:
            self.pid = self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        self._doorway = ThreadPoolExecutor(1, "doorway", initializer=_enter, initargs=(self.pid,))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def service_environment(self) -> dict[str, str]:
        """What the user manager, and so each of its services, has: as thin as in reality."""
        user = pwd.getpwuid(self.uid)
        return {
            "HOME": str(self.home),
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            "SHELL": user.pw_shell,
            "LANG": "C.UTF-8",
            "PATH": SYSTEM_PATH,
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_STATE_HOME": str(self.state_home),
            "XDG_CONFIG_HOME": str(self.config_home),
        }

    @property
    def environment(self) -> dict[str, str]:
        """What a person's shell in it has."""
        environment = self.service_environment | {
            "PATH": f"{self.bindir}:{SYSTEM_PATH}",
            "TERM": "xterm-256color",
        }
        if self.manager:
            environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={self.runtime}/bus"
        return environment

    @property
    def bus_address(self) -> str:
        """The session bus, for clients outside of the machine."""
        return f"unix:path={self.outside(self.runtime / 'bus')}"

    def outside(self, path: Path | str) -> Path:
        """How this process reaches a path of the machine; home, state and temporary are the same in both."""
        return Path(f"/proc/{self.pid}/root") / Path(path).relative_to("/")

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """A process of the machine, as a direct child: its signals, terminal and exit code are its own."""
        command = ["/bin/sh", "-c", LOG_IN, "sh", *map(str, argv)] if self.manager else [*map(str, argv)]
        options.setdefault("text", True)
        environment = self.environment | dict(env or {})

        def start() -> subprocess.Popen[Any]:
            return subprocess.Popen(command, env=environment, cwd=cwd or self.home, **options)

        process = self._doorway.submit(start).result()
        self._processes = [other for other in self._processes if other.poll() is None]
        self._processes.append(process)
        return process

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        check: bool = True,
        timeout: float = 60,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        process = self.popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            # What it started may hold its output open.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            raise
        if check and process.returncode != 0:
            raise CommandFailed(process.returncode, [str(word) for word in argv], stdout, stderr)
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        return self.run(["systemctl", "--user", "--no-pager", *arguments], check=check).stdout.strip()

    def journal(self, *options: str, **matches: str) -> list[dict[str, Any]]:
        """The entries with these fields, as in journal(AMUX_SESSION=...); options are journalctl's."""
        self.run(["journalctl", "--sync"])
        fields = [f"{name}={value}" for name, value in matches.items()]
        output = self.run(["journalctl", "--quiet", "--output=json", "--all", *options, *fields]).stdout
        return [json.loads(line) for line in output.splitlines()]

    def journal_text(self, *options: str) -> str:
        self.run(["journalctl", "--sync"])
        return self.run(["journalctl", "--quiet", "--output=short-precise", *options]).stdout

    def processes(self) -> list[psutil.Process]:
        """All but process 1 and zombies, with the numbers that they have outside."""
        namespace = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for process in psutil.process_iter():
            try:
                inside = Path(f"/proc/{process.pid}/ns/pid").readlink() == namespace
                if inside and process.pid != self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        return found

    def command_lines(self) -> dict[int, list[str]]:
        """Of each, by the number that it has outside; one that goes away meanwhile is none."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found[int(process.pid)] = list(process.cmdline())
        return found

    def pids_of(self, name: str) -> set[int]:
        found = set()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == name:
                    found.add(process.pid)
        return found

    def outside_pid(self, pid: int) -> int:
        """The number, outside, of the process that has this one in the machine."""
        for process in self.processes():
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                continue
            numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
            if int(numbers[-1]) == pid:
                return int(process.pid)
        raise ProcessLookupError(f"there is no process {pid} in the machine")

    def kill(self, pid: int, number: int = signal.SIGKILL, timeout: float = 60) -> None:
        """Signals a process, by its number in the machine, and waits for its end."""
        handle = os.pidfd_open(self.outside_pid(pid))
        try:
            signal.pidfd_send_signal(handle, number)
            if not select.select([handle], [], [], timeout)[0]:
                raise TimeoutError(f"process {pid} did not end within {timeout} s")
        finally:
            os.close(handle)

    def console(self) -> str:
        """What its first processes printed."""
        self._console.seek(0)
        return self._console.read()

    def close(self) -> None:
        if self not in Machine.alive:
            return
        Machine.alive.remove(self)
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        self._leader.stdin.close()
        # The namespace ends only when those of its processes whose parent is outside have been waited for.
        for process in self._processes:
            process.wait(CLOSE_TIMEOUT)
        if doorway := getattr(self, "_doorway", None):
            doorway.shutdown()
        code = self._leader.wait(CLOSE_TIMEOUT)
        self._leader.stdout.close()
        console = self.console()
        self._console.close()
        shutil.rmtree(self.base, ignore_errors=True)
        # 137: process 1 was killed, which is as good an end as any.
        if code not in (0, 137) and hasattr(self, "pid"):
            raise MachineError(f"the machine {self.base.name} was not taken away ({code}): {console}")

    def _launch(self, binds: Sequence[Path]) -> subprocess.Popen[bytes]:
        self._notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._notifications.bind(str(self.base / "notify"))
        return subprocess.Popen(
            ["/bin/sh", str(SCRIPT), "outer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._console,
            # Ctrl-C is for the tests; the machine ends in its own order after them.
            start_new_session=True,
            env=self.service_environment
            | {
                "NOTIFY_SOCKET": str(self.base / "notify"),
                "MACHINE_NAME": self.base.name,
                "MACHINE_BASE": str(self.base),
                "MACHINE_RUNTIME": str(self.runtime),
                "MACHINE_MANAGER": "yes" if self.manager else "no",
                "MACHINE_ROOT": str(self.root or ""),
                "MACHINE_BINDS": " ".join(map(str, binds)),
            },
        )

    def _wait_until_ready(self) -> int:
        deadline = time.monotonic() + START_TIMEOUT
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        with self._notifications:
            if self.manager:
                self._wait_for_notification("systemd-journald", deadline)
                self._leader.stdin.write(b"\n")
                self._leader.stdin.flush()
                self._wait_for_notification("systemd --user", deadline)
        # Closed, so that nobody in the machine ever blocks on a full queue that is not read.
        (self.base / "notify").unlink()
        line = self._leader.stdout.readline()
        if not line:
            raise MachineError(self._explanation("the machine did not start"))
        return int(line)

    def _wait_for_notification(self, what: str, deadline: float) -> None:
        leader = os.pidfd_open(self._leader.pid)
        try:
            while True:
                remaining = max(0.0, deadline - time.monotonic())
                notifications = self._notifications.fileno()
                ready, _, _ = select.select([notifications, leader], [], [], remaining)
                if notifications in ready:
                    if b"READY=1" in self._notifications.recv(4096).split(b"\n"):
                        return
                elif leader in ready:
                    raise MachineError(self._explanation("the machine did not start"))
                else:
                    raise MachineError(self._explanation(f"{what} was not ready within {START_TIMEOUT} s"))
        finally:
            os.close(leader)

    def _explanation(self, what: str) -> str:
        return f"{what}: {self.console().strip() or 'nothing was printed'}"


def _require(manager: bool, root: Path) -> None:
    if os.geteuid() != 0:
        raise MachineError(
            "tests on real parts need root, to make namespaces and cgroups: make test uses sudo"
        )
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    files = FILES | MANAGER_FILES if manager else FILES
    missing |= {
        package for file, package in files.items() if not os.path.lexists(root / Path(file).relative_to("/"))
    }
    if missing:
        raise MachineError(f"a test machine needs packages that are missing: {', '.join(sorted(missing))}")


def _enter(pid: int) -> None:
    """Moves this thread, and so each process that it starts, into the namespaces of the machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("pid", "mnt")]
    try:
        # A mount namespace can be joined only by a task that shares its root with no other.
        if libc.unshare(CLONE_FS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        for namespace in namespaces:
            if libc.setns(namespace, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        for namespace in namespaces:
            os.close(namespace)
