"""The user's settings, all of them optional."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amuxd import paths
from amuxd.errors import InvalidArgument
from amuxd.quantities import parse_duration, parse_size

SMALLEST_LOG = 4 * 1024 * 1024


@dataclass(frozen=True)
class WorkspaceSettings:
    directory: Path = field(default_factory=lambda: paths.state_directory() / "worktrees")
    copy: tuple[str, ...] = ()
    # By repository; the empty name stands for all others.
    setup: dict[str, str] = field(default_factory=dict)

    def setup_for(self, repository: str) -> str:
        return self.setup.get(repository, self.setup.get("", ""))


@dataclass(frozen=True)
class Settings:
    log_cap: int = 64 * 1024 * 1024
    stop_grace: float = 10.0
    workspaces: WorkspaceSettings = field(default_factory=WorkspaceSettings)


def load(path: Path) -> Settings:
    """A file that is wrong anywhere is refused whole, with the place named."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    sessions = _section(path, "sessions", data.pop("sessions", {}), _SESSIONS)
    workspaces = _section(path, "workspaces", data.pop("workspaces", {}), _WORKSPACES)
    if data:
        raise InvalidArgument(f"{path}: there is no section [{next(iter(data))}]")
    return Settings(**sessions, workspaces=WorkspaceSettings(**workspaces))


def _section(
    path: Path, name: str, section: object, readers: Mapping[str, Callable[[object], object]]
) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise InvalidArgument(f"{path}: {name} must be a section")
    values: dict[str, Any] = {}
    for key, value in section.items():
        reader = readers.get(key)
        if reader is None:
            raise InvalidArgument(f"{path}: there is no setting {key} in [{name}]")
        try:
            values[key] = reader(value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{path}: {name}.{key}: {error}") from None
    return values


def _size(value: object) -> int:
    size = value if type(value) is int else parse_size(_text(value))
    if size < SMALLEST_LOG:
        raise ValueError("a log needs at least 4M")
    return size


def _duration(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return parse_duration(_text(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _directory(value: object) -> Path:
    path = Path(_text(value)).expanduser()
    if not path.is_absolute():
        raise ValueError(f"{str(path)!r} is not absolute")
    return path


def _relative_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    names = tuple(_text(name) for name in value)
    for name in names:
        if not name or name.startswith("/") or ".." in Path(name).parts or ".git" in Path(name).parts:
            raise ValueError(f"{name!r} does not lie in a repository")
    return names


def _commands(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {"": _text(value)}
    return {str(_directory(repository)): _text(command) for repository, command in value.items()}


_SESSIONS = {"log_cap": _size, "stop_grace": _duration}
_WORKSPACES = {"directory": _directory, "copy": _relative_names, "setup": _commands}
