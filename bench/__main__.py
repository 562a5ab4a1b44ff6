"""Runs the measurements, and prints one table; a goal that is missed is no failure, one not measured is."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from bench import (  # noqa: E402
    attention,
    busy,
    circumstances,
    exits,
    kills,
    known,
    launches,
    quiet,
    resumes,
    survival,
    workspaces,
)
from bench.table import Row, table  # noqa: E402

MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "exits": exits.measure,
    "launches": launches.measure,
    "resumes": resumes.measure,
    "known": known.measure,
    "quiet": quiet.measure,
    "busy": busy.measure,
    "survival": survival.measure,
    "kills": kills.measure,
    "attention": attention.measure,
    "workspaces": workspaces.measure,
}


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"there is no {', '.join(unknown)}; there are: {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    circumstances.require_installed_amux()
    before = circumstances.describe()
    rows: list[Row] = []
    failed = []
    for name in names or MEASUREMENTS:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        try:
            rows += MEASUREMENTS[name]()
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print("\n".join([before, circumstances.load(), "", *table(rows)]))
    for name in failed:
        print(f"could not be measured: {name}", file=sys.stderr)
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
