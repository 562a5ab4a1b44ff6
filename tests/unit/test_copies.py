"""Files that are brought along into a worktree: where from, where to, and whose work they are."""

import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import git, repository

from amuxd import helpers
from amuxd.errors import WorkspaceDirty
from amuxd.git import GitFailed
from amuxd.helpers import Stopping
from amuxd.records import Workspace
from amuxd.workspaces import copies, planning, worktrees
from amuxd.workspaces.planning import Wish


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def add(repo: Path, *copied: str, base: str = "") -> Workspace:
    wish = Wish(str(repo), base=base, copy=copied)
    bare = Workspace("abc123", "fix", "", 1)
    return worktrees.make(planning.planned(bare, wish, repo.parent / "worktrees"), wish)


def with_tracked_link(repo: Path, link: str, target: str) -> None:
    """On the branch other, which has the link where main has nothing."""
    git(repo, "checkout", "-q", "-b", "other")
    (repo / link).symlink_to(target)
    git(repo, "add", link)
    git(repo, "commit", "-q", "-m", "a link")
    git(repo, "checkout", "-q", "main")


@pytest.mark.parametrize("named", ["config", "config/local.env"])
def test_no_copy_leaves_the_worktree_through_a_link_to_a_directory(
    repo: Path, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    outside = repo.parent / "outside"
    outside.mkdir()
    with_tracked_link(repo, "config", str(outside))
    (repo / "config").mkdir()
    (repo / "config/local.env").write_text("KEY=1")
    (repo / ".env").write_text("KEY=1")
    made = add(repo, named, ".env", base="other")
    assert set(made.copied) == {".env"}
    assert list(outside.iterdir()) == []
    link = Path(made.directory, "config")
    assert f"{repo}/config/local.env is not copied: {link} is a link" in caplog.text


@pytest.mark.parametrize("named", ["data", "data/secret"])
def test_a_directory_that_a_link_leads_to_is_not_copied_whole(
    repo: Path, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    outside = repo.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    (repo / "data").symlink_to(outside)
    made = add(repo, named)
    assert made.copied == {}
    assert f"{repo}/{named} is not copied: {repo}/data is a link" in caplog.text


def test_a_link_in_a_directory_that_is_copied_is_told_where_it_leads_to_a_directory(
    repo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (repo / "conf").mkdir()
    (repo / "conf/local").write_text("x")
    (repo / "conf/data").symlink_to(repo.parent)
    made = add(repo, "conf")
    assert set(made.copied) == {"conf/local"}
    assert f"{repo}/conf/data is not copied: {repo}/conf/data is a link" in caplog.text


def test_what_a_link_to_a_file_leads_to_is_copied(repo: Path) -> None:
    (repo.parent / "shared.env").write_text("KEY=1")
    (repo / ".env").symlink_to("../shared.env")
    made = add(repo, ".env")
    assert set(made.copied) == {".env"}
    assert Path(made.directory, ".env").read_text() == "KEY=1"


def test_directories_are_as_closed_as_those_that_they_are_copies_of(repo: Path) -> None:
    (repo / "conf/keys/own").mkdir(parents=True)
    (repo / "conf/keys").chmod(0o700)
    (repo / "conf/keys/own").chmod(0o2750)
    (repo / "conf/keys/own/key").write_text("KEY=1")
    copied = Path(add(repo, "conf").directory, "conf")
    for name in ("", "keys", "keys/own"):
        assert (copied / name).stat().st_mode == (repo / "conf" / name).stat().st_mode


class StopsLater(threading.Event):
    """Whoever asks so many times finds that amuxd is not stopping, and is stopping from then on."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def is_set(self) -> bool:
        self._times -= 1
        return self._times < 0


def test_amuxd_can_end_before_each_piece_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "conf/more").mkdir(parents=True)
    (source / "conf/a").write_text("12345")
    (source / "conf/more/b").write_text("1")
    target.mkdir()
    monkeypatch.setattr(copies, "_PIECE", 2)
    for asked in itertools.count():
        monkeypatch.setattr(helpers, "_stopping", StopsLater(asked))
        try:
            copied = copies.bring(source, target, ["conf"])
            break
        except Stopping:
            assert list(target.iterdir()) == []
    assert set(copied) == {"conf/a", "conf/more/b"}
    # Before each of three entries is found, before each is looked at, and before each of four pieces.
    assert asked == 3 + 3 + 4


def test_a_look_at_copies_ends_with_amuxd(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".env").write_text("KEY=1")
    made = add(repo, ".env")
    untracked = copies.untracked

    def stop(directory: Path, copied: dict[str, str]) -> dict[str, str]:
        """git is not asked any more."""
        found = untracked(directory, copied)
        monkeypatch.setattr(helpers, "_stopping", StopsLater(0))
        return found

    monkeypatch.setattr(copies, "untracked", stop)
    with pytest.raises(GitFailed, match="amuxd is stopping"):
        worktrees.look(made)


def look_for_work(made: Workspace) -> list[str]:
    files = worktrees.look(made).files
    return [*files.untracked, *files.changed_copies, *files.ignored_directories]


@pytest.mark.parametrize("is_ignored", [False, True])
def test_the_copy_of_a_file_that_is_no_more_is_the_only_one(repo: Path, is_ignored: bool) -> None:
    if is_ignored:
        (repo / ".git/info/exclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1")
    made = add(repo, ".env")
    assert made.copied_from == str(repo)
    (repo / ".env").write_text("KEY=2")
    assert look_for_work(made) == []
    (repo / ".env").unlink()
    assert look_for_work(made) == [".env"]
    told = "ignored copy, changed or the last there is" if is_ignored else "untracked file"
    with pytest.raises(WorkspaceDirty, match=rf"has 1 {told} \(\.env\)$"):
        worktrees.remove(made, force=False)
    assert Path(made.directory, ".env").read_text() == "KEY=1"


def test_the_original_lay_where_the_caller_was(repo: Path) -> None:
    outer = repo.parent / "outer"
    git(repo, "worktree", "add", "-q", str(outer))
    (outer / ".env").write_text("KEY=1")
    made = add(outer, ".env")
    assert look_for_work(made) == []
    # What was written down by an amuxd that did not say where from is looked for in the repository.
    assert look_for_work(replace(made, copied_from="")) == [".env"]
    (outer / ".env").rename(repo / ".env")
    for place in ("", str(outer)):
        assert look_for_work(replace(made, copied_from=place)) == []
    # The repository's own is another one by now, and that of where the caller was is no more.
    (repo / ".env").write_text("KEY=2")
    assert look_for_work(made) == [".env"]


def gone(copy: Path) -> None:
    copy.unlink()


def piped(copy: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


def linked(copy: Path) -> None:
    copy.unlink()
    copy.symlink_to("nowhere")


def a_directory(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()
    (copy / "more").write_text("x")


@pytest.mark.parametrize(
    ("become", "work"), [(gone, []), (piped, [".env"]), (linked, [".env"]), (a_directory, [".env"])]
)
def test_a_copy_that_became_something_else(
    repo: Path, become: Callable[[Path], None], work: list[str]
) -> None:
    (repo / ".git/info/exclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1")
    made = add(repo, ".env")
    become(Path(made.directory, ".env"))
    assert look_for_work(made) == work


def change_the_copy(conf: Path) -> None:
    (conf / "a").write_text("KEY=2")


def replace_the_copy(conf: Path) -> None:
    a_directory(conf / "a")


@pytest.mark.parametrize("work", [change_the_copy, replace_the_copy])
def test_what_is_in_an_untracked_directory_is_counted_once(repo: Path, work: Callable[[Path], None]) -> None:
    (repo / "conf").mkdir()
    (repo / "conf/a").write_text("KEY=1")
    made = add(repo, "conf")
    work(Path(made.directory, "conf"))
    with pytest.raises(WorkspaceDirty, match=r"has 1 untracked directory \(conf/\)$"):
        worktrees.remove(made, force=False)


def test_an_ignored_directory_with_copies_alone_is_told_by_those_that_were_changed(repo: Path) -> None:
    (repo / ".git/info/exclude").write_text("conf\n")
    (repo / "conf").mkdir()
    for name in ("a", "b"):
        (repo / "conf" / name).write_text("KEY=1")
    made = add(repo, "conf")
    change_the_copy(Path(made.directory, "conf"))
    for with_ignored in (False, True):
        with pytest.raises(
            WorkspaceDirty, match=r"has 1 ignored copy, changed or the last there is \(conf/a\)$"
        ):
            worktrees.remove(made, force=False, with_ignored=with_ignored)


def test_a_copy_that_cannot_be_read_may_be_work(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything."""
    (repo / ".git/info/exclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1")
    made = add(repo, ".env")
    opened = os.open

    def refuse(path: Path, flags: int, *more: Any, **options: Any) -> int:
        if Path(path).name == ".env":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert look_for_work(made) == [".env"]


def test_a_secret_is_nobody_elses_while_it_is_copied(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".env").write_text("secret")
    (repo / ".env").chmod(0o640)
    modes = []
    copystat = shutil.copystat

    def seen(source: Path, target: Path) -> None:
        modes.append(stat.S_IMODE(target.stat().st_mode))
        copystat(source, target)
        modes.append(stat.S_IMODE(target.stat().st_mode))

    monkeypatch.setattr(shutil, "copystat", seen)
    add(repo, ".env")
    assert modes == [0o600, 0o640]
