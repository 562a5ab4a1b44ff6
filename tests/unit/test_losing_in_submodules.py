"""Work in the submodules of a worktree, of which git itself says little."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from harness.repositories import commit, git, repository
from worktree_work import (
    ALLOW,
    CACHE,
    add,
    exclude,
    just_before_it_is_moved,
    objects,
    refusal,
    refused,
    released_on_no_branch,
    repo,  # noqa: F401
    show_no_untracked,
    update,
    with_submodule,
)

from amuxd.workspaces import worktrees
from amuxd.workspaces.worktrees import Removed


@pytest.fixture(name="with_submodule")
def _with_submodule(repo: Path) -> Path:
    with_submodule(repo)
    return repo


def test_a_submodule_that_was_never_fetched_is_no_hindrance(with_submodule: Path) -> None:
    assert worktrees.remove(add(with_submodule), force=False) == Removed([], [])


def test_files_in_a_submodule(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    where = Path(git(inner, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    where.parent.mkdir(exist_ok=True)
    where.write_text("*.env\n")
    (inner / "a.env").write_text("x")
    assert refusal(made) == "1 file that git ignores (lib/a.env); --ignored takes these along"
    (inner / "a.env").unlink()
    git(inner, "update-index", "--assume-unchanged", "file0")
    (inner / "file0").write_text("changed")
    assert refusal(made) == "1 file with uncommitted changes (lib/file0)"
    git(inner, "update-index", "--no-assume-unchanged", "file0")
    assert refusal(made) == "1 file with uncommitted changes (lib)"


def test_a_commit_that_a_submodule_left_behind(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    tip = commit(inner, "more")
    git(made.directory, *ALLOW, "submodule", "update", "-q")
    assert worktrees.remove(made, force=False).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    assert tip in git(with_submodule, "rev-list", "--all").split()


@pytest.mark.parametrize("force", [False, True])
def test_a_commit_of_a_submodule_that_only_a_tag_leads_to(with_submodule: Path, force: bool) -> None:
    made = add(with_submodule)
    inner = update(made)
    tip = commit(inner, "more")
    git(inner, "tag", "-a", "-m", "kept", "mine")
    git(made.directory, *ALLOW, "submodule", "update", "-q")
    if force:
        assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
        assert tip in git(with_submodule, "rev-list", "--all").split()
    else:
        assert refusal(made) == "1 commit in submodule lib on no remote"


def test_a_release_that_is_on_no_branch_of_a_submodules_remote(with_submodule: Path) -> None:
    released_on_no_branch(with_submodule.parent / "library")
    made = add(with_submodule)
    update(made)
    assert worktrees.remove(made, force=False) == Removed([], [])


EXPIRE = ("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")


def test_reflogs_that_have_expired_are_no_hindrance(with_submodule: Path) -> None:
    exclude(with_submodule, "/cache")
    made = add(with_submodule)
    inner, clone = update(made), Path(made.directory) / "cache/clone"
    git(with_submodule, "clone", "-q", str(with_submodule), str(clone))
    git(inner, *EXPIRE)
    git(clone, *EXPIRE)
    assert worktrees.remove(made, force=False) == Removed(CACHE, [])


def test_a_submodule_that_keeps_its_commits_in_itself(repo: Path) -> None:
    made = add(repo)
    repository(Path(made.directory) / "own")
    git(made.directory, *ALLOW, "submodule", "add", "-q", "./own", "own")
    git(made.directory, "commit", "-q", "-m", "with one of its own")
    git(repo, "merge", "-q", "--ff-only", "fix")
    assert refusal(made).endswith(f"mount in it, {made.directory}/own")
    assert "take that away first" in refusal(made, force=True)


def test_work_that_comes_into_a_submodule_after_the_look(
    with_submodule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(with_submodule)
    inner = update(made)
    just_before_it_is_moved(monkeypatch, lambda: (inner / "late").write_text("x"))
    assert refusal(made) == "1 file with uncommitted changes (lib)"
    assert (inner / "late").exists()


def test_files_in_a_submodule_that_was_never_fetched(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = Path(made.directory) / "lib"
    (inner / "empty/more").mkdir(parents=True)
    assert worktrees.look(made).files.untracked == []
    (inner / "work.py").write_text("hours")
    (inner / "deep/er").mkdir(parents=True)
    (inner / "deep/er/link").symlink_to("..")
    (inner / "gone").symlink_to("nowhere")
    assert git(made.directory, "status", "--porcelain", "--ignored") == ""
    assert refusal(made) == "2 untracked files (lib/gone, lib/work.py) and 1 untracked directory (lib/deep/)"
    assert "lib/work.py" in worktrees.remove(made, force=True).lost[0]


def test_files_in_a_submodule_of_a_submodule_that_was_never_fetched(repo: Path) -> None:
    library = with_submodule(repo)
    deeper = repository(repo.parent / "deeper")
    git(library, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(deeper), "deep")
    git(library, "commit", "-q", "-m", "with one of its own")
    git(repo / "lib", "pull", "-q")
    git(repo, "commit", "-q", "-a", "-m", "newer")
    made = add(repo)
    inner = update(made)
    (inner / "deep/work.py").write_text("hours")
    assert refusal(made) == "1 untracked file (lib/deep/work.py)"


def test_a_repository_in_a_submodule_that_was_never_fetched(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    git(Path(made.directory) / "lib", "init", "-q")
    assert "take that away first" in refusal(made, force=True)
    (Path(made.directory) / "lib/.git").rename(Path(made.directory) / "lib/.git.away")
    repository(Path(made.directory) / "lib/own")
    assert f"mount in it, {made.directory}/lib/own" in refusal(made)


def test_untracked_files_of_a_submodule_that_the_user_does_not_want_to_see(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    (inner / "work.py").write_text("hours")
    show_no_untracked(tmp_path, monkeypatch)
    assert refusal(made) == "1 untracked file (lib/work.py)"


@pytest.mark.parametrize("ref", ["refs/wip/main", "refs/notes/review", "refs/stash"])
def test_work_that_any_ref_of_a_submodule_leads_to(repo: Path, ref: str) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    tip = git(inner, "commit-tree", "-m", "wip", "-p", "HEAD", "HEAD^{tree}")
    git(inner, "update-ref", ref, tip)
    assert refusal(made) == "1 commit in submodule lib on no remote"
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    kept = ref.replace("refs/", "refs/amux/removed/abc123/submodules/lib/", 1)
    assert git(repo, "rev-parse", kept) == tip


def test_a_submodule_on_a_branch_without_a_commit(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    tip = commit(inner, "more")
    git(inner, "tag", "mine")
    git(inner, "switch", "-q", "--orphan", "new")
    assert "1 commit in submodule lib on no remote" in refusal(made)
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    assert tip in git(repo, "rev-list", "--all").split()


@pytest.mark.parametrize("damage", [Path.unlink, partial(Path.write_text, data="")])
def test_a_damaged_repository_of_a_submodule_whose_files_were_taken_away(
    repo: Path, damage: Callable[[Path], object]
) -> None:
    with_submodule(repo)
    made = add(repo)
    commit(update(made), "more")
    git(made.directory, "submodule", "deinit", "-q", "--force", "lib")
    head = Path(git(made.directory, "rev-parse", "--git-dir")) / "modules/lib/HEAD"
    damage(head)
    assert git(made.directory, "status", "--porcelain") == ""
    assert f"git cannot tell what is in {made.directory}" in refused(made)
    assert (
        worktrees.remove(made, force=True).kept[0].startswith(f"{made.directory} and what git keeps for it, ")
    )


def test_an_operation_in_a_submodule(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    git(inner, "bisect", "start")
    assert refusal(made) == "a bisect under way in submodule lib"
    git(inner, "bisect", "reset")
    assert worktrees.remove(made, force=False) == Removed([], [])


def test_notes_that_are_being_merged_in_a_submodule(repo: Path) -> None:
    with_submodule(repo)
    made = add(repo)
    inner = update(made)
    git(inner, "notes", "add", "-m", "mine")
    git(inner, "notes", "--ref", "other", "add", "-m", "theirs")
    git(inner, "notes", "merge", "other", check=False)
    assert "a notes merge under way in submodule lib" in refusal(made)


def test_what_git_put_away_in_a_submodule(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    git(inner, "checkout", "-q", "-b", "theirs")
    commit(inner, "file0", "theirs\n")
    git(inner, "checkout", "-q", "--detach", "HEAD~1")
    commit(inner, "file0", "ours\n")
    (inner / "file1").write_text("changed")
    git(inner, "rebase", "-q", "--autostash", "theirs", check=False)
    stashed = git(inner, "rev-parse", "--git-path", "rebase-merge/autostash")
    tip = Path(inner, stashed).read_text().strip()
    assert "a rebase under way in submodule lib" in refusal(made)
    assert worktrees.remove(made, force=True).kept
    assert git(with_submodule, "show", f"{tip}:file1") == "changed"
    assert tip in objects(with_submodule)


def test_a_worktree_of_a_submodule_whose_place_is_not_written_down_keeps_it(
    repo: Path, tmp_path: Path
) -> None:
    with_submodule(repo)
    made = add(repo)
    elsewhere = tmp_path / "elsewhere"
    git(update(made), "worktree", "add", "-q", "--detach", str(elsewhere))
    commit(elsewhere, "mine")
    own = Path(git(elsewhere, "rev-parse", "--absolute-git-dir"))
    # As after a power cut; git works on in it.
    (own / "gitdir").write_text("")
    assert git(elsewhere, "status", "--porcelain") == ""
    assert refusal(made) == f"a worktree of a submodule in it, {own}"


def pack(own: Path) -> None:
    """Its refs too, as git does it by itself now and then."""
    git(own, "gc", "-q")


def pack_later(own: Path) -> None:
    """What it was cloned with is older by then."""
    pack(own)
    packed = own / "packed-refs"
    os.utime(packed, ns=(packed.stat().st_mtime_ns + 3 * 10**9,) * 2)


def commit_on_a_branch(inner: Path) -> str:
    git(inner, "checkout", "-q", "-b", "feature")
    return commit(inner, "more")


def commit_and_tag(inner: Path) -> str:
    git(inner, "tag", "mine", tip := commit(inner, "more"))
    return tip


def stash(inner: Path) -> str:
    (inner / "file0").write_text("work")
    git(inner, "stash")
    return git(inner, "rev-parse", "refs/stash")


@pytest.mark.parametrize(
    ("work", "pack"),
    [
        (commit_on_a_branch, pack),
        (commit_on_a_branch, pack_later),
        (stash, pack),
        (stash, pack_later),
        (commit_and_tag, pack_later),
    ],
)
def test_work_that_git_has_packed_since(
    with_submodule: Path, work: Callable[[Path], str], pack: Callable[[Path], None]
) -> None:
    made = add(with_submodule)
    inner = update(made)
    tip = work(inner)
    git(inner, "checkout", "-q", "--detach", "origin/main")
    pack(Path(git(inner, "rev-parse", "--absolute-git-dir")))
    assert refusal(made).endswith("in submodule lib on no remote")
    assert worktrees.remove(made, force=True).kept == ["refs/amux/removed/abc123/submodules/lib/*"]
    assert tip in git(with_submodule, "rev-list", "--all").split()


def test_what_filters_keep_of_a_submodules_files_is_kept_with_its_commits(with_submodule: Path) -> None:
    made = add(with_submodule)
    inner = update(made)
    commit_on_a_branch(inner)
    git(inner, "checkout", "-q", "--detach", "origin/main")
    content = Path(git(inner, "rev-parse", "--absolute-git-dir")) / "lfs/objects/aa/content"
    content.parent.mkdir(parents=True)
    content.write_text("large")
    (kept,) = worktrees.remove(made, force=True).kept
    place = Path(kept.partition(", the repository of submodule lib")[0])
    assert (place / "lfs/objects/aa/content").read_text() == "large"
    assert "more" in git(place, "ls-tree", "--name-only", "feature").split()
