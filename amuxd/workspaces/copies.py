"""Files that git does not keep, brought along from where the caller works."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from amuxd.git import git
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
            # A link that leads nowhere is there as well, and would be written through.
            if not file.is_file() or os.path.lexists(place):
                continue
            _make_directories(source, target, place.parent)
            shutil.copy2(file, place)
            copied[relative] = _digest(place)
    return copied


def _make_directories(source: Path, target: Path, wanted: Path) -> None:
    """Each as open, or as closed, as the one that it is a copy of."""
    for directory in [place for place in (wanted, *wanted.parents) if not place.exists()][::-1]:
        directory.mkdir()
        shutil.copymode(source / directory.relative_to(target), directory)


class Changed(Exception):
    """A copy is not what it was when somebody looked: it is work now."""


@contextlib.contextmanager
def aside(directory: Path, copied: dict[str, str]) -> Iterator[None]:
    """Takes them away for good, unless something goes wrong: then they are where they were."""
    present = [name for name in copied if (directory / name).is_file()]
    if not present:
        yield
        return
    scratch = Path(tempfile.mkdtemp(prefix=".amux-", dir=directory.parent))
    moved: dict[str, Path] = {}
    try:
        for number, name in enumerate(present):
            (directory / name).rename(scratch / str(number))
            moved[name] = scratch / str(number)
            if _digest(moved[name]) != copied[name]:
                raise Changed(f"{name} has just been changed")
        yield
    except BaseException:
        for name, place in moved.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            place.rename(directory / name)
        scratch.rmdir()
        raise
    shutil.rmtree(scratch)


def untracked(directory: Path, copied: dict[str, str]) -> dict[str, str]:
    """Without those that were committed here, which are git's to look at."""
    tracked = set(git(directory, "ls-files", "-z").split("\0")) if copied else set()
    return {name: digest for name, digest in copied.items() if name not in tracked}


def without(directory: Path, files: standing.Files, copied: dict[str, str]) -> standing.Files:
    changed = [name for name, digest in copied.items() if _digest(directory / name) not in (digest, "")]
    same = set(copied) - set(changed)
    untracked = [name for name in files.untracked if not _only_copies(directory, name, same)]
    # One that git ignores, and that was changed here, is work as well.
    untracked += [name for name in changed if name not in untracked]
    ignored = [name for name in files.ignored if name not in copied]
    return replace(files, untracked=untracked, ignored=ignored)


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
