"""What a run finds around it, and whether it can begin there at all."""

import os
import shutil
from pathlib import Path

from amuxd.hosts import LaunchRefused
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
    if session.shell:
        _check_program(shell_in(environment), directory, environment)
    else:
        _check_program(session.command[0], directory, environment)


def _check_program(name: str, directory: str, environment: dict[str, str]) -> None:
    if "/" in name:
        path = Path(directory) / name
        if not path.exists():
            raise LaunchRefused(f"no such program: {name}")
        if path.is_dir():
            raise LaunchRefused(f"{name} is a directory")
        if not os.access(path, os.X_OK):
            raise LaunchRefused(f"{name} is not executable")
        return
    search = environment.get("PATH", os.defpath)
    if shutil.which(name, path=search) is None:
        found = next((p for d in search.split(":") if d and (p := Path(d) / name).is_file()), None)
        raise LaunchRefused(f"{found} is not executable" if found else f"no such program: {name}")


def shell_in(environment: dict[str, str]) -> str:
    return environment.get("SHELL") or "/bin/sh"
