"""What every record on disk has in common."""

from dataclasses import dataclass, field
from typing import Any

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stored:
    """What a later amuxd wrote down beside what this one knows is written again with it."""

    unknown: dict[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)
