"""Since when amuxd has been there on this boot, and on those before it: in between nobody saw anything."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from amuxd import files, paths

logger = logging.getLogger(__name__)

_DAY = 24 * 3600 * 1_000_000


@dataclass(frozen=True)
class Boots:
    """Moments in microseconds; 0, where nothing is to be told apart by them."""

    began: int = 0
    one_before_began: int = 0

    def seen_from(self, at: int) -> int:
        """Since when what happened then could have been seen, where that was not before this boot."""
        return self.began if at >= self.one_before_began else 0


@dataclass(frozen=True)
class _Known:
    boot_id: str
    boots: Boots
    # What began within a day of that boot counts as the same one: it may have been seen for minutes only.
    first_began: int

    def followed_by(self, boot_id: str, now: int) -> "_Known":
        # From the first, and not from one to the next: who reboots often keeps nothing for ever.
        if 0 <= now - self.first_began < _DAY:
            return _Known(boot_id, Boots(now, self.boots.one_before_began), self.first_began)
        return _Known(boot_id, Boots(now, self.first_began), now)


def counted(directory: Path, boot_id: str, now: int) -> Boots:
    path = directory / "boots"
    try:
        known = _read(path)
        if known is None:
            _put_aside(path)
    except OSError as error:
        logger.error("since when there was somebody to see anything is not known: %s", error)
        return Boots(began=now)
    if known is not None and known.boot_id == boot_id:
        return known.boots
    new = known.followed_by(boot_id, now) if known else _Known(boot_id, Boots(now, now), now)
    try:
        files.replace(path, f"{boot_id} {new.boots.began} {new.boots.one_before_began} {new.first_began}\n")
    except OSError as error:
        logger.error("that this boot began is not written down: %s", error)
    return new.boots


def _put_aside(path: Path) -> None:
    """What is no such text, that of a later amuxd say, is not overwritten."""
    if not path.exists() or not path.stat().st_size:
        return
    aside = paths.ensure_private(path.parent / "set-aside") / f"{path.name}-{time.time_ns()}"
    path.rename(aside)
    files.sync_renamed(aside.parent)
    files.sync_renamed(path.parent)
    logger.warning("%s says nothing to this amuxd, and is set aside as %s", path, aside)


def _read(path: Path) -> _Known | None:
    """None also where it is no such text."""
    try:
        boot_id, *moments = path.read_text().split()
        # Earlier amuxds wrote no third one.
        began, one_before_began, first_began = map(
            int, moments if len(moments) != 2 else [*moments, moments[0]]
        )
    except (FileNotFoundError, ValueError):
        return None
    return _Known(boot_id, Boots(began, one_before_began), first_began)
