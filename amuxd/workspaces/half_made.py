"""What git had not finished when it was killed while it checked files out, and nobody has touched since."""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from amuxd.git import git, programs_in
from amuxd.processes import command_line
from amuxd.records import Workspace
from amuxd.workspaces.hidden import BEING_CHECKED_OUT, git_directory, lock_of

# Of a file in git's index, by whether it is a program.
_MODES = {False: "100644", True: "100755"}


def words_to_git(workspace: Workspace) -> list[str]:
    return ["worktree", "add", "--quiet", workspace.directory, workspace.branch]


def is_git_at_work(workspace: Workspace) -> bool:
    """Where there is no unit that ends it, git outlives the amuxd that asked for it."""
    words = words_to_git(workspace)
    running = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return any(command_line(pid)[-len(words) :] == words for pid in running)


def is_being_checked_out(directory: Path) -> bool:
    return lock_of(git_directory(directory)) == BEING_CHECKED_OUT


def is_half_made(directory: Path, workspace: Workspace) -> bool:
    """git was killed while it checked the files out: some are missing or cut short, and no other is there."""
    if not is_being_checked_out(directory):
        return False
    with tempfile.TemporaryDirectory(prefix="amux-") as scratch:
        # Its own index is written last.
        whole = {**programs_in(workspace.search_path), "GIT_INDEX_FILE": f"{scratch}/index"}
        git(directory, "read-tree", "HEAD", environment=whole)
        asked = ["--porcelain", "-z", "--untracked-files=all", "--ignored"]
        found = git(directory, "status", *asked, environment=whole).split("\0")[:-1]
        return all(
            record.startswith(" D ")
            or (record.startswith(" M ") and _is_cut_short(directory, record[len(" M ") :], whole))
            for record in found
        )


def _is_cut_short(directory: Path, name: str, environment: Mapping[str, str]) -> bool:
    """It has the beginning of what git was writing into it, and nothing else: no person wrote any of that."""
    # The file that says so may be missing or cut short itself.
    asked = ["check-attr", "--cached", "-z", "filter", "--", name]
    if git(directory, *asked, environment=environment).split("\0")[2] not in ("unspecified", "unset"):
        # What a filter makes of it is not known to amux.
        return False
    listing = git(
        directory, "--literal-pathspecs", "ls-files", "-s", "-z", "--", name, environment=environment
    )
    mode, blob = listing.split()[:2]
    try:
        content = _content(directory / name, mode)
    except OSError:
        return False
    if content is None:
        return False
    whole = git(directory, "cat-file", "blob", blob, environment=environment)
    return _is_beginning(content, whole.encode(errors="surrogateescape"))


def _content(file: Path, mode: str) -> bytes | None:
    """None where git made something else: somebody has replaced it, or changed whether it is a program."""
    made = file.lstat().st_mode
    if not stat.S_ISREG(made) or mode != _MODES[bool(made & stat.S_IXUSR)]:
        return None
    return file.read_bytes()


def _is_beginning(content: bytes, whole: bytes) -> bool:
    return len(content) < len(whole) and whole.startswith(content)
