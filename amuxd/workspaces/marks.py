"""Whether what stands in the place of a worktree is that worktree: told by its .git, without asking git."""

import os
from pathlib import Path

from amuxd.workspaces.hidden import place_of_worktree

_LEADS_TO = "gitdir: "


def why_another(directory: str, repository: str) -> str:
    """Empty also where git itself refuses to work: it would not work for another repository then."""
    top = Path(directory)
    mark = top / ".git"
    if not top.is_dir():
        return ""
    if not os.path.lexists(mark):
        return f"{mark} is gone: put the worktree back"
    if mark.is_dir() and not mark.is_symlink():
        return f"{top} is a repository of its own: put the worktree back"
    own = _led_to(mark)
    if own is None or not own.is_dir():
        return ""
    if not (own / "commondir").is_file():
        is_whole = (own / "objects").is_dir()
        return f"{mark} leads to another repository, {own}: put the worktree's own back" if is_whole else ""
    common = own / _line_of(own / "commondir")
    itself = Path(repository, ".git")
    of_it = [place for place in (Path(repository), itself, _led_to(itself)) if place and place.is_dir()]
    written = own / place_of_worktree(own)
    is_of_another = of_it and not any(common.samefile(place) for place in of_it)
    if is_of_another or (written.is_file() and not written.samefile(mark)):
        return f"{mark} leads to another worktree, {own}: put its own back"
    return ""


def _led_to(mark: Path) -> Path | None:
    if mark.is_dir():
        return mark.resolve()
    return mark.parent / _line_of(mark).removeprefix(_LEADS_TO) if mark.is_file() else None


def _line_of(file: Path) -> str:
    return os.fsdecode(file.read_bytes()).rstrip("\n")
