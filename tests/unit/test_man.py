"""The man pages say what the commands and the interfaces say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def make_man() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_man", REPOSITORY / "packaging/make-man.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["amux.1", "org.amux.Amux1.5"])
def test_page_is_up_to_date(make_man: ModuleType, page: str) -> None:
    assert (REPOSITORY / "man" / page).read_text() == make_man.pages()[page], "run: make man"


def test_text_is_not_taken_for_markup(make_man: ModuleType) -> None:
    assert make_man._text(".TH 'x' a\\b --c") == "\\&.TH 'x' a\\eb \\-\\-c"
    assert make_man._text("'quoted'") == "\\&'quoted'"


def test_every_command_is_described(make_man: ModuleType) -> None:
    from amuxd.cli.app import COMMANDS

    text = make_man.pages()["amux.1"]
    for command in COMMANDS:
        assert f".SS amux {command}" in text
