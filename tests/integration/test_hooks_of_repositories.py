"""What a repository's post-checkout hook does when a workspace is made, and what is said where it fails."""

import signal
from pathlib import Path

from harness.daemon import Amux
from harness.repositories import add_hook, add_waiting_hook, git, repository
from harness.waiting import until
from workspace_fixtures import workspace_directory


def test_its_failure_is_shown_and_the_workspace_stays(amux: Amux, tmp_path: Path) -> None:
    repo = repository(tmp_path / "code")
    hook = add_hook(repo, 'umask >"umask of $AMUX_TEST"\necho no lfs here\nexit 3')
    added = amux.cli("ws", "add", "fix", cwd=repo, check=False)
    assert (added.returncode, added.stderr) == (
        1,
        "amux: its post-checkout hook failed with code 3: no lfs here\n",
    )
    directory = Path(added.stdout.removeprefix("added fix: ").strip())
    assert (directory / "umask of ").exists()
    assert amux.create(["true"], workspace="fix").wait_state("completed") == "completed"
    amux.restart()
    shown = amux.cli("ws", "show", "fix").stdout
    assert "Hook:        its post-checkout hook failed with code 3: no lfs here\n" in shown
    shown = amux.cli("ws", "show", "fix", "--json").stdout
    assert '"hook_failure": "its post-checkout hook failed with code 3: no lfs here"' in shown
    run = amux.cli("run", "-w", "new", "--create", "--wait", "--", "true", cwd=repo)
    assert "no lfs here" in run.stderr
    hook.write_text("#!/bin/sh\n")
    assert amux.cli("ws", "add", "quiet", cwd=repo).stderr == ""
    assert "Hook:" not in amux.cli("ws", "show", "quiet").stdout


def test_who_gives_up_before_git_is_free_finds_nothing_made_or_removed_later(
    amux: Amux, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "code")
    amux.cli("ws", "add", "stays", cwd=repo)
    work = workspace_directory(amux, "stays") / "announced"
    work.touch()
    reached, go = add_waiting_hook(repo, tmp_path)
    slow = amux.popen("ws", "add", "slow", cwd=repo)
    until(reached.exists)
    given_up = [amux.popen("ws", *words, cwd=repo) for words in (["add", "late"], ["rm", "-f", "stays"])]
    until(lambda: "just being made" in amux.cli("ws", "show", "late", check=False).stderr)
    until(lambda: "is being removed" in amux.cli("run", "-w", "stays", "true", check=False).stderr)
    for process in given_up:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    work.with_name("made since").touch()
    go.write_text("\n")
    assert slow.wait(60) == 0
    # Each takes its turn after those that gave up.
    amux.cli("ws", "add", "next", cwd=repo)
    assert sorted(line.split("\t")[1] for line in amux.cli("ws", "ls").stdout.splitlines()[1:]) == [
        "next",
        "slow",
        "stays",
    ]
    assert "late" not in git(repo, "branch", "--format=%(refname:short)").split()
    assert work.with_name("made since").exists()
    amux.cli("run", "-w", "stays", "--wait", "--", "true")


def test_a_hook_that_asks_for_another_worktree_is_not_waited_for(amux: Amux, tmp_path: Path) -> None:
    repo, told = repository(tmp_path / "code"), tmp_path / "told"
    program = amux.bindir / "amux"
    add_hook(repo, f"{program} ws add inner --repo {repo} 2>>{told}")
    assert (
        "its post-checkout hook failed with code"
        in amux.cli("ws", "add", "fix", cwd=repo, check=False).stderr
    )
    assert told.read_text() == (
        "amux: a hook of git asks for it, and another worktree of the repository waits for that hook\n"
    )
    # Of another repository there is nobody who waits.
    other = repository(tmp_path / "other")
    add_hook(repo, f"{program} ws add inner --repo {other} 2>>{told}")
    amux.cli("ws", "add", "second", cwd=repo)
    assert "inner" in amux.cli("ws", "ls").stdout
