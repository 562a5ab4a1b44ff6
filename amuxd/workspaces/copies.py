"""Files that git does not keep, brought along from where the caller works."""

import contextlib
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from amuxd.git import git
from amuxd.helpers import unless_stopping
from amuxd.records import Workspace
from amuxd.workspaces import hidden, standing

_PIECE = 1 << 20

logger = logging.getLogger(__name__)


def bring(source: Path, target: Path, names: Sequence[str]) -> dict[str, str]:
    """Each file that was copied, and what was in it."""
    copied: dict[str, str] = {}
    # Where amuxd is stopping, git takes nothing away any more.
    with contextlib.ExitStack() as undoing:
        for file in unless_stopping(_wanted(source, names)):
            relative = str(file.relative_to(source))
            place = target / relative
            # A link that leads nowhere is there as well, and would be written through.
            if os.path.lexists(place):
                continue
            if link := _link_between(target, file, place):
                logger.warning("%s is not copied: %s is a link", file, link)
            elif file.is_file():
                _make_directories(source, target, place.parent, undoing)
                copied[relative] = _copy(file, place, undoing)
        undoing.pop_all()
    return copied


def _wanted(source: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        origin = source / name
        if link := _link_on_way(source, origin if origin.is_dir() else origin.parent):
            logger.warning("%s is not copied: %s is a link", origin, link)
        elif origin.is_dir():
            yield from sorted(unless_stopping(origin.rglob("*")))
        else:
            yield origin


def _link_between(target: Path, file: Path, place: Path) -> Path | None:
    """What keeps it from being copied: it leads to a directory itself, or the way to its place leads away."""
    if file.is_dir():
        return file if file.is_symlink() else None
    return _link_on_way(target, place.parent) if file.is_file() else None


def _copy(file: Path, place: Path, undoing: contextlib.ExitStack) -> str:
    """What was in it. With its mode and its times."""
    digest = hashlib.sha256()
    with file.open("rb") as original, open(place, "xb", opener=_for_nobody_else) as copy:
        undoing.callback(_if_possible, place.unlink)
        for piece in _pieces(original):
            copy.write(piece)
            digest.update(piece)
    shutil.copystat(file, place)
    return digest.hexdigest()


def _for_nobody_else(path: str, flags: int) -> int:
    """Until it is as closed as the original."""
    return os.open(path, flags, 0o600)


def _pieces(content: BinaryIO) -> Iterator[bytes]:
    return unless_stopping(iter(partial(content.read, _PIECE), b""))


def _if_possible(undo: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        undo()


def _link_on_way(top: Path, directory: Path) -> Path | None:
    """What leads out of there, to a directory that nobody named."""
    below = directory.relative_to(top).parts
    ways = (top.joinpath(*below[: count + 1]) for count in range(len(below)))
    return next((way for way in ways if way.is_symlink()), None)


def _make_directories(source: Path, target: Path, wanted: Path, undoing: contextlib.ExitStack) -> None:
    """Each as open, or as closed, as the one that it is a copy of."""
    for directory in [place for place in (wanted, *wanted.parents) if not place.exists()][::-1]:
        directory.mkdir()
        undoing.callback(_if_possible, directory.rmdir)
        shutil.copymode(source / directory.relative_to(target), directory)


def left_out(workspace: Workspace, directory: Path, files: standing.Files) -> standing.Files:
    """Without those that are as they were, which are nobody's work."""
    copied = untracked(directory, workspace.copied)
    return without(directory, workspace, files, copied)


def untracked(directory: Path, copied: dict[str, str]) -> dict[str, str]:
    """Without those that were committed here, which are git's to look at."""
    tracked = set(git(directory, "ls-files", "-z").split("\0")) if copied else set()
    return {name: digest for name, digest in copied.items() if name not in tracked}


def without(
    directory: Path, workspace: Workspace, files: standing.Files, copied: dict[str, str]
) -> standing.Files:
    """What is nobody's work: a copy that is as it was, of a file that is still there."""
    changed = [name for name, digest in copied.items() if _is_work(directory, workspace, name, digest)]
    same = set(copied) - set(changed)
    untracked = [name for name in files.untracked if not _only_copies(directory, name, same)]
    ignored = [name for name in files.ignored if name not in copied]
    directories = [
        name
        for name in files.ignored_directories
        # One that took the place of a copy is told as that.
        if name.removesuffix("/") not in changed and not _only_copies(directory, name, copied)
    ]
    return replace(
        files,
        untracked=untracked,
        ignored=ignored,
        ignored_directories=directories,
        made_again=[name for name in files.made_again if name in directories],
        # One that git ignores, and that was changed here or is the last there is, is work as well.
        changed_copies=[name for name in changed if not _is_among(name, untracked)],
    )


def _is_among(name: str, told: Sequence[str]) -> bool:
    return any(name == other or (other.endswith("/") and name.startswith(other)) for other in told)


def _is_work(directory: Path, workspace: Workspace, name: str, digest: str) -> bool:
    try:
        present = _digest(directory / name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # What cannot be read may be anything.
        return True
    return present != digest or not _has_original(workspace, name, digest)


def _has_original(workspace: Workspace, name: str, digest: str) -> bool:
    if workspace.copied_from and (Path(workspace.copied_from) / name).is_file():
        return True
    # That of the repository will do where a worktree that it was copied from is no more, if it is the same.
    with contextlib.suppress(OSError):
        return _digest(Path(workspace.repository) / name) == digest
    return False


def _only_copies(directory: Path, name: str, copies: Container[str]) -> bool:
    if not name.endswith("/"):
        return name in copies
    found = [str(path.relative_to(directory)) for path in hidden.files_in(directory / name)]
    return bool(found) and all(path in copies for path in found)


def _digest(path: Path) -> str:
    """Of a regular file alone: who reads a pipe waits for its writer."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        with open(file, "rb", closefd=False) as content:
            digest = hashlib.sha256()
            for piece in _pieces(content):
                digest.update(piece)
            return digest.hexdigest()
    finally:
        os.close(file)
