"""Sessions side by side on one repository, on real git, tmux and systemd."""

import json
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.repositories import commit, git, repository
from harness.waiting import until


@pytest.fixture
def repo(amux: Amux, tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def workspace_directory(amux: Amux, name: str) -> Path:
    path = amux.manager.call("GetWorkspace", "s", name)
    return Path(amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace").get("Directory"))


def run_in(amux: Amux, workspace: str, *command: str, **options: Any) -> Session:
    return amux.create(list(command) or ["sleep", "1000"], workspace=workspace, **options)


def test_a_worktree_from_its_making_to_its_removal(amux: Amux, repo: Path) -> None:
    added = amux.cli("ws", "add", "fix", cwd=repo).stdout
    directory = workspace_directory(amux, "fix")
    assert added == f"added fix: {directory}\n"
    assert git(directory, "branch", "--show-current") == "fix"
    listed = amux.cli("ws", "ls").stdout.splitlines()
    assert listed[1].split("\t")[1:3] == ["fix", "fix"]
    started = amux.cli("run", "-w", "fix", "-n", "one", "--", "sh", "-c", "pwd; exec sleep 1000").stdout
    assert started.startswith("started one (")
    assert "fix" in amux.cli("ls", "-w", "fix").stdout.splitlines()[1].split("\t")
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


def test_the_next_in_the_queue(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    first = run_in(amux, "one", name="first")
    refused = amux.cli("run", "-w", "one", "--", "sleep", "1", check=False)
    assert refused.returncode == 4
    assert refused.stderr == f"amux: one has 1 slot, held by first ({first.id})\n"
    assert len(amux.sessions()) == 1
    second = run_in(amux, "one", name="second", queue=True)
    third = run_in(amux, "one", name="third", queue=True)
    assert second.get("Reason") == "waiting for a slot in one (1st)"
    assert third.get("Reason") == "waiting for a slot in one (2nd)"
    amux.restart()
    assert first.wait_state("running") == "running"
    assert (second.state, third.state) == ("created", "created")
    first.stop()
    second.wait_state("running")
    second.call("Kill", "s", "SIGKILL")
    third.wait_state("running")


def configure(amux: Amux, text: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(text)
    amux.manager.call("Reload")


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


def test_a_removal_orphans_what_was_to_run_in_it(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = run_in(amux, "fix", start=False)
    amux.cli("ws", "rm", "fix")
    assert session.state == "orphaned"
    assert session.get("Workspace") == "/"


def test_a_restart_waits_in_the_queue_or_is_refused(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    patient = run_in(amux, "one", "true", name="patient", queue=True)
    patient.wait_state("completed")
    hasty = run_in(amux, "one", "true", name="hasty")
    hasty.wait_state("completed")
    holder = run_in(amux, "one", name="holder")
    refused = amux.cli("restart", "hasty", check=False)
    assert (refused.returncode, hasty.state) == (4, "completed")
    amux.cli("restart", "patient")
    assert (patient.state, patient.get("Reason")) == ("created", "waiting for a slot in one (1st)")
    refused = amux.cli("run", "-w", "one", "--", "true", check=False)
    assert f"held by holder ({holder.id}); waiting before you: patient ({patient.id})" in refused.stderr
    said = amux.cli("run", "-w", "one", "--queue", "-n", "last", "--", "true").stdout
    assert said.endswith("waiting for a slot in one (2nd)\n")
    patient.remove()
    amux.session("last").wait_state("created")
    until(lambda: amux.session("last").get("Reason") == "waiting for a slot in one (1st)")
    assert "1/1 (+1)" in amux.cli("ws", "ls").stdout
    amux.kill()
    amux.start()
    assert holder.wait_state("running") == "running"
    holder.stop()
    amux.session("last").wait_state("completed")
    assert hasty.state == "completed"


def test_many_sessions_for_two_slots_with_kills_in_between(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "two", "--slots", "2", cwd=repo)
    with amux.events() as events:
        waiting = [run_in(amux, "two", "sleep", "0.2", queue=True, name=f"s{n}") for n in range(10)]
        events.wait(lambda e: e.member == "SessionExited")
        amux.kill()
        amux.start()
        for session in waiting:
            session.wait_state("completed", timeout=60)
    moments: list[tuple[int, int, str]] = []
    for number, session in enumerate(waiting):
        for at, _, _, new, _, _ in session.call("History"):
            if new in ("starting", "completed"):
                moments.append((at, number, new))
    live = 0
    for _, _, new in sorted(moments):
        live += 1 if new == "starting" else -1
        assert live <= 2
    begun = [number for _, number, new in sorted(moments) if new == "starting"]
    assert begun == list(range(10))
    assert "0/2" in amux.cli("ws", "ls").stdout


def test_a_restart_that_waits_goes_on_waiting_under_the_next_amuxd(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    again = run_in(amux, "one", "sh", "-c", "sleep 0.2", name="again", queue=True)
    again.wait_state("completed")
    holder = run_in(amux, "one", name="holder")
    amux.cli("restart", "again")
    assert (again.state, again.get("Run")) == ("created", 2)
    amux.stop()
    (file,) = (amux.state / "workspaces").glob("*.json")
    text = file.read_text()
    # Nobody can say whose its slot is, so nobody gets it.
    for written in (text.replace('"schema":1', '"schema":99'), text):
        file.write_text(written)
        amux.start()
        assert holder.wait_state("running") == "running"
        assert (again.state, again.get("Run")) == ("created", 2)
        amux.stop()
    amux.start()
    amux.cli("stop", "holder")
    again.wait_state("completed")
    assert again.get("Run") == 2


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
    listed = amux.cli("ws", "ls").stdout.splitlines()[1].split("\t")
    assert (listed[0], listed[1], listed[5], listed[7]) == (file.stem, "fix", "not readable", str(directory))
    shown = amux.cli("ws", "show", "fix").stdout
    assert "Problem:     not readable: " in shown
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
    assert amux.cli("ws", "ls").stdout == ""
    assert (session.state, session.get("WorkspaceName")) == ("running", "")


def test_what_is_not_there_is_told_apart(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    amux.cli("ws", "add", "gone", cwd=repo)
    (tmp_path / "given").mkdir()
    amux.cli("ws", "add", "given", "--path", str(tmp_path / "given"))
    (tmp_path / "given").rmdir()
    workspace_directory(amux, "gone").rename(tmp_path / "moved")
    repo.rename(tmp_path / "elsewhere")
    listed = [line.split("\t") for line in amux.cli("ws", "ls").stdout.splitlines()[1:]]
    assert {fields[1]: fields[5] for fields in listed} == {
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


def test_amuxd_is_killed_while_it_makes_one(amux: Amux, repo: Path) -> None:
    def killed_meanwhile() -> None:
        (file,) = (amux.state / "workspaces").glob("*.json")
        amux.stop()
        file.write_text(file.read_text().replace('"being_made":false', '"being_made":true'))

    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    killed_meanwhile()
    amux.start()
    assert amux.cli("ws", "ls").stdout == ""
    until(lambda: git(repo, "branch", "--format=%(refname:short)") == "main")
    until(lambda: not amux.cli("ws", "add", "fix", cwd=repo, check=False).returncode)
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


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_git_ignores_is_taken_along_when_that_is_said(amux: Amux, repo: Path, force: list[str]) -> None:
    (repo / ".git/info/exclude").write_text("*.env\n")
    amux.cli("ws", "add", "fix", cwd=repo)
    (workspace_directory(amux, "fix") / "a.env").write_text("KEY=1")
    assert "Ignored:     a.env" in amux.cli("ws", "show", "fix").stdout
    refused = amux.cli("ws", "rm", "fix", check=False)
    told = "amux: fix has 1 file that git ignores (a.env); --ignored takes these along\n"
    assert (refused.returncode, refused.stderr) == (4, told)
    told = "fix: throwing away 1 file that git ignores (a.env)\nremoved fix\n"
    assert amux.cli("ws", "rm", "--ignored", *force, "fix").stdout == told


def test_a_removal_by_force_that_is_refused_throws_nothing_away_and_ends_nothing(
    amux: Amux, repo: Path
) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    session = run_in(amux, "fix")
    repository(directory / "nested")
    (directory / "new").write_text("work")
    refused = amux.cli("ws", "rm", "--force", "fix", check=False)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr.endswith("take that away first\n")
    assert session.state == "running"
    (directory / "nested").rename(directory.with_name("saved"))
    removed = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    assert removed == [
        "fix: throwing away what sleep does (running): it is stopped",
        "fix: throwing away 1 untracked file (new)",
        "removed fix",
    ]
    assert session.wait_state("orphaned", "stopped") in ("orphaned", "stopped")


def test_what_is_mounted_in_it_is_not_emptied(amux: Amux, repo: Path) -> None:
    (repo / ".git/info/exclude").write_text("/data\n")
    amux.cli("ws", "add", "fix", cwd=repo)
    data = workspace_directory(amux, "fix") / "data"
    data.mkdir()
    amux.machine.run(["mount", "-t", "tmpfs", "tmpfs", data])
    try:
        amux.machine.run(["touch", data / "precious"])
        for force in ((), ("--force",)):
            refused = amux.cli("ws", "rm", *force, "fix", check=False)
            assert refused.returncode == 4
            assert f"mount in it, {data}" in refused.stderr
        amux.machine.run(["test", "-e", data / "precious"])
    finally:
        amux.machine.run(["umount", data])
    amux.cli("ws", "rm", "fix")


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
    amux.cli("ws", "rm", "outer")
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


def test_a_removal_that_the_disk_did_not_take_is_finished_later(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", cwd=repo)
    directory = workspace_directory(amux, "one")
    amux.machine.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", amux.state / "workspaces"])
    try:
        refused = amux.cli("ws", "rm", "one", check=False)
    finally:
        amux.machine.run(["umount", amux.state / "workspaces"])
    assert refused.returncode == 1
    assert "the workspace one is not forgotten" in refused.stderr
    assert not directory.exists()
    amux.restart()
    assert "missing" in amux.cli("ws", "ls").stdout
    amux.cli("ws", "rm", "one")
    assert amux.cli("ws", "ls").stdout == ""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A repository that is reached over the network, and the address of it."""
    there = repository(tmp_path / "served/code")
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(there, "config", setting, "true")
    serve = ["git", "daemon", "--inetd", "--export-all", f"--base-path={there.parent}", str(there.parent)]

    def answer(connection: socket.socket) -> None:
        with connection:
            subprocess.run(serve, stdin=connection, stdout=connection, check=False)

    def listen() -> None:
        with suppress(OSError):
            while True:
                pool.submit(answer, listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        pool.submit(listen)
        try:
            yield f"git://127.0.0.1:{listener.getsockname()[1]}/code"
        finally:
            # Whoever waits in accept hears of this, and not of the end of the descriptor.
            listener.shutdown(socket.SHUT_RDWR)


def test_what_a_partial_clone_lacks_is_fetched(amux: Amux, served: str, tmp_path: Path) -> None:
    """git asks the network for the files that it checks out, from within amuxd's own confinement."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", served, str(clone))
    assert "?" in git(clone, "rev-list", "--objects", "--all", "--missing=print")
    amux.cli("ws", "add", "fix", cwd=clone)
    assert (workspace_directory(amux, "fix") / "file0").read_text().startswith("0\n")


def test_a_filter_is_found_where_the_caller_finds_it(amux: Amux, repo: Path, tmp_path: Path) -> None:
    commit(repo, ".gitattributes", "*.txt filter=mine\n")
    commit(repo, "some.txt", "stored\n")
    git(repo, "config", "filter.mine.smudge", "my-filter")
    git(repo, "config", "filter.mine.clean", "my-filter --clean")
    git(repo, "config", "filter.mine.required", "true")
    program = tmp_path / "bin/my-filter"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncase $1 in --clean) sed s/shown/stored/;; *) sed s/stored/shown/;; esac\n")
    program.chmod(0o755)
    refused = amux.cli("ws", "add", "fix", cwd=repo, check=False)
    assert refused.returncode == 2
    assert "smudge filter mine failed" in refused.stderr
    assert git(repo, "branch", "--list", "fix") == ""
    amux.cli("ws", "add", "fix", cwd=repo, env={"PATH": f"{program.parent}:{amux.environment['PATH']}"})
    file = workspace_directory(amux, "fix") / "some.txt"
    assert file.read_text() == "shown\n"
    # What is asked later, by whomever, finds it as well.
    file.touch()
    assert amux.cli("ws", "ls").stdout.splitlines()[1].split("\t")[5] == "-"
    program.rename(tmp_path / "bin/elsewhere")
    listed, shown = (amux.cli("ws", *words).stdout for words in (["ls"], ["show", "fix"]))
    assert listed.splitlines()[1].split("\t")[5] == "unknown"
    why = re.escape("some.txt: clean filter 'mine' failed (my-filter --clean: ") + r".*not found\)"
    assert re.search(f"^Problem:     {why}$", shown, re.MULTILINE)
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert re.search(f"^amux: git cannot tell what is in .*: {why}\n$", refused.stderr)
    git(repo, "config", "filter.mine.required", "false")
    told = "git could not run my-filter --clean, and may count files as changed that are not"
    assert amux.cli("ws", "ls").stdout.splitlines()[1].split("\t")[5] == "1 uncommitted (uncertain)"
    assert f"Problem:     {told}" in amux.cli("ws", "show", "fix").stdout
    refused = amux.cli("ws", "rm", "fix", check=False)
    assert (refused.returncode, refused.stderr) == (
        4,
        f"amux: fix has 1 file with uncommitted changes (some.txt); {told}\n",
    )
    (tmp_path / "bin/elsewhere").rename(program)
    assert amux.cli("ws", "rm", "fix").stdout == "removed fix\n"


def test_a_filter_that_is_compiled_as_it_runs(amux: Amux, repo: Path, tmp_path: Path) -> None:
    """As those of node are: it needs memory that it may write to and run."""
    program = tmp_path / "filter.py"
    program.write_text("import mmap, os\nmmap.mmap(-1, 4096, prot=7)\nos.execvp('cat', ['cat'])\n")
    commit(repo, ".gitattributes", "*.txt filter=mine\n")
    commit(repo, "some.txt", "stored\n")
    for way in ("smudge", "clean"):
        git(repo, "config", f"filter.mine.{way}", f"{sys.executable} {program}")
    git(repo, "config", "filter.mine.required", "true")
    amux.cli("ws", "add", "fix", cwd=repo)
    assert (workspace_directory(amux, "fix") / "some.txt").read_text() == "stored\n"


def test_a_repository_that_a_group_shares(amux: Amux, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    git(tmp_path / "code", "init", "-q", "-b", "main", "--shared=group")
    commit(tmp_path / "code", "file0")
    amux.cli("ws", "add", "fix", cwd=tmp_path / "code")
    amux.cli("ws", "rm", "fix")


def test_files_are_as_open_as_the_caller_makes_them(amux: Amux, repo: Path) -> None:
    """Where nobody says how open, it is the umask of the user's manager that counts."""

    def mode(name: str) -> int:
        return stat.S_IMODE((workspace_directory(amux, name) / "file0").stat().st_mode)

    def by_caller(umask: str, *words: str) -> str:
        return amux.machine.run(
            ["sh", "-c", f'umask {umask}; exec "$@"', "sh", amux.bindir / "amux", *words],
            env=amux.environment,
            cwd=repo,
        ).stdout

    configure(amux, '[workspaces]\nsetup = "umask"\n')
    by_caller("002", "ws", "add", "open", "--allow-setup")
    assert mode("open") == 0o664
    by_caller("027", "run", "-w", "made", "--create", "--wait", "--", "true")
    assert mode("made") == 0o640
    for name, umask in (("open", "0002"), ("made", "0027")):
        session = next(key for key, s in amux.sessions().items() if s["Name"] == f"set-up of {name}")
        assert amux.session(session).log().strip() == umask
    amux.manager.call("AddWorkspace", "sa{sv}", "plain", {"repo": ("s", str(repo))})
    manager = amux.machine.run(["sh", "-c", "umask"]).stdout
    assert mode("plain") == 0o666 & ~int(manager, 8)
    with pytest.raises(CallFailed, match="umask must be from 0 to 0777, not 0o1000"):
        amux.manager.call(
            "AddWorkspace", "sa{sv}", "wrong", {"repo": ("s", str(repo)), "umask": ("u", 0o1000)}
        )


def test_amuxd_ends_though_git_is_at_work(amux: Amux, repo: Path, tmp_path: Path) -> None:
    """One checks a file out that takes for ever, another asks how a worktree stands, which takes as long."""
    commit(repo, ".gitattributes", "*.slow filter=slow\n")
    commit(repo, "some.slow", "stored\n")
    amux.cli("ws", "add", "here", cwd=repo)
    (workspace_directory(amux, "here") / "some.slow").write_text("changed")
    for way in ("smudge", "clean"):
        git(repo, "config", f"filter.slow.{way}", f"touch {tmp_path}/{way}; sleep 1000; cat")
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(amux.cli, "ws", *words, cwd=repo, check=False)
            for words in (["add", "slow"], ["show", "here"])
        ]
        until(lambda: (tmp_path / "smudge").exists() and (tmp_path / "clean").exists())
        began = time.monotonic()
        amux.stop()
        # systemd would kill it after thirty seconds.
        assert time.monotonic() - began < 15
        assert [done.result().returncode != 0 for done in asked] == [True, True]
    assert amux.machine.systemctl("show", "--property=Result", "--value", "amuxd.service") == "success"
    for way in ("smudge", "clean"):
        git(repo, "config", "--unset", f"filter.slow.{way}")
    amux.start()
    until(lambda: git(repo, "branch", "--format=%(refname:short)").split() == ["here", "main"])
    until(lambda: not amux.cli("ws", "add", "slow", cwd=repo, check=False).returncode)


def test_what_is_stopped_by_force_is_said_first(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = amux.create(["sleep", "1000"], name="one", workspace="fix")
    told = amux.cli("ws", "rm", "--force", "fix").stdout.splitlines()
    assert told == ["fix: throwing away what one does (running): it is stopped", "removed fix"]
    assert session.state != "running"


def test_one_whose_directory_is_gone_has_its_branch_and_its_commit_once(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    directory = workspace_directory(amux, "fix")
    commit(directory, "new")
    shutil.rmtree(directory)
    shown = amux.cli("ws", "show", "fix").stdout
    assert f"Problem:     {directory} does not exist" in shown
    assert "Branch:      fix\n" in shown
    assert "(detached)" not in amux.cli("ws", "ls").stdout
    kept = [line for line in amux.cli("ws", "rm", "--force", "fix").stdout.splitlines() if "kept" in line]
    assert len(kept) == len(set(kept)) == 1
