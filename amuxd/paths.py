"""Where everything lives. The CLI and the daemon agree because both ask here."""

import contextlib
import os
import stat
import sys
from pathlib import Path


class Unsafe(OSError):
    """A place that others could reach into; the message is one sentence for a person."""


def _directory(variable: str, fallback: Path) -> Path:
    # The base directory specification has a relative path count as unset.
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else fallback


def config_file() -> Path:
    return _directory("XDG_CONFIG_HOME", Path.home() / ".config") / "amux" / "config.toml"


def state_directory() -> Path:
    return _directory("XDG_STATE_HOME", Path.home() / ".local" / "state") / "amux"


def daemon_log() -> Path:
    """Where amuxd writes its own log when there is no journal for it."""
    return state_directory() / "amuxd.log"


def runtime_base() -> Path:
    standard = Path(f"/run/user/{os.getuid()}")
    base = _directory("XDG_RUNTIME_DIR", standard)
    if base == standard and not standard.is_dir():
        # No login manager made one.
        return _private_in_a_place_for_all(_directory("TMPDIR", Path("/tmp")) / f"amux-{os.getuid()}")
    _refuse_another_users(base)
    return base


def _refuse_another_users(base: Path) -> None:
    """After su it is still the caller's, who could not use what we would make in it."""
    try:
        owner = base.stat().st_uid
    except OSError:
        return
    if owner != os.getuid():
        raise Unsafe(
            f"XDG_RUNTIME_DIR is {base}, which belongs to another user: unset it, or log in as yourself"
        )


def _private_in_a_place_for_all(directory: Path) -> Path:
    """Anybody may have made it before us, and would then own the sockets in it."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise Unsafe(f"{directory} is not a directory: remove it, or set XDG_RUNTIME_DIR")
    if status.st_uid != os.getuid():
        raise Unsafe(f"{directory} belongs to another user: set XDG_RUNTIME_DIR to a directory of your own")
    if status.st_mode & 0o022:
        raise Unsafe(f"{directory} can be written by others: remove it, or set XDG_RUNTIME_DIR")
    return directory


def runtime_directory() -> Path:
    return runtime_base() / "amux"


def ensure_private(directory: Path) -> Path:
    """Makes the directory for this user alone; refuses one that somebody else put there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid():
        raise Unsafe(f"{directory} belongs to another user")
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def events_socket() -> Path:
    return runtime_directory() / "amuxd.sock"


def amux_program() -> str:
    """The amux that belongs to this amuxd, for what amuxd has others run."""
    # Imported in here: amux itself needs none of what this imports.
    import shutil

    return _beside_this_program("amux") or shutil.which("amux") or "amux"


def amuxd_command() -> list[str]:
    """The amuxd that belongs to this amux, by a name that an upgrade does not take away."""
    beside = _beside_this_program("amuxd")
    return [beside] if beside else [sys.executable, "-m", "amuxd"]


def _beside_this_program(name: str) -> str | None:
    program = Path(sys.argv[0]).absolute()
    while not (beside := program.with_name(name)).is_file():
        if not program.is_symlink():
            return None
        program = program.parent / program.readlink()
    return str(beside)


def private_bus_socket() -> Path:
    return runtime_directory() / "bus"


def has_user_manager() -> bool:
    return (runtime_base() / "systemd" / "private").exists()
