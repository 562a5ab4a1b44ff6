"""What would be lost with a worktree, in words for a person: it is not removed while there is any."""

from dataclasses import replace
from pathlib import Path

from amuxd.workspaces.standing import Files, Standing

_KEPT_COPIES = "changed or the last there is"


def thrown_away(standing: Standing) -> list[str]:
    """What goes with it, each in a few words: also what keeps nobody from removing it."""
    again = standing.files.made_again
    # Stashes are the repository's, and stay there.
    standing = replace(standing, stashes=0, unpushed=standing.going)
    place = standing.out_of_sight
    unseen = f"what git keeps for {place}, which is not there" if place else ""
    more = _counted(len(again), "ignored directory", "ignored directories", _examples(_by_name(again), 8))
    return [words for words in (unseen, *lost(standing), more) if words]


def _by_name(directories: list[str]) -> list[str]:
    named: dict[str, list[str]] = {}
    for path in directories:
        named.setdefault(Path(path).name, []).append(path.removesuffix("/"))
    # Those that a program makes everywhere come last.
    return [
        paths[0] if len(paths) == 1 else f"{len(paths)} named {name}"
        for name, paths in sorted(named.items(), key=lambda item: (len(item[1]), item[1]))
    ]


def lost(standing: Standing, with_ignored: bool = True) -> list[str]:
    """The work in it, each in a few words: it is not removed while there is any."""
    uncommitted, copies = standing.files.uncommitted, standing.files.changed_copies
    untracked = [path for path in standing.files.untracked if not path.endswith("/")]
    untracked_directories = [path for path in standing.files.untracked if path.endswith("/")]
    ignored = standing.files.ignored if with_ignored else []
    directories = standing.files.ignored_directories if with_ignored else []
    directories = [path for path in directories if path not in standing.files.made_again]
    found = [
        _counted(len(uncommitted), "file", "files", " with uncommitted changes" + _examples(uncommitted)),
        _counted(len(untracked), "untracked file", "untracked files", _examples(untracked)),
        _counted(
            len(untracked_directories),
            "untracked directory",
            "untracked directories",
            _examples(untracked_directories),
        ),
        _counted(len(copies), "ignored copy", "ignored copies", f", {_KEPT_COPIES}{_examples(copies)}"),
        _counted(len(ignored), "file", "files", " that git ignores" + _examples(ignored)),
        _counted(
            len(directories),
            "directory",
            "directories",
            " that git ignores" + _examples(_by_name(directories)),
        ),
        _counted(standing.unpushed, "commit", "commits", " on no other branch and no remote"),
        _counted(len(standing.objects), "object", "objects", " that only a ref of this worktree names"),
        _counted(standing.stashes, "stash", "stashes"),
        _counted(len(standing.autostashes), "change", "changes", " that git put away for what is under way"),
        f"{standing.operation} under way" if standing.operation else "",
        standing.lock,
        *(
            _counted(commits, "commit", "commits", f" in submodule {name} on no remote")
            for name, commits in standing.submodules.items()
        ),
        *(f"{what} under way in submodule {name}" for name, what in standing.submodule_operations.items()),
        *never_lost(standing),
    ]
    return [words for words in found if words]


def never_lost(standing: Standing) -> list[str]:
    """What is not the worktree's own: not even force takes it along."""
    return [
        *(f"another repository, worktree or mount in it, {path}" for path in standing.nested),
        *(f"a worktree of a submodule in it, {path}" for path in standing.leaning),
    ]


def _counted(number: int, one: str, several: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else several}{more}" if number else ""


def _examples(names: list[str], number: int = 3) -> str:
    return f" ({', '.join(names[:number])}{', …' if len(names) > number else ''})"


def without_filters(files: Files) -> str:
    """What is to be said of it where git went on without a filter."""
    if not files.missing_filters:
        return ""
    filters = ", ".join(files.missing_filters)
    return f"git could not run {filters}, and may count files as changed that are not"
