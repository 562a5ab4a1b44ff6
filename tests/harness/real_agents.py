"""The real agents, from the npm registry: installed once, for every test run of this user."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
}
# Debian 12's own Node.js is too old for some of them.
OLDEST_NODE, NODE = 20, "node@22"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amux-tests/agents"
PROGRAMS = CACHE / "node_modules/.bin"


def directory() -> Path:
    """Where their programs are. Without npm the test is skipped."""
    programs = find()
    if programs is None:
        pytest.skip("npm is not installed")
    return programs


def can_be_had() -> bool:
    """Without installing them, so that it can be asked of tests that may never run."""
    return _are_installed() or shutil.which("npm") is not None


def find() -> Path | None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _are_installed():
            if shutil.which("npm") is None:
                return None
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE)]
            subprocess.run([*command, *_needed().values()], check=True, capture_output=True, text=True)
    return PROGRAMS


def _are_installed() -> bool:
    return all((PROGRAMS / name).exists() for name in _needed())


@cache
def _needed() -> dict[str, str]:
    """With a node of their own, where this system has none that is new enough."""
    return PACKAGES if _version_of_node() >= OLDEST_NODE else PACKAGES | {"node": NODE}


def _version_of_node() -> int:
    if shutil.which("node") is None:
        return 0
    said = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout
    return int(said.removeprefix("v").partition(".")[0])
