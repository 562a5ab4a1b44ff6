"""Real git repositories for tests to work in."""

import os
import subprocess
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    # Submodules of the tests are directories beside them; one is served on this machine.
    "GIT_ALLOW_PROTOCOL": "file:git",
}


def git(directory: Path | str, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"git {arguments} in {directory}: {done.stderr}")
    return done.stdout.strip()


def empty_repository(directory: Path) -> Path:
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    return directory


def repository(directory: Path, files: int = 1) -> Path:
    empty_repository(directory)
    for number in range(files):
        (directory / f"file{number}").write_text(f"{number}\n" * 20)
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def commit(directory: Path | str, name: str, text: str = "more\n") -> str:
    (Path(directory) / name).write_text(text)
    git(directory, "add", name)
    git(directory, "commit", "-q", "-m", f"writes {name}")
    return git(directory, "rev-parse", "HEAD")


def add_hook(repository: Path, script: str, name: str = "post-checkout", place: str = ".git/hooks") -> Path:
    hook = repository / place / name
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return hook


def add_waiting_hook(repository: Path, aside: Path) -> tuple[Path, Path]:
    """What is there once git has called it, the first time, and what it then reads a line from."""
    reached, go = aside / "reached", aside / "go"
    os.mkfifo(go)
    add_hook(repository, f"[ -e {reached} ] && exit\ntouch {reached}\nread _ <{go}")
    return reached, go


def is_reachable(directory: Path | str, commit_id: str) -> bool:
    """From a branch, a tag, a remote, a stash, what amux kept, or a worktree."""
    tips = [
        line.split()[1]
        for line in git(directory, "worktree", "list", "--porcelain").splitlines()
        if line.startswith("HEAD ")
    ]
    tips = [tip for tip in tips if set(tip) != {"0"}]
    return commit_id in git(directory, "rev-list", "--all", *tips).splitlines()
