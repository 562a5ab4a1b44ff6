"""The repository's post-checkout hook runs when a worktree is made, as git itself runs it."""

from pathlib import Path

import pytest
from harness.repositories import add_hook, commit, git, repository
from harness.waiting import until

from amuxd.errors import Internal
from amuxd.records import Workspace
from amuxd.workspaces import planning, worktrees
from amuxd.workspaces.planning import Wish


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    return repository(tmp_path / "code")


def add(repo: Path, **wish: object) -> Workspace:
    asked = Wish(str(repo), **wish)  # type: ignore[arg-type]
    planned = planning.planned(Workspace("abc123", "fix", "", 1), asked, repo.parent / "trees")
    return worktrees.make(planned, asked)


def told(repo: Path) -> list[str]:
    lines = (repo.parent / "told").read_text().splitlines()
    (repo.parent / "told").unlink()
    return lines


def has_ended(number: str) -> bool:
    try:
        return ") Z " in Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_runs_as_git_itself_runs_it(repo: Path) -> None:
    tell = 'echo "$@"; pwd; git rev-parse --show-toplevel --abbrev-ref HEAD; echo "$GIT_DIR"; cat'
    add_hook(repo, f"{{ {tell}; }} >{repo.parent}/told 2>&1")
    made = add(repo)
    by_amux = told(repo)
    assert by_amux[:2] == [f"{'0' * 40} {git(repo, 'rev-parse', 'HEAD')} 1", made.directory]
    git(repo, "worktree", "remove", made.directory)
    git(repo, "worktree", "add", "-q", made.directory, "fix")
    assert told(repo) == by_amux


def test_beside_it_those_run_that_git_itself_runs_for_a_worktree(repo: Path) -> None:
    run_then = {"post-checkout", "post-index-change", "reference-transaction"}
    for name in run_then | {"pre-commit", "post-commit", "post-merge", "post-rewrite", "pre-auto-gc"}:
        add_hook(repo, f"echo {name} >>{repo.parent}/told", name=name)
    made = add(repo)
    by_amux = told(repo)
    assert set(by_amux) == run_then
    git(repo, "worktree", "remove", made.directory)
    (repo.parent / "told").unlink(missing_ok=True)
    git(repo, "worktree", "add", "-q", made.directory, "fix")
    assert told(repo) == by_amux
    (repo.parent / "told").unlink(missing_ok=True)
    assert worktrees.remove(made, force=False) == worktrees.Removed([], [])
    assert not (repo.parent / "told").exists()


def test_it_has_the_surroundings_of_who_makes_it(repo: Path) -> None:
    add_hook(repo, f'{{ umask; echo "$MINE"; }} >{repo.parent}/told; touch made')
    made = add(repo, environment={"MINE": "yes"}, umask=0o027)
    assert told(repo) == ["0027", "yes"]
    assert (Path(made.directory) / "made").stat().st_mode & 0o777 == 0o640
    assert made.hook_failure == ""


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no lfs here' >&2; exit 3", "failed with code 3: no lfs here"),
        ("echo 'said so'; exit 1", "failed with code 1: said so"),
        ("exit 2", "failed with code 2"),
    ],
)
def test_the_worktree_stays_where_it_fails(repo: Path, script: str, why: str) -> None:
    (repo / ".env").write_text("KEY=1")
    add_hook(repo, script)
    made = add(repo, copy=[".env"])
    assert made.hook_failure == f"its post-checkout hook {why}"
    assert git(made.directory, "branch", "--show-current") == "fix"
    assert (Path(made.directory) / ".env").exists()
    assert worktrees.remove(made, force=False) == worktrees.Removed([], [])


def test_it_ends_with_the_time_that_there_is(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_hook(repo, f"echo $$ >{repo.parent}/told; exec sleep 1000")
    monkeypatch.setattr(worktrees, "CHECKOUT", 5.0)
    made = add(repo)
    assert made.hook_failure == "its post-checkout hook was ended: git worktree took longer than 5 s"
    (number,) = told(repo)
    until(lambda: has_ended(number))
    assert (Path(made.directory) / "file0").exists()


def test_what_is_not_checked_out_has_none(repo: Path) -> None:
    (repo / ".gitattributes").write_text("* filter=broken\n")
    git(repo, "add", ".gitattributes")
    git(repo, "commit", "-q", "-m", "filtered")
    git(repo, "config", "filter.broken.smudge", "false")
    git(repo, "config", "filter.broken.required", "true")
    add_hook(repo, f"touch {repo.parent}/told")
    with pytest.raises(Internal, match="could not be made"):
        add(repo)
    assert not (repo.parent / "told").exists()
    assert not (repo.parent / "trees/code/fix").exists()


def test_one_that_lies_in_the_tree_is_the_repositorys_and_not_the_branchs(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".husky")
    for branch in ("theirs", "main"):
        git(repo, "checkout", "-q", "-B", branch)
        add_hook(repo, f"echo {branch} >{repo.parent}/told", place=".husky")
        commit(repo, ".husky/post-checkout", (repo / ".husky/post-checkout").read_text())
    (repo.parent / "told").unlink()
    made = add(repo, base="theirs")
    assert told(repo) == ["main"]
    assert "theirs" in (Path(made.directory) / ".husky/post-checkout").read_text()
