"""Sessions side by side on one repository, on real git, tmux and systemd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import json
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux
from harness.repositories import commit, git
from harness.waiting import until
from workspace_fixtures import (
    configure,
    repo,  # noqa: F401
    run_in,
    workspace_directory,
)


def test_a_worktree_from_its_making_to_its_removal(amux: Amux, repo: Path) -> None:
    added = amux.cli("ws", "add", "fix", cwd=repo).stdout
    directory = workspace_directory(amux, "fix")
    assert added == f"added fix: {directory}\n"
    assert git(directory, "branch", "--show-current") == "fix"
    listed = amux.cli("ws", "ls").stdout.splitlines()
    assert listed[1].split("\t")[1:3] == ["fix", "fix"]
    started = amux.cli("run", "-w", "fix", "-n", "one", "--", "sh", "-c", "pwd; exec sleep 1000").stdout
    assert started.startswith("started one (")
    amux.create(["sleep", "1000"], name="outside")
    (_, listed_in_it) = amux.cli("ls", "-w", "fix").stdout.splitlines()
    assert {"one", "fix"} <= set(listed_in_it.split("\t"))
    assert [session["name"] for session in json.loads(amux.cli("ls", "-w", "fix", "--json").stdout)] == [
        "one"
    ]
    rung = amux.create(["printf", r"\a"], workspace="fix", shell=True, name="rung")
    until(lambda: rung.get("ShellOpen"))
    assert f"rung ({rung.id}) completed (shell open)" in amux.cli("ws", "show", "fix").stdout
    amux.cli("rm", "-f", "rung")
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert (refused.returncode, refused.stderr) == (4, "amux: fix has live sessions: one (running)\n")
    amux.cli("stop", "one")
    (directory / "new").write_text("work")
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert (refused.returncode, refused.stderr) == (4, "amux: fix has 1 untracked file (new)\n")
    commit(directory, "new")
    shown = amux.cli("ws", "show", "fix").stdout
    assert "Unpushed:    1 commit on no other branch and no remote" in shown
    assert "Sessions:    one (" in shown
    forced = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    assert forced[:2] == ["fix: throwing away 1 commit on no other branch and no remote", "removed fix"]
    kept = forced[2].split()[1]
    assert git(repo, "show", f"{kept}:new") == "more"
    assert not directory.exists()
    assert git(repo, "branch", "--format=%(refname:short)") == "main"


def test_a_directory_that_no_session_works_in_is_shown_as_it_is(amux: Amux, repo: Path) -> None:
    def presence() -> list[str]:
        shown = json.loads(amux.cli("ws", "show", "fix", "--json").stdout)
        (listed,) = json.loads(amux.cli("ws", "ls", "--json").stdout)
        return [shown["presence"], listed["presence"]]

    amux.cli("ws", "add", "fix", cwd=repo)
    assert presence() == ["present", "present"]
    directory = Path(workspace_directory(amux, "fix"))
    directory.rename(directory.with_name("moved"))
    assert presence() == ["gone", "gone"]
    directory.with_name("moved").rename(directory)
    assert presence() == ["present", "present"]


def test_a_workspace_that_is_made_by_run_has_copies_and_is_set_up(amux: Amux, repo: Path) -> None:
    (repo / ".env").write_text("KEY=1")
    here = amux.machine.temporary / "trees"
    places = f'[workspaces]\ndirectory = "{here}"\n'
    configure(amux, f'{places}copy = [".env"]\nsetup = {{ "{repo}" = "cat .env" }}\n')
    told = amux.cli("ws", "add", "one", cwd=repo)
    assert "nobody has allowed" in told.stderr
    assert (here / "code/one/.env").read_text() == "KEY=1"
    refused = amux.cli("ws", "setup", "one", check=False)
    assert refused.returncode == 4
    assert "nobody has allowed" in refused.stderr
    assert "(not allowed yet)" in amux.cli("ws", "show", "one").stdout
    assert "setting up one" in amux.cli("ws", "setup", "one", "--allow").stdout
    # Once is enough, and for every worktree of the repository, by another amuxd too.
    amux.restart()
    told = amux.cli("run", "-w", "two", "--create", "-n", "worker", "--", "cat", ".env", cwd=repo)
    assert [line.split(" ", 2)[0] for line in told.stdout.splitlines()] == ["setting", "started"]
    amux.session("worker").wait_state("completed")
    configure(amux, f'{places}setup = "echo broken; exit 3"\n')
    failed = amux.cli("ws", "add", "--allow-setup", "four", cwd=repo, check=False)
    assert failed.returncode == 1
    assert "  broken\n" in failed.stderr
    assert "the set-up of four failed: exited with code 3" in failed.stderr
    listed = json.loads(amux.cli("ws", "ls", "--json").stdout)
    assert [workspace["name"] for workspace in listed] == ["one", "two", "four"]


def test_what_begins_as_the_id_of_another_is_made_all_the_same(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    [one] = json.loads(amux.cli("ws", "ls", "--json").stdout)
    name = one["id"][:4]
    amux.cli("run", "-w", name, "--create", "-n", "worker", "--", "true", cwd=repo)
    assert amux.session("worker").get("WorkspaceName") == name
    # That of a workspace is its own.
    amux.cli("run", "-w", one["id"], "--create", "-n", "another", "--", "true", cwd=repo)
    assert amux.session("another").get("WorkspaceName") == "one"


def test_what_is_asked_wrongly_leaves_nothing(amux: Amux, repo: Path, tmp_path: Path) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        done = amux.cli(*arguments, check=False, cwd=repo)
        return done.returncode, done.stderr.splitlines()[0].removeprefix("amux: ")

    assert told("run", "-w", "none", "--", "true")[0] == 3
    assert told("ws", "rm", "none") == (3, "there is no workspace 'none'")
    assert told("run", "-w", "x", "-C", "/", "--", "true")[0] == 2
    assert told("run", "--queue", "--", "true") == (2, "--queue needs a workspace")
    assert told("ws", "add", "x", "--path", "/", "--branch", "y")[0] == 2
    assert told("ws", "add", " ", "--path", "/") == (2, "a name must not be empty")
    assert told("ws", "add", "fix", "--base", "nowhere")[0] == 2
    assert amux.cli("ws", "ls").stdout == ""
    amux.cli("ws", "add", "fix", "--path", str(tmp_path))
    assert told("ws", "add", "fix", "--path", "/") == (1, "there is a workspace named 'fix' already")
    assert told("ws", "add", "other", "--path", str(tmp_path))[1].endswith("is the workspace fix already")
    assert told("ws", "setup", "fix")[0] == 2
    with pytest.raises(CallFailed, match="does not lie in the workspace"):
        run_in(amux, "fix", cwd="/")
    with pytest.raises(CallFailed, match="only a session with a workspace"):
        amux.create(["true"], queue=True)
    for options in ({}, {"path": "/x", "repo": "/y"}, {"path": "x"}, {"path": "/nowhere"}, {"repo": "x"}):
        variants = {name: ("s", value) for name, value in options.items()}
        with pytest.raises(CallFailed, match="InvalidArgument"):
            amux.manager.call("AddWorkspace", "sa{sv}", "y", variants)
    with pytest.raises(CallFailed, match="branch and base are for worktrees"):
        amux.manager.call("AddWorkspace", "sa{sv}", "y", {"path": ("s", "/"), "base": ("s", "main")})
    assert amux.sessions() == {}


def test_a_directory_that_was_given_stays_and_can_be_worked_in_below(amux: Amux, tmp_path: Path) -> None:
    real = tmp_path / "real 🌳"
    (real / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    amux.cli("ws", "add", "given", "--path", str(tmp_path / "link"))
    assert workspace_directory(amux, "given") == real
    session = run_in(amux, "given", cwd="below", name="one")
    assert session.get("Directory") == str(real / "below")
    assert session.get("WorkspaceName") == "given"
    with amux.events() as events:
        assert "removed given" in amux.cli("ws", "rm", "--force", "given").stdout
        events.wait(lambda e: e.member == "InterfacesRemoved" and "workspaces" in e.body[0])
    assert (real / "below").is_dir()
    assert (session.state, session.get("Workspace"), session.get("WorkspaceName")) == ("stopped", "/", "")
    amux.cli("restart", "one")
    assert session.state == "running"


def test_amuxd_is_killed_while_it_makes_one(amux: Amux, repo: Path) -> None:
    def killed_meanwhile() -> None:
        (file,) = (amux.state / "workspaces").glob("*.json")
        amux.stop()
        file.write_text(file.read_text().replace('"being_made":false', '"being_made":true'))

    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    killed_meanwhile()
    amux.start()
    until(lambda: amux.cli("ws", "ls").stdout == "")
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    amux.cli("ws", "add", "fix", cwd=repo)
    amux.cli("ws", "rm", "fix")
    assert not directory.exists()
    amux.cli("ws", "add", "fix", cwd=repo)
    killed_meanwhile()
    # Somebody finds it and works in it before amuxd is back.
    (directory / "work").write_text("mine")
    amux.start()
    until(lambda: "fix" in amux.cli("ws", "ls").stdout)
    assert workspace_directory(amux, "fix") == directory
    assert (directory / "work").read_text() == "mine"
    assert amux.cli("ws", "rm", "fix", check=False).returncode == 4


def test_a_workspace_in_a_workspace_and_one_that_is_missing(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "outer", cwd=repo)
    directory = workspace_directory(amux, "outer")
    (directory / "inner").mkdir()
    amux.cli("ws", "add", "inner", "--path", str(directory / "inner"))
    refused = amux.cli("ws", "rm", "outer", check=False)
    assert (refused.returncode, refused.stderr) == (4, "amux: other workspaces lie in outer: inner\n")
    amux.cli("ws", "rm", "inner")
    directory.rename(repo.with_name("elsewhere"))
    assert "missing" in amux.cli("ws", "ls").stdout
    assert f"Problem:     {directory} does not exist" in amux.cli("ws", "show", "outer").stdout
    shown = json.loads(amux.cli("ws", "show", "--json", "outer").stdout)
    assert (shown["name"], shown["error"]) == ("outer", f"{directory} does not exist")
    refused = amux.cli("ws", "rm", "outer", check=False)
    assert refused.returncode == 4
    assert f"{directory} is not there, and nobody can tell what work is in it" in refused.stderr
    amux.cli("ws", "rm", "--force", "outer")
    assert amux.cli("ws", "ls").stdout == ""


def test_a_person_is_asked_before_a_set_up_command_runs(amux: Amux, repo: Path) -> None:
    configure(amux, '[workspaces]\nsetup = "touch done"\n')
    with amux.terminal("ws", "add", "--repo", str(repo), "no") as terminal:
        terminal.expect("Run 'touch done' in it")
        terminal.type("n\r")
        terminal.expect("added no")
    assert not (workspace_directory(amux, "no") / "done").exists()
    with amux.terminal("ws", "add", "--repo", str(repo), "yes") as terminal:
        terminal.expect("Run 'touch done' in it")
        terminal.type("y\r")
        terminal.expect("added yes")
    assert (workspace_directory(amux, "yes") / "done").exists()
    # The set-up's own file is work of nobody's knowledge: it is told like any other.
    assert "1 untracked file (done)" in amux.cli("ws", "rm", "yes", check=False).stderr
