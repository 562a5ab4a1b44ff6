"""Clients of a terminal that are killed."""

import asyncio
import errno
import subprocess
import sys
import threading
from pathlib import Path

import libtmux
import pytest
from libtmux.exc import TmuxCommandNotFound

from amuxd.hosts import tmux
from amuxd.hosts.tmux import Terminal, TmuxUnanswered, TmuxUnreachable


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


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another session has made as many processes as there may be."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("no_thread")
def test_without_a_thread_a_terminal_cannot_be_asked(tmp_path: Path) -> None:
    terminal = Terminal("tmux", tmp_path / "tmux")
    with pytest.raises(TmuxUnreachable, match="tmux could not be run: can't start new thread"):
        asyncio.run(terminal.clients())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it waits for processes without threads")
@pytest.mark.usefixtures("no_thread")
def test_without_a_thread_it_is_not_known_what_tmux_did(tmp_path: Path) -> None:
    with pytest.raises(TmuxUnanswered, match="tmux could not be run: can't start new thread"):
        asyncio.run(tmux.run(["true"]))


@pytest.mark.parametrize(
    ("error", "told"),
    [(OSError(errno.EAGAIN, "Try again"), "Try again"), (TmuxCommandNotFound(), "TmuxCommandNotFound")],
)
def test_whatever_libtmux_fails_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(libtmux.Server, "cmd", fail)
    with pytest.raises(TmuxUnreachable, match=f"tmux could not be run: {told}"):
        asyncio.run(Terminal("tmux", tmp_path / "tmux").clients())


def test_without_a_thread_one_that_hangs_is_given_up_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    start = threading.Thread.start

    def hang(*_: object, **__: object) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        answer.wait(20)

    monkeypatch.setattr(tmux, "DEADLINE", 0.1)
    monkeypatch.setattr(libtmux.Server, "cmd", hang)
    try:
        with pytest.raises(TmuxUnanswered, match="did not answer"):
            asyncio.run(Terminal("tmux", tmp_path / "tmux").clients())
    finally:
        monkeypatch.setattr(threading.Thread, "start", start)
        answer.set()
