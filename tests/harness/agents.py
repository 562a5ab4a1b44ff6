"""Real agents, from the npm registry, fetched once."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
TIMEOUT = 600


def program(name: str) -> Path:
    """The agent's own program; without npm, or without its registry, the test is skipped with the reason."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing, so there is no real agent to try")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amux-tests"
    target = cache / f"agent-{name}"
    found = target / "node_modules/.bin" / name
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock-agents", timeout=TIMEOUT):
        if not found.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as directory:
                _install(PACKAGES[name], Path(directory) / "agent")
                shutil.rmtree(target, ignore_errors=True)
                (Path(directory) / "agent").rename(target)
    return found


def _install(package: str, directory: Path) -> None:
    directory.mkdir()
    result = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), package],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if result.returncode != 0:
        pytest.skip(f"{package} could not be fetched: {result.stderr.strip()[-300:]}")
