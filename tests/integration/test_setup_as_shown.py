"""A set-up command runs as it was shown to the one who allowed it."""

import json
from pathlib import Path

import pytest
import workspace_fixtures
from harness.bus import CallFailed
from harness.client import BUS_NAME
from harness.daemon import Amux
from harness.repositories import repository

WORKSPACE = "org.amux.Amux1.Workspace"


def configure(amux: Amux, command: str) -> None:
    workspace_fixtures.configure(amux, f'[workspaces]\nsetup = "{command}"\n')


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


def test_a_repository_is_found_by_a_link_to_it(amux: Amux, tmp_path: Path) -> None:
    link = tmp_path / "link"
    for name in ("one", "two"):
        amux.cli("ws", "add", "--no-setup", name, cwd=repository(tmp_path / name))
    one, two = (
        amux.bus.proxy(BUS_NAME, amux.manager.call("GetWorkspace", "s", name), WORKSPACE)
        for name in ("one", "two")
    )

    def commands() -> list[object]:
        return [workspace.get("SetupCommand") for workspace in (one, two)]

    link.symlink_to("one")
    workspace_fixtures.configure(amux, f'[workspaces]\nsetup = {{ "{link}" = "touch asked" }}\n')
    assert commands() == ["touch asked", ""]
    amux.restart()
    assert commands() == ["touch asked", ""]
    # Where it leads by now is what counts.
    link.unlink()
    link.symlink_to("two")
    with pytest.raises(CallFailed, match="there is no set-up command for"):
        one.call("Setup", "a{sv}", {})
    assert commands() == ["", "touch asked"]
    link.unlink()
    link.symlink_to("one")
    amux.cli("ws", "add", "--allow-setup", "three", cwd=tmp_path / "one")
    assert (workspace_fixtures.workspace_directory(amux, "three") / "asked").exists()


def test_a_repository_is_its_own_before_it_is_what_a_link_leads_to(amux: Amux, repo: Path) -> None:
    link = repo.parent / "link"
    link.symlink_to(repo)
    own, by_link = f'"{repo}" = "touch own"', f'"{link}" = "touch linked"'
    for both in (f"{own}, {by_link}", f"{by_link}, {own}"):
        workspace_fixtures.configure(amux, f"[workspaces]\nsetup = {{ {both} }}\n")
        amux.cli("ws", "add", "--allow-setup", "one", cwd=repo)
        assert (workspace_fixtures.workspace_directory(amux, "one") / "own").exists()
        amux.cli("ws", "rm", "--force", "one")
