"""What a repository's post-checkout hook does when a workspace is made, and what is said where it fails."""

from pathlib import Path

from harness.daemon import Amux
from harness.repositories import repository


def test_its_failure_is_shown_and_the_workspace_stays(amux: Amux, tmp_path: Path) -> None:
    repo = repository(tmp_path / "code")
    hook = repo / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\numask >"umask of $AMUX_TEST"\necho no lfs here\nexit 3\n')
    hook.chmod(0o755)
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
