"""Sessions side by side on one repository, on real git, tmux and systemd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux
from harness.loaded import LOADED, WITH_CLICK
from harness.repositories import commit, git
from harness.waiting import until
from workspace_fixtures import (
    configure,
    listed,
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


def test_a_list_by_its_name_alone_is_the_one_that_click_gives_and_does_without_click(
    amux: Amux, repo: Path
) -> None:
    for name in ("clean", "dirty", "missing"):
        amux.cli("ws", "add", name, cwd=repo)
    (workspace_directory(amux, "dirty") / "new").write_text("work")
    shutil.rmtree(workspace_directory(amux, "missing"))

    def out_and_err(script: str, *arguments: str) -> tuple[str, str]:
        finished = amux.machine.run([sys.executable, "-c", script, *arguments], env=amux.environment)
        return finished.stdout, finished.stderr

    for arguments in (["ws", "ls"], ["ws", "ls", "--json"]):
        out, loaded = out_and_err(LOADED, *arguments)
        assert "1 untracked" in out or '"untracked": [\n      "new"\n    ]' in out
        assert "missing" in out
        assert "amuxd.cli.way_out" in loaded.split()
        assert not {"click", "pathlib"} & set(loaded.split())
        assert out_and_err(WITH_CLICK, *arguments) == (out, "")


def test_json_of_a_list_has_what_its_help_says(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    [listed] = json.loads(amux.cli("ws", "ls", "--json").stdout)
    shown = json.loads(amux.cli("ws", "show", "fix", "--json").stdout)
    not_asked_of_each = {"stashes", "operation", "unpushed", "ignored", "lost"}
    assert shown.keys() - listed.keys() > not_asked_of_each
    assert "A list of objects, with what git status says of each." in amux.cli("ws", "ls", "--help").stdout
    assert "One object, with every property." in amux.cli("ws", "show", "--help").stdout


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
    [one] = json.loads(amux.cli("ws", "ls", "--json").stdout)
    assert refused.stderr.startswith("amux: nobody has allowed 'cat .env' in ")
    assert refused.stderr.endswith(f"\n      amux ws setup --allow {one['id']}\n")
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
    assert failed.stdout.splitlines()[0] == f"added four: {here}/code/four"
    assert "  broken\n" in failed.stderr
    assert "the set-up of four failed: exited with code 3\n" in failed.stderr
    failed = amux.cli("run", "-w", "five", "--create", "-n", "none", "--", "true", cwd=repo, check=False)
    assert failed.returncode == 1
    why = "the set-up of five failed: exited with code 3"
    assert f"amux: {why}; five was made, and the command was not started\n" in failed.stderr
    assert "none" not in amux.cli("ls").stdout
    listed = json.loads(amux.cli("ws", "ls", "--json").stdout)
    assert [workspace["name"] for workspace in listed] == ["one", "two", "four", "five"]


def test_names_of_workspaces_are_completed(amux: Amux, repo: Path) -> None:
    for name in ("fix", "fine", "other"):
        amux.cli("ws", "add", name, cwd=repo)
    amux.create(["sleep", "1000"], name="fish")

    def completed(words: str) -> set[str]:
        asked = {"_AMUX_COMPLETE": "bash_complete", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(len(words.split()) - 1)
        return set(amux.cli(env=asked).stdout.split())

    for before in ("ws rm", "ws rm other", "ws show", "ws setup", "run -w", "ls -w"):
        assert completed(f"amux {before} fi") == {"plain,fix", "plain,fine"}, before
    [identifier] = [w["id"] for w in json.loads(amux.cli("ws", "ls", "--json").stdout) if w["name"] == "fix"]
    assert completed(f"amux ws rm {identifier[:4]}") == {f"plain,{identifier}"}


def test_on_the_bus_what_is_empty_counts_as_not_given(amux: Amux, repo: Path) -> None:
    options = {"repo": ("s", str(repo)), "path": ("s", ""), "branch": ("s", ""), "base": ("s", "")}
    amux.manager.call("AddWorkspace", "sa{sv}", "fix", options)
    assert git(workspace_directory(amux, "fix"), "branch", "--show-current") == "fix"
    session = run_in(amux, "")
    assert session.get("WorkspaceName") == ""
    assert list(amux.sessions(workspace=("s", ""))) == [session.id]
    assert amux.sessions(workspace=("s", "fix")) == {}


def test_where_a_name_is_too_long_nothing_is_made(amux: Amux, repo: Path, tmp_path: Path) -> None:
    for long in (tmp_path / ("x" * 300), tmp_path / "/".join(["x" * 200] * 30)):
        configure(amux, f'[workspaces]\ndirectory = "{long}"\n')
        refused = amux.cli("ws", "add", "fix", cwd=repo, check=False)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[0] == f"amux: {long}/code cannot be made: File name too long"
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    assert len(amux.cli("ws", "ls").stdout.splitlines()) == 1


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
    assert told("ws", "add", "fix", "--base", "main..main") == (2, "'main..main' is not one commit")
    assert told("ws", "add", "fix", "--branch", "a\nb") == (2, r"'a\nb' is no name for a branch")
    outside = amux.cli("ws", "add", "x", check=False, cwd=tmp_path)
    assert outside.returncode == 2
    assert outside.stderr.startswith(f"amux: {tmp_path} is in no git repository: amux ws add --repo DIR ")
    (tmp_path / "gone").mkdir()
    script = 'cd "$1"; rmdir "$1"; shift; exec "$@"'
    command = ["sh", "-c", script, "sh", str(tmp_path / "gone"), str(amux.bindir / "amux"), "ws", "add", "x"]
    gone = amux.machine.run(command, check=False, env=amux.environment)
    hint = "\n      amux ws add --repo DIR x\n"
    assert (gone.returncode, gone.stderr) == (2, f"amux: this directory no longer exists{hint}")
    assert listed(amux) == []
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
    until(lambda: listed(amux) == [])
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
    assert listed(amux) == []


def test_a_person_is_asked_before_a_set_up_command_runs(amux: Amux, repo: Path) -> None:
    configure(amux, '[workspaces]\nsetup = "touch done"\n')
    with amux.terminal("ws", "add", "--repo", str(repo), "no") as terminal:
        terminal.expect("added no")
        terminal.expect("Run 'touch done' in it")
        terminal.type("n\r")
        terminal.wait()
    assert not (workspace_directory(amux, "no") / "done").exists()
    with amux.terminal("ws", "add", "--repo", str(repo), "yes") as terminal:
        terminal.expect("added yes")
        terminal.expect("Run 'touch done' in it")
        terminal.type("y\r")
        terminal.wait()
    assert (workspace_directory(amux, "yes") / "done").exists()
    # The set-up's own file is work of nobody's knowledge: it is told like any other.
    assert "1 untracked file (done)" in amux.cli("ws", "rm", "yes", check=False).stderr


def test_a_set_up_that_waits_for_a_slot_says_so(amux: Amux, repo: Path) -> None:
    configure(amux, '[workspaces]\nsetup = "true"\n')
    amux.cli("ws", "add", "--no-setup", "--slots", "1", "one", cwd=repo)
    holder = run_in(amux, "one")
    process = amux.popen("ws", "setup", "--allow", "one", stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "setting up one, waiting for a slot in one (1st): true\n"
    holder.stop()
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    ("output", "why"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")],
)
def test_what_was_made_and_removed_is_told_also_where_it_cannot_be_printed(
    amux: Amux, repo: Path, output: str, why: str
) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        command = ["sh", "-c", f'"$@" {output}', "sh", str(amux.bindir / "amux"), "ws", *arguments]
        done = amux.machine.run(command, check=False, env=amux.environment, cwd=repo)
        return done.returncode, done.stderr

    unsaid = f", and that cannot be printed: {why}\n"
    configure(amux, '[workspaces]\nsetup = "true"\n')
    code, err = told("add", "--allow-setup", "one")
    here = workspace_directory(amux, "one")
    assert (code, err) == (1, f"amux: added one: {here}{unsaid}amux: setting up one: true{unsaid}")
    assert amux.cli("ws", "add", "two", "--no-setup", cwd=repo).stdout
    none = "amux: there is no workspace 'none'\n      amux ws ls\n"
    assert told("rm", "one", "none", "two") == (
        1,
        f"amux: removed one{unsaid}{none}amux: removed two{unsaid}",
    )
    assert listed(amux) == []


def test_nobody_who_reads_what_was_made_and_removed_is_quiet(amux: Amux, repo: Path) -> None:
    def ends_of(*arguments: str) -> tuple[int, str]:
        reading, writing = os.pipe()
        os.close(reading)
        process = amux.popen("ws", *arguments, cwd=repo, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    assert ends_of("add", "fix") == (141, "")
    assert ends_of("rm", "fix") == (141, "")
    assert listed(amux) == []
