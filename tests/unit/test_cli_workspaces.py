"""What amux says as it removes a workspace."""

from typing import Any

import pytest

from amuxd.cli import workspaces


class Answers:
    """More is lost than was said before."""

    def find_workspace(self, name: str) -> str:
        return name

    def workspace_properties(self, where: str) -> dict[str, Any]:
        return {"Name": where}

    def workspace(self, *arguments: Any, timeout: float) -> tuple[list[str], list[str]]:
        is_dry = "dry_run" in arguments[3]
        return (["1 commit"], []) if is_dry else (["what one does", "1 commit"], ["its ref"])


def test_what_has_come_since_is_said_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = Answers()
    workspaces._remove(client, "fix", force=True, ignored=False)
    assert capsys.readouterr().out.splitlines() == [
        "fix: throwing away 1 commit",
        "fix: threw away what one does",
        "removed fix",
        "  kept its ref",
    ]


@pytest.mark.parametrize("how", [{"force": False, "ignored": False}, {"force": False, "ignored": True}])
def test_what_goes_without_force_is_said_as_well(
    capsys: pytest.CaptureFixture[str], how: dict[str, bool]
) -> None:
    client: Any = Answers()
    workspaces._remove(client, "fix", **how)
    assert "fix: threw away what one does" in capsys.readouterr().out.splitlines()
