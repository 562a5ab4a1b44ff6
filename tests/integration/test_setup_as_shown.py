"""A set-up command runs as it was shown to the one who allowed it."""

import json
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import repository

WORKSPACE = "org.amux.Amux1.Workspace"


def configure(amux: Amux, command: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[workspaces]\nsetup = "{command}"\n')
    amux.manager.call("Reload")


@pytest.fixture
def repo(amux: Amux, tmp_path: Path) -> Path:
    configure(amux, "touch asked")
    return repository(tmp_path / "code")


def allowed(amux: Amux) -> list[str]:
    known = amux.state / "allowed.json"
    return (
        [c for each in json.loads(known.read_text())["commands"].values() for c in each]
        if known.exists()
        else []
    )


def test_another_command_than_the_one_that_was_asked_about_is_refused(amux: Amux, repo: Path) -> None:
    with amux.terminal("ws", "add", "--repo", str(repo), "one") as terminal:
        terminal.expect("Run 'touch asked' in it")
        configure(amux, "touch other")
        terminal.type("y\r")
        terminal.expect("the set-up command of one is 'touch other' by now, and not 'touch asked'")
    assert allowed(amux) == []
    where = amux.manager.call("GetWorkspace", "s", "one")
    directory = Path(amux.bus.proxy(BUS_NAME, where, WORKSPACE).get("Directory"))
    assert not (directory / "other").exists()
    assert not (directory / "asked").exists()
    configure(amux, "touch asked")
    amux.cli("ws", "setup", "--allow", "one")
    assert (directory / "asked").exists()
    assert allowed(amux) == ["touch asked"]


def test_nothing_is_allowed_unseen(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "--no-setup", "one", cwd=repo)
    workspace = amux.bus.proxy(BUS_NAME, amux.manager.call("GetWorkspace", "s", "one"), WORKSPACE)
    with pytest.raises(CallFailed, match="needs the option command") as refused:
        workspace.call("Setup", "a{sv}", {"allow": ("b", True)})
    assert refused.value.name.endswith("InvalidArgument")
    assert allowed(amux) == []
    workspace.call("Setup", "a{sv}", {"allow": ("b", True), "command": ("s", "touch asked")})
    assert allowed(amux) == ["touch asked"]
    # Who allowed it before is shown nothing any more.
    workspace.call("Setup", "a{sv}", {})
