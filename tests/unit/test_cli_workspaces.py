"""What amux says as it removes a workspace."""

from typing import Any

import pytest

from amuxd.cli import workspaces
from amuxd.cli.failures import Interrupted


class Answers:
    """More is lost than was said before."""

    def __init__(self, interrupted: str = "") -> None:
        self.waited_for: set[str] = set()
        self._interrupted = interrupted

    def find_workspace(self, name: str) -> str:
        return name

    def workspace_properties(self, where: str) -> dict[str, Any]:
        return {"Name": where, "HookFailure": "", "SetupCommand": ""}

    def configuration_error(self) -> str:
        return ""

    def manager(self, member: str, *_: Any, patient: bool) -> tuple[str]:
        if patient:
            self.waited_for.add(member)
        return (member,)

    def workspace(self, where: str, member: str, *arguments: Any, patient: bool) -> Any:
        if patient:
            self.waited_for.add(member)
        is_dry = "dry_run" in arguments[1]
        if self._interrupted == ("dry run" if is_dry else "removal"):
            raise KeyboardInterrupt
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


def test_as_long_as_git_may_take_somebody_waits_for_it() -> None:
    """Also who removes one while git checks another out of the same repository."""
    answers = Answers()
    client: Any = answers
    workspaces.make(client, "fix")
    workspaces._remove(client, "fix", force=False, ignored=False)
    assert answers.waited_for == {"AddWorkspace", "Remove"}


def test_ctrl_c_says_what_may_go_on_and_nothing_of_a_mere_question() -> None:
    client: Any = Answers(interrupted="removal")
    with pytest.raises(Interrupted, match="fix may be removed all the same"):
        workspaces._remove(client, "fix", force=True, ignored=False)
    client = Answers(interrupted="dry run")
    with pytest.raises(KeyboardInterrupt):
        workspaces._remove(client, "fix", force=True, ignored=False)
