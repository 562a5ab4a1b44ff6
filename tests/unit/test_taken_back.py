"""What was half made of a worktree is taken back, and nothing that somebody else made in its place."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import errno
from pathlib import Path

import pytest
from harness.repositories import commit, git
from worktree_work import (
    add,
    branches,
    misleading_environment,  # noqa: F401
    repo,  # noqa: F401
    update,
    with_submodule,
)

from amuxd.errors import Internal, InvalidArgument
from amuxd.records import Workspace
from amuxd.workspaces import planning, standing, worktrees
from amuxd.workspaces.planning import Wish


def test_a_copy_that_fails_leaves_nothing_half_made(repo: Path) -> None:
    (repo / "secret").mkdir()
    (repo / "secret/file").write_text("x")
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "taken").write_text("x")
    git(repo, "add", "taken")
    git(repo, "commit", "-q", "-m", "taken")
    git(repo, "rm", "-q", "taken")
    (repo / "taken").mkdir()
    (repo / "taken/file").write_text("x")
    with pytest.raises(Internal, match="fix could not be made"):
        add(repo, copy=["taken"], base="other")
    assert branches(repo) == {"main", "other"}
    assert len(standing.worktrees(str(repo))) == 1


def test_a_checkout_that_takes_too_long_leaves_nothing_half_made(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repo, ".gitattributes", "file1 filter=slow\n")
    git(repo, "config", "filter.slow.smudge", f"touch {repo.parent}/reached; sleep 1000")
    monkeypatch.setattr(worktrees, "CHECKOUT", 5.0)
    with pytest.raises(Internal, match="fix could not be made: git worktree took longer than 5 s"):
        add(repo)
    assert (repo.parent / "reached").exists()
    assert not (repo.parent / "worktrees").exists()
    assert branches(repo) == {"main"}


def test_directories_above_it_stay_where_something_else_is_in_them(repo: Path) -> None:
    top = repo.parent / "worktrees"
    git(repo, "branch", "old")
    git(repo, "checkout", "-q", "old")
    with pytest.raises(InvalidArgument, match="'old' is already"):
        add(repo, branch="old")
    assert not top.exists()
    top.mkdir()
    with pytest.raises(InvalidArgument, match="'old' is already"):
        add(repo, branch="old")
    assert list(top.iterdir()) == []
    other = add(repo, "other", "bbb222")
    with pytest.raises(InvalidArgument, match="'old' is already"):
        add(repo, branch="old")
    assert list(top.glob("*/*")) == [Path(other.directory)]


def test_directories_that_cannot_all_be_made_are_taken_back(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def refuse(directory: Path) -> None:
        if directory.name == "code":
            raise PermissionError(errno.EACCES, "Permission denied", str(directory))
        mkdir(directory)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Internal, match="worktrees/code cannot be made: Permission denied"):
        add(repo)
    assert not (repo.parent / "worktrees").exists()


def test_what_a_crash_left_is_taken_back_once(repo: Path) -> None:
    made = add(repo)
    assert not worktrees.recovered(made)
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert branches(repo) == {"main"}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_branch_that_somebody_made_after_the_plan_stays(repo: Path, is_killed: bool) -> None:
    wish = Wish(str(repo))
    plan = planning.planned(Workspace("abc123", "fix", "", 1), wish, repo.parent / "trees")
    git(repo, "branch", "fix")
    if is_killed:
        assert not worktrees.recovered(plan)
    else:
        with pytest.raises(Internal, match=r"fix could not be made: .*already exists"):
            worktrees.make(plan, wish)
    assert branches(repo) == {"main", "fix"}
    assert not Path(plan.directory).exists()


def test_a_branch_that_somebody_made_anew_after_a_crash_stays(repo: Path) -> None:
    made = add(repo)
    git(repo, "worktree", "remove", made.directory)
    commit(repo, "more")
    git(repo, "branch", "-f", "fix", "main")
    assert not worktrees.recovered(made)
    assert "fix" in branches(repo)
    git(repo, "branch", "-D", "fix")
    git(repo, "branch", "fix")
    assert not worktrees.recovered(made)
    assert "fix" in branches(repo)


@pytest.mark.parametrize("files", [[], ["work"]])
def test_a_directory_that_somebody_made_after_the_plan_stays(repo: Path, files: list[str]) -> None:
    wish = Wish(str(repo))
    plan = planning.planned(Workspace("abc123", "fix", "", 1), wish, repo.parent / "trees")
    Path(plan.directory).mkdir(parents=True)
    for name in files:
        (Path(plan.directory) / name).write_text("x")
    with pytest.raises(InvalidArgument, match=f"fix could not be made: {plan.directory} is there"):
        worktrees.make(plan, wish)
    assert [path.name for path in Path(plan.directory).iterdir()] == files
    assert branches(repo) == {"main"}


def test_two_that_were_planned_for_one_place_do_not_undo_each_other(repo: Path) -> None:
    wish = Wish(str(repo))
    plans = [
        planning.planned(Workspace(key, name, "", 1), wish, repo.parent / "trees")
        for key, name in (("aaa111", "feat/x"), ("bbb222", "feat-x"))
    ]
    assert len({plan.directory for plan in plans}) == 1
    made = worktrees.make(plans[0], wish)
    (Path(made.directory) / "work").write_text("hours of it")
    with pytest.raises(InvalidArgument, match="is there"):
        worktrees.make(plans[1], wish)
    assert not worktrees.recovered(plans[1])
    assert (Path(made.directory) / "work").exists()
    assert branches(repo) == {"main", "feat/x"}


def test_an_empty_directory_that_a_crash_left_is_taken_back(repo: Path) -> None:
    git(repo, "branch", "old")
    for branch in ("old", "new"):
        plan = planning.planned(
            Workspace("abc123", branch, "", 1), Wish(str(repo), branch), repo.parent / "trees"
        )
        if plan.made_branch:
            worktrees._make_branch(plan)
        Path(plan.directory).mkdir(parents=True)
        assert not worktrees.recovered(plan)
        assert not Path(plan.directory).exists()
    assert branches(repo) == {"main", "old"}


WHOLE = b"of text\nand \xff, that is no text\n" * 100
# As a pattern it would mean others, and it is no text.
ODD = ":(top) *\n\udcff"


def half_checked_out(repo: Path, content: bytes, is_program: bool = False) -> Workspace:
    """As git leaves it that was killed while several of its workers wrote."""
    for name in ("large", ODD):
        (repo / name).write_bytes(WHOLE)
    (repo / "large").chmod(0o755 if is_program else 0o644)
    git(repo, "add", "--all")
    git(repo, "commit", "-q", "-m", "large files")
    made = add(repo)
    own = Path(git(made.directory, "rev-parse", "--absolute-git-dir"))
    (own / "locked").write_text("initializing")
    (own / "index").unlink()
    directory = Path(made.directory)
    (directory / "file1").unlink()
    (directory / "large").write_bytes(content)
    (directory / ODD).write_bytes(b"")
    return made


@pytest.mark.parametrize("is_program", [False, True])
@pytest.mark.parametrize("content", [b"", WHOLE[:1], WHOLE[:1000], WHOLE[:-1]])
def test_files_that_git_had_half_written_are_nobodys_work(
    repo: Path, content: bytes, is_program: bool
) -> None:
    made = half_checked_out(repo, content, is_program)
    assert not worktrees.recovered(made)
    assert not Path(made.directory).exists()
    assert branches(repo) == {"main"}


@pytest.mark.parametrize(
    "content", [b"mine", WHOLE + b"mine", WHOLE[:1000] + b"mine", WHOLE[1:], b"\0" * len(WHOLE)]
)
def test_a_file_with_anything_else_in_it_is_kept(repo: Path, content: bytes) -> None:
    made = half_checked_out(repo, content)
    assert worktrees.recovered(made)
    assert (Path(made.directory) / "large").read_bytes() == content


def test_half_a_file_that_somebody_made_a_program_is_kept(repo: Path) -> None:
    made = half_checked_out(repo, WHOLE[:1000])
    (Path(made.directory) / "large").chmod(0o755)
    assert worktrees.recovered(made)
    assert (Path(made.directory) / "large").exists()


@pytest.mark.parametrize("new", [False, True])
def test_what_is_beside_files_that_git_had_half_written_is_kept(repo: Path, new: bool) -> None:
    made = half_checked_out(repo, WHOLE[:1000])
    mine = Path(made.directory) / ("new" if new else "file0")
    mine.write_text("mine")
    assert worktrees.recovered(made)
    assert mine.read_text() == "mine"


def test_work_in_a_submodule_beside_files_that_git_had_half_written_is_kept(repo: Path) -> None:
    with_submodule(repo)
    made = half_checked_out(repo, WHOLE[:1000])
    git(made.directory, "read-tree", "HEAD")
    mine = update(made) / "file0"
    mine.write_text("mine")
    assert worktrees.recovered(made)
    assert mine.read_text() == "mine"


def test_a_lock_whose_reason_is_no_text_is_that_of_a_person(repo: Path) -> None:
    made = add(repo)
    own = Path(git(made.directory, "rev-parse", "--absolute-git-dir"))
    (own / "locked").write_bytes(b"for caf\xe9\n")
    assert worktrees.recovered(made)
    assert Path(made.directory).exists()


def test_half_a_file_that_a_filter_has_a_say_in_is_kept(repo: Path) -> None:
    """Also where what says so is half written itself."""
    commit(repo, ".gitattributes", "large filter=none-such\n")
    made = half_checked_out(repo, WHOLE[:1000])
    (Path(made.directory) / ".gitattributes").write_bytes(b"")
    assert worktrees.recovered(made)
    assert (Path(made.directory) / "large").read_bytes() == WHOLE[:1000]
