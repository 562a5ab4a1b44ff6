"""Workspaces whose file, directory, repository or disk cannot be read or written."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import json
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux
from harness.repositories import git
from workspace_fixtures import (
    listed,
    repo,  # noqa: F401
    run_in,
    workspace_directory,
)

from amuxd import addresses


def test_a_file_that_cannot_be_read_is_left_as_it_is(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = run_in(amux, "fix", "true", name="one")
    session.wait_state("completed")
    session.certificate()
    (file,) = (amux.state / "workspaces").glob("*.json")
    amux.stop()
    text = file.read_text().replace('"schema":1', '"schema":99')
    file.write_text(text)
    (amux.state / "allowed.json").write_text("{")
    amux.start()
    refused = amux.cli("restart", "one", check=False)
    assert "the workspace of one cannot be read" in refused.stderr
    assert amux.create(["true"]).wait_state("completed") == "completed"
    assert file.read_text() == text
    messages = [str(entry["MESSAGE"]) for entry in amux.journal()]
    assert any("is left as it is" in message for message in messages)
    assert any("no set-up command counts as allowed" in message for message in messages)


@pytest.mark.parametrize("damage", ["newer", "cut short"])
def test_one_that_cannot_be_read_is_shown_and_keeps_its_name(amux: Amux, repo: Path, damage: str) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    session = run_in(amux, "fix", name="one")
    (file,) = (amux.state / "workspaces").glob("*.json")
    amux.stop()
    text = file.read_text().replace('"schema":1', '"schema":99')
    text = text if damage == "newer" else text[: text.index('"created_at"')]
    file.write_text(text)
    amux.start()
    [line] = listed(amux)
    fields = line.split("\t")
    assert (fields[0], fields[1], fields[5], fields[7]) == (file.stem, "fix", "not readable", str(directory))
    shown = amux.cli("ws", "show", "fix").stdout
    assert "Problem:     not readable: " in shown
    where = f"{addresses.WORKSPACES_PATH}/{file.stem}"
    status = amux.bus.proxy(addresses.BUS_NAME, where, addresses.WORKSPACE_INTERFACE).call("Status")
    assert status["presence"] == ("s", "unknown")
    assert "Created" not in shown
    assert f"one ({session.id}) running" in shown
    assert [s["name"] for s in json.loads(amux.cli("ls", "-w", "fix", "--json").stdout)] == ["one"]
    assert session.get("WorkspaceName") == "fix"
    for words, told in (
        (("ws", "add", "fix"), "there is a workspace named 'fix' already"),
        (("ws", "add", "other", "--path", str(directory)), f"{directory} is the workspace fix already"),
        (("run", "-w", "fix", "--", "true"), "the workspace fix cannot be read: "),
        (("run", "-w", "fix", "--create", "--", "true"), "the workspace fix cannot be read: "),
        (("ws", "setup", "fix"), "fix cannot be read, and so nothing is done in it"),
        (("ws", "rm", "fix"), "fix cannot be read: rm -f puts its file aside"),
    ):
        refused = amux.cli(*words, cwd=repo, check=False)
        assert refused.returncode != 0
        assert told in refused.stderr
    assert file.read_text() == text
    removed = amux.cli("ws", "rm", "-f", "fix").stdout.splitlines()
    assert [removed[0], removed[2]] == ["removed fix", f"  kept {directory}"]
    assert Path(removed[1].removeprefix("  kept its file, in ")).read_text() == text
    assert (directory / "file0").exists()
    assert listed(amux) == []
    assert (session.state, session.get("WorkspaceName")) == ("running", "")


def test_what_is_not_there_is_told_apart(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    amux.cli("ws", "add", "gone", cwd=repo)
    (tmp_path / "given").mkdir()
    amux.cli("ws", "add", "given", "--path", str(tmp_path / "given"))
    (tmp_path / "given").rmdir()
    workspace_directory(amux, "gone").rename(tmp_path / "moved")
    repo.rename(tmp_path / "elsewhere")
    lines = [line.split("\t") for line in listed(amux)]
    assert {fields[1]: fields[5] for fields in lines} == {
        "fix": "no repository",
        "gone": "missing",
        "given": "missing",
    }
    shown = amux.cli("ws", "show", "fix").stdout
    assert f"Problem:     its repository {repo} does not exist" in shown
    assert "Problem:     " in amux.cli("ws", "show", "given").stdout
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert refused.returncode == 4
    assert "git cannot tell what is in" in refused.stderr


def test_a_full_disk_refuses_and_leaves_nothing(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    session = run_in(amux, "one", start=False)
    amux.machine.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", amux.state / "workspaces"])
    try:
        for arguments in (["run", "-w", "one", "--", "true"], ["ws", "add", "two"]):
            refused = amux.cli(*arguments, cwd=repo, check=False)
            assert refused.returncode == 1, refused.stderr
        with pytest.raises(CallFailed, match="gets no slot"):
            session.call("Start")
    finally:
        amux.machine.run(["umount", amux.state / "workspaces"])
    assert list(amux.sessions()) == [session.id]
    assert git(repo, "branch", "--format=%(refname:short)").split() == ["main", "one"]
    session.call("Start")
    assert session.state == "running"
