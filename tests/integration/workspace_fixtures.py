"""A repository, its workspaces, and sessions in them."""

from pathlib import Path
from typing import Any

import pytest
from harness.client import Session
from harness.daemon import Amux
from harness.repositories import repository


@pytest.fixture
def repo(amux: Amux, tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def workspace_directory(amux: Amux, name: str) -> Path:
    path = amux.manager.call("GetWorkspace", "s", name)
    return Path(amux.bus.proxy("org.amux.Amux1", path, "org.amux.Amux1.Workspace").get("Directory"))


def listed(amux: Amux) -> list[str]:
    """Without the headings."""
    return amux.cli("ws", "ls").stdout.splitlines()[1:]


def run_in(amux: Amux, workspace: str, *command: str, **options: Any) -> Session:
    return amux.create(list(command) or ["sleep", "1000"], workspace=workspace, **options)


def configure(amux: Amux, text: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(text)
    amux.manager.call("Reload")
