"""Since when amuxd has been there on this boot, and on the one before: in between nobody saw anything."""

import logging
from dataclasses import dataclass
from pathlib import Path

from amuxd import files

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Boots:
    """Moments in microseconds; 0, where nothing is to be told apart by them."""

    began: int = 0
    one_before_began: int = 0

    def seen_from(self, at: int) -> int:
        """Since when what happened then could have been seen, where that was not before this boot."""
        return self.began if at >= self.one_before_began else 0


def counted(directory: Path, boot_id: str, now: int) -> Boots:
    path = directory / "boots"
    known = _read(path)
    if known is None:
        boots = Boots(now, now)
    elif known[0] == boot_id:
        return known[1]
    else:
        boots = Boots(now, known[1].began)
    try:
        files.replace(path, f"{boot_id} {boots.began} {boots.one_before_began}\n")
    except OSError as error:
        logger.error("that this boot began is not written down: %s", error)
    return boots


def _read(path: Path) -> tuple[str, Boots] | None:
    """None also where it is no such text."""
    try:
        boot_id, began, one_before_began = path.read_text().split()
        return boot_id, Boots(int(began), int(one_before_began))
    except (OSError, ValueError):
        return None
