"""Workspaces removed by the commands that people use: several at once, by force, and where it cannot be."""

from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.repositories import commit, git, is_reachable, repository


@pytest.fixture
def repo(amux: Amux, tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def add(amux: Amux, repo: Path, name: str, *options: str) -> Path:
    return Path(amux.cli("ws", "add", name, *options, cwd=repo).stdout.strip().partition(": ")[2])


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_two_that_are_removed_at_once_lose_no_commit(amux: Amux, repo: Path, force: list[str]) -> None:
    for number in range(8):
        tip = commit(add(amux, repo, f"a{number}"), f"file{number}", str(number))
        add(amux, repo, f"b{number}", "--base", f"a{number}")
        removals = [amux.popen("ws", "rm", *force, f"{which}{number}") for which in "ab"]
        codes = sorted(removal.wait(30) for removal in removals)
        assert codes == ([0, 0] if force else [0, 4])
        assert is_reachable(repo, tip)


@pytest.mark.parametrize(
    ("force", "verb"), [(["-f"], "throwing away"), (["--ignored"], "throwing away"), ([], "threw away")]
)
def test_directories_that_are_ignored_as_a_whole_are_named(
    amux: Amux, repo: Path, force: list[str], verb: str
) -> None:
    (repo / ".git/info/exclude").write_text("build/\nnode_modules/\n")
    directory = add(amux, repo, "fix")
    for name in ("build", "node_modules"):
        (directory / name).mkdir()
        (directory / name / "file").write_text("x")
    told = "2 ignored directories (build, node_modules)"
    assert f"Lost by rm:  {told}\n" in amux.cli("ws", "show", "fix").stdout
    assert amux.cli("ws", "rm", *force, "fix").stdout == f"fix: {verb} {told}\nremoved fix\n"


def test_where_something_cannot_be_kept_nothing_is_ended(amux: Amux, repo: Path) -> None:
    library = repository(repo.parent / "library", files=2)
    commit(library, "more")
    git(repo, "submodule", "add", "-q", f"file://{library}", "lib")
    git(repo, "commit", "-q", "-m", "with a submodule")
    directory = add(amux, repo, "fix")
    git(directory, "submodule", "update", "-q", "--init", "--depth", "1")
    tip = commit(directory / "lib", "work")
    session = amux.create(["sleep", "1000"], workspace="fix")
    (repo / ".git/amux").write_text("in the way")
    refused = amux.cli("ws", "rm", "--force", "fix", check=False)
    assert refused.returncode == 4
    assert refused.stderr.startswith(
        f"amux: git does not remove {directory}: commits of submodule lib cannot be"
    )
    assert session.state == "running"
    assert git(directory / "lib", "rev-parse", "HEAD") == tip
    (repo / ".git/amux").unlink()
    *_, kept = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    place = kept.removeprefix("  kept ").removesuffix(", the repository of submodule lib")
    assert git(place, "rev-parse", "HEAD") == tip
    assert not directory.exists()
