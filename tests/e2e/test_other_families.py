"""Missing system packages, as dnf and pacman themselves bring them, from a repository of the test's."""

import hashlib
import os
from pathlib import Path

from harness.machine import REPOSITORY, Machine

APT_TIMEOUT = 300
PROGRAMS = ["tmux", "git", "dbus-daemon"]
# Each package brings one program; the last is one that nobody needs.
FEDORA = {"tmux": "tmux", "git-core": "git", "dbus-daemon": "dbus-daemon", "weak": "weak"}
ARCH = {"tmux": "tmux", "git": "git", "dbus": "dbus-daemon", "weak": "weak"}
SPEC = """\
Name: {package}
Version: 1
Release: 1
Summary: for a test
License: none
BuildArch: noarch
AutoReqProv: no
{recommends}
%description
For a test.
%install
mkdir -p %{{buildroot}}/usr/bin
cp /made/{program} %{{buildroot}}/usr/bin/
%files
/usr/bin/{program}
"""
DNF = "[test]\nname=test\nbaseurl=file:///repository\ngpgcheck=0\n"
PACMAN = "[options]\nArchitecture = auto\nSigLevel = Never\n[test]\nServer = file:///repository\n"
PKGINFO = """\
pkgname = {package}
pkgver = 1-1
pkgdesc = for a test
url = none
packager = nobody
arch = any
license = none
builddate = 1
size = 1
"""
ENTRY = """\
%FILENAME%
{file}

%NAME%
{package}

%VERSION%
1-1

%CSIZE%
{size}

%ISIZE%
1

%SHA256SUM%
{digest}

%ARCH%
any
"""


class Distribution:
    """A Debian that calls itself another, with that one's package manager and without what amux needs."""

    def __init__(self, machine: Machine, release: str, tools: list[str]) -> None:
        self.machine = machine
        settings = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        settings["DEBIAN_FRONTEND"] = "noninteractive"
        for file in Path("/etc/apt/apt.conf.d").iterdir():
            self.write(f"etc/apt/apt.conf.d/{file.name}", file.read_text())
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *tools]):
            machine.run(["apt-get", "--quiet", *words], env=settings, timeout=APT_TIMEOUT, cwd="/")
        self.write("etc/os-release", release)
        for program in PROGRAMS:
            self.write(f"made/{program}", "#!/bin/sh\necho tmux 3.4\n").chmod(0o755)
            self.sh(f"rm /usr/bin/{program}")
        self.write("made/weak", "#!/bin/sh\n")
        self.sh("mkdir /repository")

    def sh(self, script: str, check: bool = True) -> str:
        return self.machine.run(["sh", "-euc", script], check=check, cwd="/", timeout=60).stdout

    def write(self, path: str, text: str) -> Path:
        file = self.machine.outside(f"/{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def has(self, program: str) -> bool:
        return self.machine.outside(f"/usr/bin/{program}").exists()

    def brings_what_is_missing(self) -> None:
        command: list[str | Path] = [REPOSITORY / "packaging/system-packages.sh", "run"]
        assert "Installing" in self.machine.run(command, timeout=120).stdout
        assert all(self.has(program) for program in PROGRAMS)
        assert not self.has("weak")
        assert self.machine.run(command).stdout == ""


def test_fedora(machine13: Machine) -> None:
    fedora = Distribution(machine13, "ID=fedora\n", ["dnf", "rpm", "createrepo-c"])
    for package, program in FEDORA.items():
        recommends = "Recommends: weak" if package == "tmux" else ""
        fedora.write("spec", SPEC.format(package=package, program=program, recommends=recommends))
        fedora.sh("rpmbuild -bb --quiet --define '_rpmdir /repository' /spec")
    fedora.sh("createrepo_c --quiet /repository")
    fedora.write("etc/yum.repos.d/test.repo", DNF)
    fedora.brings_what_is_missing()


def test_arch(machine13: Machine) -> None:
    """Its lists are not there yet: with none at all, they are fetched."""
    arch = Distribution(machine13, "ID=manjaro\nID_LIKE=arch\n", ["pacman-package-manager"])
    for package, program in ARCH.items():
        file = f"{package}-1-1-any.pkg.tar.gz"
        arch.write(f"packed/{package}/.PKGINFO", PKGINFO.format(package=package))
        arch.sh(f"mkdir -p /packed/{package}/usr/bin; cp /made/{program} /packed/{package}/usr/bin")
        arch.sh(f"cd /packed/{package}; tar -czf /repository/{file} .PKGINFO usr")
        data = machine13.outside(f"/repository/{file}").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        arch.write(
            f"lists/{package}-1-1/desc",
            ENTRY.format(package=package, file=file, size=len(data), digest=digest),
        )
    arch.sh("cd /lists; tar -czf /repository/test.db *")
    arch.write("etc/pacman.conf", PACMAN)
    arch.brings_what_is_missing()
