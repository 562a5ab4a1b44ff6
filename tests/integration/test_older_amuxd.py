"""An amuxd that was not restarted after an upgrade is called what it is, whatever it does not know yet."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.daemon import Amux
from harness.machine import REPOSITORY
from harness.waiting import until

from amuxd import __version__

OLDER = "0.0.9"
# What it had not learned yet.
LATER = {
    "__init__.py": (f'__version__ = "{__version__}"', f'__version__ = "{OLDER}"'),
    "bus/options.py": ('description=take(options, "description", str, ""),', ""),
    "bus/objects.py": ("properties_from(wanted, SESSION)", "properties_from({}, SESSION)"),
}


@pytest.fixture
def older(amux: Amux, tmp_path: Path) -> Iterator[Amux]:
    amux.stop()
    shutil.copytree(REPOSITORY / "amuxd", tmp_path / "amuxd", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (now, then) in LATER.items():
        file = tmp_path / "amuxd" / name
        text = file.read_text()
        assert now in text
        file.write_text(text.replace(now, then))
    python = amux.machine.bindir / "python3"
    environment = amux.environment | {"PYTHONPATH": str(tmp_path)}
    daemon = amux.machine.popen([python, "-m", "amuxd"], env=environment, stderr=subprocess.DEVNULL)
    has_owner = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", "s")
    try:
        until(lambda: amux.bus.call(*has_owner, "org.amux.Amux1"))
        yield amux
    finally:
        daemon.terminate()
        daemon.wait(20)


@pytest.mark.parametrize("command", [["ls"], ["run", "-d", "what for", "sleep", "infinity"]])
def test_what_an_older_amuxd_does_not_know_is_told_as_that(older: Amux, command: list[str]) -> None:
    refused = older.cli(*command, check=False)
    assert (refused.returncode, refused.stdout) == (5, "")
    told, hint = refused.stderr.splitlines()
    assert told == f"amux: amuxd is {OLDER}, amux {__version__}: they do not understand each other"
    assert hint.strip() == "systemctl --user restart amuxd  (no session ends)"


def test_what_is_wrong_with_any_amuxd_is_told_as_that(older: Amux) -> None:
    refused = older.cli("run", "-a", "nobody", check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("amux: there is no agent 'nobody'; known: ")
