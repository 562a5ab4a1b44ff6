"""What is mounted where, as the kernel tells this process."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from amuxd.lines import lines_of

_MOUNTS = Path("/proc/self/mountinfo")
# Blanks and the like are written as \040.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def mounted() -> Iterator[tuple[int, Path]]:
    """Each mount's number, which statx tells of a file as well, and its place."""
    for line in lines_of(os.fsdecode(_MOUNTS.read_bytes())):
        number, _, _, _, place = line.split(" ")[:5]
        yield int(number), Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), place))
