"""What a repository asks of git and of those around it, from within amuxd: fetching, filters, modes, time."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux
from harness.repositories import add_waiting_hook, commit, git, repository
from harness.waiting import until
from workspace_fixtures import (
    configure,
    repo,  # noqa: F401
    workspace_directory,
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A repository that is reached over the network, and the address of it."""
    there = repository(tmp_path / "served/code")
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(there, "config", setting, "true")
    serve = ["git", "daemon", "--inetd", "--export-all", f"--base-path={there.parent}", str(there.parent)]

    def answer(connection: socket.socket) -> None:
        with connection:
            subprocess.run(serve, stdin=connection.fileno(), stdout=connection.fileno(), check=False)

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
    assert refused.returncode == 1
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


def test_a_checkout_goes_on_without_who_asked_for_it(amux: Amux, repo: Path, tmp_path: Path) -> None:
    commit(repo, ".gitattributes", "*.slow filter=slow\n")
    commit(repo, "some.slow", "stored\n")
    os.mkfifo(tmp_path / "go")
    git(repo, "config", "filter.slow.smudge", f"touch {tmp_path}/reached; read _ <{tmp_path}/go; cat")
    adding = amux.popen("ws", "add", "fix", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until((tmp_path / "reached").exists)
    adding.send_signal(signal.SIGINT)
    told = "amux: fix may be made all the same\n      amux ws show fix\n"
    assert adding.communicate(timeout=30) == ("", told)
    assert adding.returncode == 130
    (tmp_path / "go").write_text("\n")
    until(lambda: "fix" in amux.cli("ws", "ls").stdout)
    assert (workspace_directory(amux, "fix") / "some.slow").read_text() == "stored\n"


def test_a_removal_goes_on_without_who_asked_for_it(amux: Amux, repo: Path, tmp_path: Path) -> None:
    commit(repo, ".gitattributes", "*.slow filter=slow\n")
    commit(repo, "some.slow", "stored\n")
    amux.cli("ws", "add", "fix", cwd=repo)
    (workspace_directory(amux, "fix") / "some.slow").touch()
    os.mkfifo(tmp_path / "go")
    git(repo, "config", "filter.slow.clean", f"echo >>{tmp_path}/reached; read _ <{tmp_path}/go; cat")
    removing = amux.popen("ws", "rm", "fix", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until((tmp_path / "reached").exists)
    git(repo, "config", "--unset", "filter.slow.clean")
    removing.send_signal(signal.SIGINT)
    told = "amux: fix may be removed all the same\n      amux ws ls\n"
    assert removing.communicate(timeout=30) == ("", told)
    assert removing.returncode == 130
    (tmp_path / "go").write_text("\n")
    until(lambda: "fix" not in amux.cli("ws", "ls").stdout)


def test_one_that_is_being_made_is_told_as_that(amux: Amux, repo: Path, tmp_path: Path) -> None:
    commit(repo, ".gitattributes", "*.slow filter=slow\n")
    commit(repo, "some.slow", "stored\n")
    os.mkfifo(tmp_path / "go")
    git(repo, "config", "filter.slow.smudge", f"touch {tmp_path}/reached; read _ <{tmp_path}/go; cat")
    adding = amux.popen("ws", "add", "fix", cwd=repo, stdout=subprocess.DEVNULL)
    until((tmp_path / "reached").exists)
    for words, code, told in (
        (("ws", "show", "fix"), 3, "the workspace 'fix' is just being made"),
        (("ws", "rm", "fix"), 3, "the workspace 'fix' is just being made"),
        (("run", "-w", "fix", "--", "true"), 3, "the workspace 'fix' is just being made"),
        (("ws", "add", "fix"), 1, "a workspace named 'fix' is just being made"),
    ):
        refused = amux.cli(*words, cwd=repo, check=False)
        assert (refused.returncode, refused.stderr.splitlines()[0]) == (code, f"amux: {told}")
    running = amux.popen("run", "-w", "fix", "--create", "--", "true", cwd=repo, stdout=subprocess.DEVNULL)
    (tmp_path / "go").write_text("\n")
    assert [running.wait(30), adding.wait(30)] == [0, 0]
    assert "fix" in amux.cli("ws", "show", "fix").stdout


def test_who_waits_long_for_git_is_told_so_once(amux: Amux, repo: Path, tmp_path: Path) -> None:
    amux.cli("ws", "add", "old", cwd=repo)
    reached, go = add_waiting_hook(repo, tmp_path)

    said = [tmp_path / f"said{number}" for number in range(4)]

    def begin(*words: str) -> subprocess.Popen[str]:
        with said[len(waiting)].open("w") as stderr:
            return amux.popen(*words, cwd=repo, stdout=subprocess.DEVNULL, stderr=stderr)

    waiting: list[subprocess.Popen[str]] = []
    waiting.append(begin("ws", "add", "first"))
    until(reached.exists)
    for words in (["ws", "rm", "old"], *(["run", "-w", w, "--create", "true"] for w in ("second", "first"))):
        waiting.append(begin(*words))
    told = "makes and removes the worktrees of a repository one after the other"
    until(lambda: all(told in file.read_text() for file in said))
    go.write_text("\n")
    assert [process.wait(60) for process in waiting] == [0] * 4
    for file in said:
        (line,) = file.read_text().splitlines()
        assert line.startswith("amux: still waiting")
        assert "git" in line


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


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_a_question_is_asked_of_the_next_amuxd(amux: Amux, repo: Path, tmp_path: Path, way: str) -> None:
    commit(repo, ".gitattributes", "*.slow filter=slow\n")
    commit(repo, "some.slow", "stored\n")
    amux.cli("ws", "add", "here", cwd=repo)
    (workspace_directory(amux, "here") / "some.slow").write_text("changed")
    git(repo, "config", "filter.slow.clean", f"echo >>{tmp_path}/reached; sleep 1000; cat")
    asking = [
        amux.popen("ws", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in (["ls"], ["show", "here"])
    ]
    until(lambda: (tmp_path / "reached").exists() and (tmp_path / "reached").read_text().count("\n") == 2)
    git(repo, "config", "--unset", "filter.slow.clean")
    getattr(amux, way)()
    for question in asking:
        out, err = question.communicate(timeout=60)
        assert (question.returncode, err) == (0, "")
        assert "some.slow" in out or "1 uncommitted" in out
