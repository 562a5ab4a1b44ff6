"""What amuxd was doing with a workspace when it ended is neither lost nor unknown to the next one."""

import shutil
from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.repositories import git, repository
from harness.waiting import until
from workspace_fixtures import listed


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def directory_of(amux: Amux, name: str) -> Path:
    path = amux.manager.call("GetWorkspace", "s", name)
    return Path(amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace").get("Directory"))


def id_of(amux: Amux, name: str) -> str:
    return str(amux.manager.call("GetWorkspace", "s", name)).rpartition("/")[2]


def test_one_that_was_being_removed_is_where_it_was(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    amux.cli("ws", "add", "other", cwd=repo)
    waiting = amux.create(["true"], workspace="fix", start=False)
    directory = directory_of(amux, "fix")
    fix, other = id_of(amux, "fix"), id_of(amux, "other")
    amux.stop()
    (directory / "late").write_text("work")
    directory.rename(directory.with_name(f".amux-removing-{fix}"))
    deleted = directory.with_name("other").rename(directory.with_name(f".amux-removed-{other}"))
    amux.start()
    until(lambda: not deleted.exists())
    until(directory.exists)
    assert (directory / "late").read_text() == "work"
    assert waiting.state == "created"
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert refused.stderr == "amux: fix has 1 untracked file (late)\n"
    assert (directory / "late").exists()
    assert amux.cli("ws", "rm", "other").stdout == "removed other\n"
    amux.cli("ws", "rm", "--force", "fix")
    assert list(directory.parent.iterdir()) == []
    assert git(repo, "branch", "--format=%(refname:short)") == "main"


def killed_while_it_makes(amux: Amux, repo: Path, name: str) -> tuple[Path, Path]:
    """Its directory, and the file in which amuxd says that it makes it."""
    amux.cli("ws", "add", name, cwd=repo)
    directory = directory_of(amux, name)
    file = amux.state / f"workspaces/{id_of(amux, name)}.json"
    amux.stop()
    text = file.read_text().replace('"being_made":false', '"being_made":true')
    assert '"being_made":true' in text
    file.write_text(text)
    return directory, file


def spoil(repo: Path) -> Path:
    """git refuses everything in it then."""
    configuration = repo / ".git/config"
    configuration.write_text(configuration.read_text() + "[core\n")
    return configuration


def mend(configuration: Path) -> None:
    configuration.write_text(configuration.read_text().removesuffix("[core\n"))


def test_one_of_which_git_cannot_tell_how_far_it_came_is_listed(amux: Amux, repo: Path) -> None:
    directory, file = killed_while_it_makes(amux, repo, "fix")
    (directory / "work").write_text("mine")
    configuration = spoil(repo)
    amux.start()
    listed = amux.cli("ws", "ls").stdout.splitlines()[1].split("\t")
    assert (listed[0], listed[1], listed[5], listed[7]) == (file.stem, "fix", "being made", str(directory))
    until(lambda: "bad config line" in amux.cli("ws", "show", "fix").stdout)
    for words, told in (
        (("ws", "add", "fix"), "there is a workspace named 'fix' already"),
        (("run", "-w", "fix", "--", "true"), "the workspace fix is not made yet: "),
        (("ws", "rm", "fix"), "fix is not made yet: rm -f puts its file aside"),
    ):
        assert told in amux.cli(*words, cwd=repo.parent, check=False).stderr
    assert file.exists()
    mend(configuration)
    # It is looked at again, and the next amuxd does so at once.
    amux.restart()
    until(lambda: "being made" not in amux.cli("ws", "ls").stdout)
    assert amux.cli("ws", "rm", "fix", check=False).stderr == "amux: fix has 1 untracked file (work)\n"
    assert (directory / "work").read_text() == "mine"


def test_it_is_looked_at_again(amux: Amux, repo: Path) -> None:
    directory, file = killed_while_it_makes(amux, repo, "fix")
    configuration = spoil(repo)
    amux.start()
    until(lambda: "bad config line" in amux.cli("ws", "show", "fix").stdout)
    mend(configuration)
    until(lambda: listed(amux) == [], timeout=60)
    assert not file.exists()
    assert not directory.exists()
    amux.cli("ws", "add", "fix", cwd=repo)


def test_by_force_its_file_is_put_aside_and_its_directory_stays(amux: Amux, repo: Path) -> None:
    directory, file = killed_while_it_makes(amux, repo, "fix")
    spoil(repo)
    amux.start()
    until(lambda: "bad config line" in amux.cli("ws", "show", "fix").stdout)
    removed = amux.cli("ws", "rm", "-f", "fix").stdout.splitlines()
    assert [removed[0], removed[2]] == ["removed fix", f"  kept {directory}"]
    assert (directory / "file0").exists()
    assert not file.exists()
    assert listed(amux) == []


def test_one_of_which_nothing_is_left_is_forgotten(amux: Amux, repo: Path) -> None:
    directory, file = killed_while_it_makes(amux, repo, "fix")
    shutil.rmtree(directory)
    repo.rename(repo.with_name("away"))
    amux.start()
    until(lambda: listed(amux) == [])
    assert not file.exists()
