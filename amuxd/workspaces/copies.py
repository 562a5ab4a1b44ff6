"""Files that git does not keep, brought along from where the caller works."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from amuxd.workspaces import standing


def bring(source: Path | None, target: Path, names: Sequence[str]) -> dict[str, str]:
    """Each file that was copied, and what was in it."""
    copied: dict[str, str] = {}
    for name in names if source else ():
        assert source is not None
        origin = source / name
        for file in sorted(origin.rglob("*")) if origin.is_dir() else [origin]:
            relative = str(file.relative_to(source))
            place = target / relative
            if not file.is_file() or place.exists():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
            copied[relative] = _digest(place)
    return copied


@contextlib.contextmanager
def aside(directory: Path, names: Sequence[str]) -> Iterator[None]:
    """Takes them away for good, unless something goes wrong: then they are where they were."""
    present = [name for name in names if (directory / name).is_file()]
    if not present:
        yield
        return
    with tempfile.TemporaryDirectory(prefix=".amux-", dir=directory.parent) as scratch:
        for number, name in enumerate(present):
            (directory / name).rename(Path(scratch, str(number)))
        try:
            yield
        except BaseException:
            for number, name in enumerate(present):
                Path(scratch, str(number)).rename(directory / name)
            raise


def without(directory: Path, files: standing.Files, copied: dict[str, str]) -> standing.Files:
    changed = [name for name, digest in copied.items() if _digest(directory / name) not in (digest, "")]
    same = set(copied) - set(changed)
    untracked = [name for name in files.untracked if not _only_copies(directory, name, same)]
    # One that git ignores, and that was changed here, is work as well.
    untracked += [name for name in changed if name not in untracked]
    return replace(files, untracked=untracked)


def _only_copies(directory: Path, name: str, same: set[str]) -> bool:
    if not name.endswith("/"):
        return name in same
    found = [path for path in (directory / name).rglob("*") if not path.is_dir() or path.is_symlink()]
    return bool(found) and all(str(path.relative_to(directory)) in same for path in found)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
