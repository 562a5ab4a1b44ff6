"""Nothing begins again where its directory is gone: refused before anything changes, and not offered."""

import shutil
from pathlib import Path

import pytest
from harness.client import Session
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until


@pytest.fixture
def repo(amux: Amux) -> Path:
    shutil.rmtree(amux.machine.temporary / "places", ignore_errors=True)
    return repository(amux.machine.temporary / "places/code")


def check_refused(amux: Amux, session: Session) -> None:
    before = session.state, session.get("Reason"), session.get("StateChangedUSec"), session.get("Run")
    certificate, directory = session.certificate(), session.get("Directory")
    refused = amux.cli("restart", session.id, check=False)
    assert refused.returncode == 4
    assert f"restart is not possible: its directory {directory} is not there; possible: " in refused.stderr
    assert (
        session.state,
        session.get("Reason"),
        session.get("StateChangedUSec"),
        session.get("Run"),
    ) == before
    assert session.certificate() == certificate
    assert "restart" not in session.get("Possible")


def test_what_worked_in_a_workspace_that_was_removed(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "fix", cwd=repo)
    session = amux.create(["sleep", "1000"], workspace="fix")
    session.stop()
    assert "restart" in session.get("Possible")
    amux.cli("ws", "rm", "fix")
    assert "restart" not in session.get("Possible")
    check_refused(amux, session)
    # The next amuxd looks for itself.
    amux.restart()
    until(lambda: "restart" not in session.get("Possible"))
    check_refused(amux, session)


def test_a_directory_that_is_absent_and_comes_back(amux: Amux, repo: Path) -> None:
    session = amux.create(["sleep", "1000"], cwd=str(repo))
    session.stop()
    aside = repo.with_name("aside")
    repo.rename(aside)
    check_refused(amux, session)
    aside.rename(repo)
    amux.cli("restart", session.id)
    assert (session.state, session.get("Run")) == ("running", 2)
