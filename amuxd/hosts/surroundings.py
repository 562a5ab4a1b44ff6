"""What a run finds around it, and whether it can begin there at all."""

import os
from pathlib import Path

from amuxd.hosts import LaunchRefused
from amuxd.hosts.programs import check_program
from amuxd.records import Session


def environment_of(session: Session, runtime: Path) -> dict[str, str]:
    inherited = (
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
    )
    base = {name: os.environ[name] for name in inherited if name in os.environ}
    own = {"AMUX_SESSION_ID": session.id, "AMUX_SOCKET": str(runtime / "amuxd.sock")}
    return {**base, **session.environment, **own}


def check(session: Session, environment: dict[str, str]) -> None:
    """Refuses what cannot begin. tmux would start in the home directory where the right one is missing."""
    try:
        _check(session, environment)
    except OSError as error:
        raise LaunchRefused(f"{error.strerror}: {error.filename}") from error


def _check(session: Session, environment: dict[str, str]) -> None:
    directory = session.directory
    if not Path(directory).exists():
        raise LaunchRefused(f"no such directory: {directory}")
    if not Path(directory).is_dir():
        raise LaunchRefused(f"not a directory: {directory}")
    if not os.access(directory, os.X_OK):
        raise LaunchRefused(f"the directory {directory} may not be entered")
    program = shell_in(environment) if session.shell else session.command[0]
    check_program(program, directory, environment.get("PATH", os.defpath))


def shell_in(environment: dict[str, str]) -> str:
    return environment.get("SHELL") or "/bin/sh"
