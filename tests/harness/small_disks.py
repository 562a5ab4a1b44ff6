"""Small file systems of their own, which refuse what they are told to, under all that amuxd keeps."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.client import Session
from harness.daemon import Amux
from harness.machine import Machine
from harness.waiting import until


class Disk:
    def __init__(self, machine: Machine, amux: Amux, kind: str) -> None:
        self.machine = machine
        self.kind = kind
        self.refuses = False
        self.directory = amux.state
        self.filler = self.directory / "filler"
        self._root = amux.machine.outside(self.directory)
        machine.run(["mkdir", "-p", self.directory])
        if kind == "full ext4":
            image = machine.temporary / "small-disk.image"
            machine.run(["truncate", "--size=16M", image])
            machine.run(["/usr/sbin/mkfs.ext4", "-q", "-m0", image])
            machine.run(["mount", "-o", "loop", image, self.directory])
        elif kind == "quota":
            self._make_with_quota(machine.temporary / "small-disk.image")
        else:
            options = "size=8M,nr_inodes=200" if kind == "no inodes" else "size=8M"
            machine.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.directory])

    def _make_with_quota(self, image: Path) -> None:
        """Which btrfs keeps even for root."""
        run = self.machine.run
        run(["truncate", "--size=128M", image])
        run(["/usr/sbin/mkfs.btrfs", "--force", "--quiet", "--mixed", image])
        made = run(["mount", "-t", "btrfs", "-o", "loop", image, self.directory], check=False)
        if "unknown filesystem" in made.stderr:
            pytest.skip("this kernel has no btrfs")
        run(["/usr/bin/btrfs", "quota", "enable", self.directory])
        run(["/usr/bin/btrfs", "subvolume", "create", self.directory / "own"])
        run(["/usr/bin/btrfs", "qgroup", "limit", "8M", self.directory / "own"])
        run(["mount", "--bind", self.directory / "own", self.directory])

    def refuse(self) -> None:
        self.refuses = True
        match self.kind:
            case "read-only":
                until(self._becomes_read_only)
            case "no inodes":
                script = 'i=0; mkdir "$0"; while touch "$0/$i"; do i=$((i+1)); done 2>/dev/null'
                self.machine.run(["sh", "-c", script, self.filler])
            case _:
                # What was given back is free once the journal is written, which may be after the filling.
                self.machine.run(["sync", "--file-system", self.directory])
                self.machine.run(["dd", "if=/dev/zero", f"of={self.filler}", "bs=64k"], check=False)
                self.machine.run(["dd", "if=/dev/zero", f"of={self.filler}.2", "bs=512"], check=False)

    def _becomes_read_only(self) -> bool:
        """On top of itself: the files that are open already can be written still."""
        self.machine.run(["mount", "--bind", self.directory, self.directory])
        remount = ["mount", "-o", "remount,bind,ro", str(self.directory)]
        if self.machine.run(remount, check=False).returncode == 0:
            return True
        # Somebody has just opened a file through it.
        self.machine.run(["umount", "--lazy", self.directory])
        return False

    def allow(self) -> None:
        self.refuses = False
        if self.kind == "read-only":
            self.machine.run(["umount", "--lazy", self.directory])
        else:
            self.machine.run(["sh", "-c", 'rm -rf "$0" "$0.2"', self.filler])
        if self.kind == "quota":
            # What was removed counts until then.
            self.machine.run(["sync", "--file-system", self.directory])

    def ease(self) -> None:
        """Room for changes of state, and none for output."""
        self.machine.run(["truncate", "--size=-100K", self.filler])

    def stored(self, session: Session, name: str = "state.json") -> str:
        return (self._root / "sessions" / session.id / name).read_text()

    def state(self, session: Session) -> str:
        return str(json.loads(self.stored(session))["state"])

    def log(self, session: Session) -> str:
        path = self._root / "sessions" / session.id / "runs/1/output.log"
        # Where there was no room for it, it is to come.
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def on_small_disk(machine: Machine, kind: str) -> Iterator[tuple[Amux, Disk]]:
    amux = Amux(machine)
    disk = Disk(machine, amux, kind)
    try:
        amux.start()
        yield amux, disk
    finally:
        if disk.refuses:
            disk.allow()
        # With its directory the mount goes as well.
        amux.close()


@contextmanager
def read_only(amux: Amux, directory: Path) -> Iterator[None]:
    amux.machine.run(["mount", "--bind", directory, directory])
    try:
        amux.machine.run(["mount", "-o", "remount,bind,ro", directory])
        yield
    finally:
        amux.machine.run(["umount", directory])
