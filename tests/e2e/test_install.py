"""make install, an upgrade under a running amuxd, one that fails, and make uninstall."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.machine import Machine
from harness.witnesses import Witnesses

REPOSITORY = Path(__file__).resolve().parents[2]
STEP_TIMEOUT = 300


class User:
    """Somebody with a copy of the source, which a test may change, in a machine of their own."""

    def __init__(self, machine: Machine, source: Path) -> None:
        self.machine = machine
        self.source = source
        self.home = machine.home
        self.amux = self.home / ".local/bin/amux"

    @property
    def environment(self) -> dict[str, str]:
        # Where pip finds packages, and those it has already, are matters of the system and not of this user.
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        pip.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache/pip"))
        for file in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
            if file.exists():
                pip.setdefault("PIP_CONFIG_FILE", str(file))
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return pip | proxies | {"PYTHON": getattr(sys, "_base_executable", sys.executable)}

    def make(self, target: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.machine.run(
            ["make", target], cwd=self.source, env=self.environment, check=check, timeout=STEP_TIMEOUT
        )

    def run(self, *arguments: str) -> str:
        return self.machine.run([self.amux, *arguments]).stdout.strip()

    def version(self) -> str:
        manager = ["org.amux.Amux1", "/org/amux/Amux1", "org.amux.Amux1.Manager"]
        answer = self.machine.run(["busctl", "--user", "get-property", *manager, "Version"])
        return answer.stdout.split('"')[1]

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.source / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def environments(self) -> list[Path]:
        return list((self.home / ".local/share/amux").glob("venv-*"))

    def installed(self) -> set[str]:
        """Everything in the home directory but the sessions' data and what the environment is made of."""
        found = (
            path.relative_to(self.home)
            for path in self.home.rglob("*")
            if not path.is_dir() or path.is_symlink()
        )
        return {
            str(path)
            for path in found
            if not any(part.startswith("venv-") for part in path.parts) and not path.is_relative_to(STATE)
        }


def copy_of_the_source(target: Path) -> Path:
    litter = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
    return Path(shutil.copytree(REPOSITORY, target, ignore=litter))


@pytest.fixture
def user(machine: Machine, tmp_path: Path) -> User:
    # The message bus asks the password file for the home directory, and there it is not that of the test.
    machine.systemctl("set-environment", f"XDG_DATA_HOME={machine.home}/.local/share")
    return User(machine, copy_of_the_source(tmp_path / "amux"))


READY = '        self._notify("READY=1"'
BROKEN = (
    "raise SystemExit('this one is broken')\n",
    "import sdnotify, signal\nsdnotify.SystemdNotifier().notify('READY=1')\nsignal.pause()\n",
)
STATE = ".local/state/amux"
PROGRAM = ".local/share/amux/venv"
FILES = {
    ".local/bin/amux",
    ".local/bin/amuxd",
    PROGRAM,
    ".local/share/systemd/user/amuxd.service",
    ".local/share/systemd/user/amuxd.socket",
    ".local/share/systemd/user/amux.slice",
    ".local/share/systemd/user/amux-clean.service",
    ".local/share/systemd/user/amux-clean.timer",
    ".local/share/dbus-1/services/org.amux.Amux1.service",
    ".local/share/dbus-1/interfaces/org.amux.Amux1.Manager.xml",
    ".local/share/dbus-1/interfaces/org.amux.Amux1.Session.xml",
    ".local/share/dbus-1/interfaces/org.amux.Amux1.Workspace.xml",
    ".local/share/man/man1/amux.1",
    ".local/share/man/man8/amuxd.8",
    ".local/share/man/man5/org.amux.Amux1.5",
    ".local/share/bash-completion/completions/amux",
    ".local/share/zsh/site-functions/_amux",
    ".local/share/fish/vendor_completions.d/amux.fish",
}
ENABLED = {
    ".config/systemd/user/default.target.wants/amuxd.service",
    ".config/systemd/user/sockets.target.wants/amuxd.socket",
    ".config/systemd/user/timers.target.wants/amux-clean.timer",
}
# When the timer last ran, as systemd keeps it.
STAMP = ".local/share/systemd/timers/stamp-amux-clean.timer"


def test_install_upgrade_and_uninstall_leave_a_session_running(user: User) -> None:
    systemctl = user.machine.systemctl
    version = user.machine.run(
        [sys.executable, "-c", "import amuxd; print(amuxd.__version__)"], cwd=user.source
    ).stdout.strip()

    # It may answer on the bus long before systemd has heard that it is ready.
    user.replace("amuxd/daemon.py", READY, f"        await asyncio.sleep(1)\n{READY}")
    said = user.make("install").stdout
    assert user.installed() == FILES | ENABLED | {STAMP}
    assert "is not in your PATH" in said
    # What the script imports before main() has Ctrl-C print a traceback.
    imports = [line for line in user.amux.read_text().splitlines() if "import" in line]
    assert imports == ["import sys", "from amuxd.cli import main"]
    assert systemctl("is-active", "amuxd.socket", "amux-clean.timer").split() == ["active", "active"]

    # It was started by the bus, as it is by the first call; and the session is not part of it.
    assert user.version() == version
    systemctl("stop", "amuxd.service")
    session = user.run("run", "--quiet", "--name", "long", "--", "sleep", "1000")
    unit = f"amux-{session}.service"
    assert user.version() == version
    agree = Witnesses(user.machine, user.amux).agree
    pid = agree("long", "running")["pid"]
    daemon = systemctl("show", "--property=MainPID", "--value", "amuxd.service")
    assert f"{session}" in user.run("ls")
    systemctl("start", "amux-clean.service")
    assert f"{session}" in user.run("ls")

    # An upgrade: the new amuxd answers, and the process in the session is the same.
    user.replace("amuxd/__init__.py", version, "9.8.7")
    said = user.make("install").stdout
    assert "the sessions went on" in said
    assert user.version() == "9.8.7"
    assert systemctl("show", "--property=MainPID", "--value", "amuxd.service") != daemon
    assert user.run("--version") == "amux 9.8.7"
    assert agree("long", "running")["pid"] == pid
    # The session's logger runs from the old one, so that stays for as long as it does.
    assert len(user.environments()) == 2

    # One that cannot start, and one that only says that it did: the one before is back.
    user.replace("amuxd/__init__.py", "9.8.7", "9.9.9")
    daemon_module = user.source / "amuxd/daemon.py"
    sound = daemon_module.read_text()
    for broken in BROKEN:
        daemon_module.write_text(broken)
        failed = user.make("install", check=False)
        assert failed.returncode != 0
        assert "the one from before is back" in failed.stderr
        assert "the sessions went on" not in failed.stdout
        assert user.version() == "9.8.7"
        assert agree("long", "running")["pid"] == pid
    daemon_module.write_text(sound)

    said = user.make("uninstall").stdout
    assert user.installed() == set()
    assert unit in said
    assert str(user.home / STATE) in said
    assert (user.home / STATE / f"sessions/{session}/state.json").is_file()
    assert systemctl("is-active", unit) == "active"
    assert systemctl("is-active", "amuxd.service", "amuxd.socket", check=False).split() == [
        "inactive",
        "inactive",
    ]

    # And back: it is found as it was.
    user.make("install")
    assert agree("long", "running")["pid"] == pid
    user.run("rm", "--force", "long")
    user.make("install")
    assert len(user.environments()) == 1


def test_the_first_amuxd_that_does_not_start_is_no_success(user: User) -> None:
    (user.source / "amuxd/daemon.py").write_text(BROKEN[0])
    failed = user.make("install", check=False)
    assert failed.returncode != 0
    assert "amuxd does not work" in failed.stderr
    assert "this one is broken" in failed.stderr
    assert "Try:" not in failed.stdout


def test_a_bus_that_looks_elsewhere_until_the_next_login(machine: Machine, tmp_path: Path) -> None:
    # Now the bus runs, and does not learn any more where this user's data is.
    machine.run(["busctl", "--user", "list"])
    machine.systemctl("set-environment", f"XDG_DATA_HOME={machine.home}/.local/share")
    user = User(machine, copy_of_the_source(tmp_path / "amux"))
    assert "from the next login on" in user.make("install").stdout
    assert json.loads(user.run("ls", "--json")) == []


def test_a_session_bus_that_nobody_has_started_yet(user: User) -> None:
    user.machine.systemctl("stop", "dbus.socket", "dbus.service")
    user.machine.run(["rm", "-f", user.machine.runtime / "bus"])
    user.make("install")
    assert json.loads(user.run("ls", "--json")) == []


def test_what_is_not_ours_is_not_overwritten(user: User) -> None:
    user.amux.parent.mkdir(parents=True)
    user.amux.write_text("somebody else's\n")
    failed = user.make("install", check=False)
    assert failed.returncode != 0
    assert "is not from make install" in failed.stderr
    assert user.installed() == {".local/bin/amux"}
