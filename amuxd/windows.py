"""Opens the user's terminal with a command in it."""

import asyncio
import os
import secrets
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Protocol

from amuxd.bus.connection import Bus, BusError
from amuxd.bus.values import Typed
from amuxd.errors import LaunchFailed

SYSTEMD = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"

# What stands between the program and the command to run in it.
_KNOWN = (
    ("xdg-terminal-exec",),
    ("foot",),
    ("kitty",),
    ("alacritty", "-e"),
    ("ghostty", "-e"),
    ("wezterm", "start", "--"),
    ("ptyxis", "--"),
    ("kgx", "--"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("xfce4-terminal", "-x"),
    ("x-terminal-emulator", "-e"),
    ("xterm", "-e"),
)


class Launcher(Protocol):
    """Starts a program of the desktop, which amuxd's end must not be the end of."""

    async def environment(self) -> Mapping[str, str]: ...

    async def start(self, argv: Sequence[str]) -> None: ...


class Windows:
    def __init__(self, launcher: Launcher, configured: str = "") -> None:
        self._launcher = launcher
        self.configured = configured

    async def open(self, command: list[str]) -> None:
        environment = await self._launcher.environment()
        await self._launcher.start([*_terminal(self.configured, environment), *command])


def _terminal(configured: str, environment: Mapping[str, str]) -> list[str]:
    search = environment.get("PATH", os.defpath)
    given = _words(configured) or _completed(_words(environment.get("TERMINAL", "")))
    for program, *rest in [given] if given else _KNOWN:
        if found := shutil.which(program, path=search):
            return [found, *rest]
    if given:
        raise LaunchFailed(f"there is no terminal program {given[0]}")
    raise LaunchFailed("no terminal program was found; name one as sessions.terminal in config.toml")


def _words(terminal: str) -> list[str]:
    try:
        return shlex.split(terminal)
    except ValueError as error:
        raise LaunchFailed(f"the terminal {terminal!r} cannot be read: {error}") from error


def _completed(terminal: list[str]) -> list[str]:
    """$TERMINAL is most often the program alone."""
    if len(terminal) != 1:
        return terminal
    name = PurePath(terminal[0]).name
    return terminal + next((list(words[1:]) for words in _KNOWN if words[0] == name), ["-e"])


class InUnit:
    """As units of the user's systemd, which knows the desktop that it was told of."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def environment(self) -> Mapping[str, str]:
        member = ("org.freedesktop.systemd1.Manager", "Environment")
        try:
            [lines] = await self._bus.call(
                SYSTEMD, PATH, "org.freedesktop.DBus.Properties", "Get", "ss", member
            )
        except BusError as error:
            raise LaunchFailed(f"systemd did not answer: {error.message}") from error
        return dict(line.partition("=")[::2] for line in lines)

    async def start(self, argv: Sequence[str]) -> None:
        properties = [
            ["Description", Typed("s", "terminal for amux")],
            ["Slice", Typed("s", "app.slice")],
            ["CollectMode", Typed("s", "inactive-or-failed")],
            ["ExecStart", Typed("a(sasb)", [[argv[0], list(argv), False]])],
        ]
        name = f"app-amux-terminal-{secrets.token_hex(4)}.service"
        try:
            await self._bus.call(
                *(SYSTEMD, PATH, "org.freedesktop.systemd1.Manager", "StartTransientUnit"),
                *("ssa(sv)a(sa(sv))", (name, "fail", properties, [])),
            )
        except BusError as error:
            raise LaunchFailed(f"{argv[0]} could not be started: {error.message}") from error


class AsProcess:
    """Where there is no systemd."""

    async def environment(self) -> Mapping[str, str]:
        return os.environ

    async def start(self, argv: Sequence[str]) -> None:
        # The shell leaves it at once to process 1, so that nobody here has to wait for it.
        leave = '"$@" </dev/null >/dev/null 2>&1 &'
        shell = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", leave, "sh"), *argv, start_new_session=True
        )
        await shell.wait()
