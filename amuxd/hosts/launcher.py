"""A command at its gate: in a pane of a terminal server of its own, with a log, and not yet let go."""

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
from importlib.resources import files
from pathlib import Path

from amuxd import processes
from amuxd.hosts import ENDED, EXIT_STATUS, Enclosure, Home, LaunchRefused, loggers
from amuxd.hosts.cgroups import memory_kills
from amuxd.hosts.layout import Layout
from amuxd.hosts.pipes import hear
from amuxd.hosts.surroundings import shell_in
from amuxd.hosts.tmux import (
    SERVER_ENVIRONMENT,
    Shown,
    TmuxRefused,
    TmuxUnreachable,
    configuration,
    opening,
    respawning,
    server_command,
)
from amuxd.logs import shell_word, take_out_ends
from amuxd.paths import amux_program, ensure_private
from amuxd.records import Process, Session
from amuxd.store import Store

# What names the terminal server, among the gates.
SERVER = "server"


class NotOpened(Exception):
    """Who did not say that it is ready, and what there was to see of it."""


class Launcher:
    def __init__(self, enclosure: Enclosure, store: Store, layout: Layout, log_cap: int) -> None:
        self._enclosure = enclosure
        self._store = store
        self._layout = layout
        self.log_cap = log_cap
        self._scripts = Path(str(files("amuxd.hosts")))
        self._waiting: dict[str, int] = {}

    async def launch(
        self,
        tmux: str,
        session: Session,
        run: int,
        environment: dict[str, str],
        keep_terminal: bool,
        deadline: float,
    ) -> Home:
        gates = self._layout.gates(session.id)
        run_directory = await asyncio.to_thread(self._prepare, session, run, environment, gates)
        # For writing as well: when one has written and left, the pipe must not be at its end, and so always
        # readable, until the other comes.
        up = os.open(gates / "up", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.close_gate(session.id)
        self._waiting[session.id] = os.open(gates / "gate", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        heard: list[str] = []
        try:
            async with asyncio.timeout(deadline):
                await self._start(tmux, session, run_directory, gates, keep_terminal)
                # Both the pane and its log are there before anything is printed.
                await hear(up, heard, 2)
            home = _home(next(line for line in heard if line != "log"))
            home.not_enforced = self._enclosure.not_enforced(session.limits, home.server)
            return home
        except BaseException as error:
            self.close_gate(session.id)
            if isinstance(error, TimeoutError):
                raise NotOpened(await self._why_not_opened(session.id, heard)) from None
            raise
        finally:
            os.close(up)

    def _prepare(self, session: Session, run: int, environment: dict[str, str], gates: Path) -> Path:
        self._layout.make()
        run_directory = self._store.prepare_run(session.id, run)
        # An amuxd that was killed may have left it there, and this run's log may go on.
        take_out_ends(run_directory / "output.log")
        for leftover in ("not_started", EXIT_STATUS, ENDED):
            (run_directory / leftover).unlink(missing_ok=True)
        _write_private(run_directory / "command", self._command(session, run, environment, run_directory))
        marker = self._layout.attached / session.id
        shown = Shown(session.name, session.id, amux_program())
        pane, logger = self._pane(session, run_directory, gates)
        _write_private(
            self._layout.config(session.id),
            configuration(environment, marker, shown)
            + opening(session.directory, pane, logger, gates / SERVER),
        )
        shutil.rmtree(gates, ignore_errors=True)
        ensure_private(gates)
        for name in ("gate", "up", "end"):
            os.mkfifo(gates / name, 0o600)
        return run_directory

    def _pane(self, session: Session, run_directory: Path, gates: Path) -> tuple[list[str], list[str]]:
        """What runs in the pane, and what takes down what it prints."""
        # Isolated from the session's environment, and without the packages that it has no use for.
        pane = [sys.executable, "-I", "-S", str(self._scripts / "launch.py"), str(run_directory), str(gates)]
        if session.umask >= 0:
            pane.append(f"{session.umask:03o}")
        return pane, loggers.command(run_directory / "output.log", self.log_cap, gates)

    def _command(self, session: Session, run: int, environment: dict[str, str], run_directory: Path) -> str:
        """What launch.py reads: the directory, the PATH, and the command word by word."""
        words = session.command
        if session.shell:
            # One word is a line for the shell; several are a command as they stand.
            line = words[0] if len(words) == 1 else shlex.join(words)
            script, opened = str(self._scripts / "shell.sh"), shell_word(session.id, run)
            words = ["/bin/sh", script, str(run_directory), shell_in(environment), line, opened]
        return "\0".join([session.directory, environment.get("PATH", os.defpath), *words])

    async def _start(
        self, tmux: str, session: Session, run_directory: Path, gates: Path, keep_terminal: bool
    ) -> None:
        if keep_terminal:
            with contextlib.suppress(TmuxUnreachable, TmuxRefused):
                commands = respawning(session.directory, *self._pane(session, run_directory, gates))
                await self._layout.terminal(session.id).run_all(commands)
                return
        socket, config = self._layout.socket(session.id), self._layout.config(session.id)
        await self._enclosure.start(
            session,
            server_command(tmux, socket, config),
            gates / SERVER,
            {"PATH": os.environ.get("PATH", os.defpath), **SERVER_ENVIRONMENT},
        )

    async def _why_not_opened(self, session_id: str, heard: list[str]) -> str:
        missing = "its log" if any(line != "log" for line in heard) else "its pane" if heard else "both"
        try:
            pane = "#{?pane_dead,dead,alive}, #{?pane_pipe,with,without} a log, in #{pane_current_command}"
            how = (await self._layout.terminal(session_id).ask(pane)).strip()
            shown = await self._layout.terminal(session_id).capture(5)
        except (TmuxUnreachable, TmuxRefused) as error:
            how, shown = str(error), ""
        return f"{missing} said nothing ({how})" + (f", it shows {shown!r}" if shown else "")

    def release(self, session_id: str) -> None:
        """Lets the command go. After a restart of amuxd it may be waiting at a gate that nobody holds."""
        gate = self._waiting.pop(session_id, None)
        if gate is None:
            try:
                path = self._layout.gates(session_id) / "gate"
                gate = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return
        os.write(gate, b"go\n")
        os.close(gate)

    def close_gate(self, session_id: str) -> None:
        gate = self._waiting.pop(session_id, None)
        if gate is not None:
            os.close(gate)


def _write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())


def _home(pane: str) -> Home:
    command, server = (processes.identify(int(word)) for word in pane.split())
    home = hold(command, server)
    if home is None:
        raise LaunchRefused("its terminal went away while it was opened")
    home.memory_kills = memory_kills(home.server)
    return home


def hold(command: Process | None, server: Process | None) -> Home | None:
    """Both or none. Raises OSError."""
    if command is None or server is None or (command_fd := processes.open_process(command)) is None:
        return None
    try:
        server_fd = processes.open_process(server)
    except BaseException:
        os.close(command_fd)
        raise
    if server_fd is None:
        os.close(command_fd)
        return None
    return Home(command, server, command_fd, server_fd)
