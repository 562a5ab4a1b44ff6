"""Which amuxd a person's amux finds, where the way to the right one is blocked."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.daemon import Amux, Embedded
from harness.machine import REPOSITORY, Machine

from amuxd.cli.failures import UNREACHABLE
from amuxd.errors import NEEDS_PERSON

STRANGER, VICTIM = 61001, 61002


def test_a_bus_that_is_no_more_does_not_hide_the_real_one(amux: Amux) -> None:
    stale = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/no/such/bus"}
    amux.cli("run", "-n", "here", "--", "true", env=stale)
    assert "here" in amux.cli("ls", env=stale).stdout
    assert not amux.machine.outside(amux.runtime / "bus").exists()


def test_beside_systemd_no_amuxd_without_units_is_started(machine: Machine) -> None:
    stranger = Embedded(machine)
    refused = stranger.cli("ls", check=False)
    assert refused.returncode == 5
    assert "knows of no amuxd" in refused.stderr
    assert "systemctl --user start amuxd" in refused.stderr
    assert not machine.outside(stranger.runtime / "bus").exists()


def test_a_bus_that_an_amux_began_which_is_gone_starts_the_amuxd_of_this_one(embedded: Embedded) -> None:
    embedded.cli("ls")
    service = embedded.machine.outside(embedded.runtime) / "services/org.amux.Amux1.service"
    service.write_text("[D-BUS Service]\nName=org.amux.Amux1\nExec=/home/gone/bin/amuxd\n")
    embedded.machine.kill(int((embedded.state / "amuxd.lock").read_text()))
    assert embedded.cli("ls").returncode == 0
    service.unlink()
    embedded.machine.kill(int((embedded.state / "amuxd.lock").read_text()))
    assert embedded.cli("ls").returncode == 0


@pytest.fixture
def place_for_all() -> Iterator[Path]:
    """As /tmp is: everybody may make what is not there yet."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def as_victim(module: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Of a user whom no login manager gave a runtime directory."""
    environment = {"PATH": os.defpath, "TMPDIR": str(place), "HOME": str(place / "home")}
    environment |= {"PYTHONPATH": f"{REPOSITORY}:{':'.join(sys.path[1:])}", "PYTHONDONTWRITEBYTECODE": "1"}
    (place / "home").mkdir(exist_ok=True)
    os.chown(place / "home", VICTIM, VICTIM)
    # This Python may lie where only root may look.
    read_all = "+dac_read_search"
    user = ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", "--clear-groups"]
    user += [f"--inh-caps={read_all}", f"--ambient-caps={read_all}"]
    command = [*user, sys.executable, "-m", module, *(["ls"] if module == "amuxd.cli" else [])]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def made_by_stranger(planted: Path) -> None:
    planted.mkdir(mode=0o777)
    os.chown(planted, STRANGER, STRANGER)


def linked_by_stranger(planted: Path) -> None:
    (planted.parent / "elsewhere").mkdir()
    os.chown(planted.parent / "elsewhere", VICTIM, VICTIM)
    planted.symlink_to("elsewhere")
    os.chown(planted, STRANGER, STRANGER, follow_symlinks=False)


def open_to_all(planted: Path) -> None:
    planted.mkdir()
    planted.chmod(0o777)
    os.chown(planted, VICTIM, VICTIM)


@pytest.mark.parametrize("module", ["amuxd.cli", "amuxd"])
@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (made_by_stranger, "belongs to another user"),
        (linked_by_stranger, "is not a directory"),
        (Path.touch, "is not a directory"),
        (open_to_all, "can be written by others"),
    ],
)
def test_a_runtime_directory_that_others_reach_into_is_refused(
    place_for_all: Path, plant: Callable[[Path], None], why: str, module: str
) -> None:
    planted = place_for_all / f"amux-{VICTIM}"
    plant(planted)
    refused = as_victim(module, place_for_all)
    assert refused.returncode == (NEEDS_PERSON if module == "amuxd" else 1)
    [line] = refused.stderr.splitlines()
    assert f"{planted} {why}" in line
    assert not (planted / "amux").exists()
    assert not (place_for_all / "elsewhere/amux").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["amuxd.cli", "ls"], 1),
        (["amuxd.cli", "report", "question"], UNREACHABLE),
        (["amuxd"], NEEDS_PERSON),
    ],
    ids=["ls", "report", "amuxd"],
)
def test_after_su_nothing_is_made_in_the_runtime_directory_of_another(
    place_for_all: Path, words: list[str], code: int
) -> None:
    theirs = place_for_all / "runtime"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, STRANGER, STRANGER)
    environment = {"PATH": os.defpath, "HOME": str(place_for_all), "XDG_RUNTIME_DIR": str(theirs)}
    environment |= {"PYTHONPATH": str(REPOSITORY), "AMUX_SESSION_ID": "abcdef", "AMUX_TOKEN": "none"}
    refused = subprocess.run(
        [sys.executable, "-m", *words],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == code
    [line] = refused.stderr.splitlines()
    assert f"XDG_RUNTIME_DIR is {theirs}, which belongs to another user" in line
    assert list(theirs.iterdir()) == []
