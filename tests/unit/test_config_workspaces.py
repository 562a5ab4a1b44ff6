from pathlib import Path

import pytest

from amuxd import config
from amuxd.errors import InvalidArgument


def load(tmp_path: Path, text: str) -> config.WorkspaceSettings:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return config.load(file).workspaces


def test_without_settings_worktrees_are_amuxs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    settings = config.load(tmp_path / "none.toml").workspaces
    assert settings.directory == Path("/state/amux/worktrees")
    assert (settings.copy, settings.setup_for("/any")) == ((), "")


def test_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    text = '[workspaces]\ndirectory = "~/trees"\ncopy = [".env", "a/b"]\nsetup = { "~/src/web" = "npm ci" }\n'
    settings = load(tmp_path, text)
    assert settings.directory == Path("/home/ann/trees")
    assert settings.copy == (".env", "a/b")
    assert settings.setup_for("/home/ann/src/web") == "npm ci"
    assert settings.setup_for("/home/ann/src/other") == ""
    assert load(tmp_path, '[workspaces]\nsetup = "make"\n').setup_for("/any") == "make"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('directory = "trees"', "is not absolute"),
        ("directory = 3", "is no text"),
        ('copy = ".env"', "is no list"),
        ('copy = ["/etc/passwd"]', "does not lie in a repository"),
        ('copy = ["../x"]', "does not lie in a repository"),
        ('copy = [".git/config"]', "does not lie in a repository"),
        ('copy = ["."]', r"'\.' is the whole repository"),
        ('copy = [".env", "./"]', "is the whole repository"),
        ('copy = [""]', "does not lie in a repository"),
        ("setup = 3", "is no text"),
        ('setup = { "web" = "make" }', "is not absolute"),
        ("slots = 3", "there is no setting slots in \\[workspaces\\]"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        load(tmp_path, f"[workspaces]\n{line}\n")


def test_a_section_is_a_section(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="workspaces must be a section"):
        load(tmp_path, "workspaces = 3\n")
