"""Files that are made up for a test, in place of the kernel's."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from amuxd import processes
from amuxd.hosts import cgroups


def cgroups_below(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of a process's cgroup is read below that directory."""
    read = processes.read

    def read_below(path: str) -> str:
        return read(path if path.startswith(str(root)) else f"{root}{path}")

    monkeypatch.setattr(cgroups, "processes", SimpleNamespace(read=read_below))
    monkeypatch.setattr(cgroups, "Path", lambda path: root / str(path).lstrip("/"))
