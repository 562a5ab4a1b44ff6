"""What is told of a workspace where git cannot tell everything."""

import asyncio
from pathlib import Path

import pytest
from harness.repositories import git, repository

from amuxd.records import Workspace
from amuxd.workspaces.telling import Teller


def test_a_given_directory_whose_filter_is_missing_has_no_repository_to_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    repo = repository(tmp_path / "code")
    (repo / ".gitattributes").write_text("*.bin filter=gone\n")
    (repo / "a.bin").write_text("x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "filtered")
    git(repo, "config", "filter.gone.clean", "no-such-program %f")
    (repo / "a.bin").write_text("y\n")
    told = asyncio.run(Teller().one(Workspace("abc123", "given", str(repo), 1)))
    assert "no-such-program" in told.error
    assert told.problem != "no repository"
