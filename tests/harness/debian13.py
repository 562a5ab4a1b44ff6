"""A Debian 13 to run machines in: systemd 257, tmux 3.5a, Python 3.13 and its own packages of the rest."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from harness.machine import REPOSITORY, Machine, MachineError

SUITE = "trixie"
PACKAGES = (
    "dbus",
    "dbus-user-session",
    "git",
    "libpam-systemd",
    "procps",
    "python3",
    "python3-click",
    "python3-dbus-fast",
    "python3-filelock",
    "python3-jeepney",
    "python3-libtmux",
    "python3-psutil",
    "python3-sdnotify",
    "systemd",
    "tmux",
    "util-linux",
    # For the one that boots, and in which amux is installed.
    "make",
    "polkitd",
    "python3-venv",
    "systemd-sysv",
)
APT = Path("/etc/apt")
TIMEOUT = 900


def machine() -> Machine:
    """amux runs from the checkout there; what tests and machine share is under the temporary directory."""
    shared = (REPOSITORY, Path(tempfile.gettempdir()))
    return Machine(root=tree(), binds=shared, bindir=Path("/usr/bin"))


def tree() -> Path:
    """Made once, and then the same for all: machines see it through an overlay."""
    version = hashlib.sha256(" ".join((SUITE, *PACKAGES)).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amux-tests"
    target = cache / f"{SUITE}-{version}"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock", timeout=TIMEOUT):
        if not target.exists():
            _debootstrap(target)
    return target


def mirror() -> str:
    """The archive of Debian itself that this system is configured with."""
    for uri, suite in _sources():
        if "security" not in uri and "-" not in suite:
            return uri
    raise MachineError(f"no mirror of Debian is configured in {APT}, so Debian 13 cannot be obtained")


def _debootstrap(target: Path) -> None:
    for program, package in (("debootstrap", "debootstrap"), ("wget", "wget")):
        if shutil.which(program) is None:
            raise MachineError(f"a Debian 13 needs packages that are missing: {package}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="unfinished-") as directory:
        root = Path(directory) / "root"
        # In namespaces of its own, what it mounts and starts cannot outlive it.
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        command += ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        result = subprocess.run(
            [*command, SUITE, str(root), mirror()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
        if result.returncode != 0:
            tail = "\n".join(result.stdout.splitlines()[-20:])
            raise MachineError(f"Debian 13 could not be obtained from {mirror()}:\n{tail}")
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        root.rename(target)


def _sources() -> Iterator[tuple[str, str]]:
    """URI and suite of each source, in both of the formats that apt has."""
    lists = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.list"))]
    for path in lists:
        text = path.read_text() if path.exists() else ""
        for match in re.finditer(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s.*\bmain\b", text, re.MULTILINE):
            yield match[1], match[2]
    for path in sorted((APT / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split() and "main" in fields.get("Components", "").split():
                for uri in fields.get("URIs", "").split():
                    for suite in fields.get("Suites", "").split():
                        yield uri, suite


if __name__ == "__main__":
    print(tree())
