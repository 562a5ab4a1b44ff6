"""Clients of a terminal that are killed."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from amuxd.hosts import tmux
from amuxd.hosts.tmux import TmuxUnreachable


def test_one_that_was_killed_has_not_answered() -> None:
    with pytest.raises(TmuxUnreachable, match="its client was killed by SIGKILL"):
        asyncio.run(tmux.run(["sh", "-c", "kill -9 $$"]))


def test_whoever_asks_in_another_way_is_not_killed(tmp_path: Path) -> None:
    socket = tmp_path / "tmux"
    idle = ["sh", "-c", "read x", "sh"]
    with (
        subprocess.Popen([*idle, f"-S{socket}", "list-clients"], stdin=subprocess.PIPE) as hung,
        subprocess.Popen([*idle, "-N", "-S", str(socket), "show"], stdin=subprocess.PIPE) as other,
    ):
        tmux._kill_clients(socket)
        other.communicate(b"go on\n", timeout=60)
        assert (hung.wait(20), other.returncode) == (-9, 0)
