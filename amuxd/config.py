"""The user's settings, all of them optional."""

import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amuxd.board import ATTENTION, URGENCY
from amuxd.errors import InvalidArgument
from amuxd.quantities import parse_duration, parse_size

SMALLEST_LOG = 4 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    log_cap: int = 64 * 1024 * 1024
    stop_grace: float = 10.0
    notify: frozenset[str] = frozenset({"failed", ATTENTION})
    terminal: str = ""


def load(path: Path) -> Settings:
    """A file that is wrong anywhere is refused whole, with the place named."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    sessions = data.pop("sessions", {})
    if data:
        raise InvalidArgument(f"{path}: there is no section [{next(iter(data))}]")
    if not isinstance(sessions, dict):
        raise InvalidArgument(f"{path}: sessions must be a section")
    values: dict[str, Any] = {}
    for key, value in sessions.items():
        reader = _READERS.get(key)
        if reader is None:
            raise InvalidArgument(f"{path}: there is no setting {key} in [sessions]")
        try:
            values[key] = reader(value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{path}: sessions.{key}: {error}") from None
    return Settings(**values)


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


def _kinds(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    kinds = frozenset(_text(kind) for kind in value)
    if unknown := sorted(kinds - set(URGENCY)):
        raise ValueError(f"there is no {unknown[0]!r} to tell of: {', '.join(URGENCY)}")
    return kinds


def _command(value: object) -> str:
    if not shlex.split(_text(value)):
        raise ValueError("it names no program")
    return _text(value)


_READERS: dict[str, Callable[[object], Any]] = {
    "notify": _kinds,
    "terminal": _command,
    "log_cap": _size,
    "stop_grace": _duration,
}
