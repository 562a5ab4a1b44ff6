"""A terminal server that does not answer is nobody's trouble but its own session's."""

import asyncio
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from harness.daemon import Amux
from harness.waiting import until

from amuxd import processes
from amuxd.hosts import LoggerMissing, tmux
from amuxd.hosts.layout import Layout
from amuxd.hosts.outputs import Outputs
from amuxd.hosts.tmux import Terminal, TmuxUnanswered, TmuxUnreachable
from amuxd.processes import identify
from amuxd.records import Process
from amuxd.store import Store


@contextmanager
def terminal(socket: Path) -> Iterator[tuple[Terminal, int]]:
    """A real one with a cat in it, and its server's process."""
    ask = ["tmux", "-S", str(socket), "-f", "/dev/null"]
    subprocess.run([*ask, "new-session", "-d", "-x", "80", "-y", "24", "cat"], check=True)
    told = subprocess.run([*ask, "display-message", "-p", "#{pid}"], check=True, capture_output=True)
    server = int(told.stdout)
    try:
        yield Terminal("tmux", socket), server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


@contextmanager
def stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def clients(socket: Path) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        # One that ended meanwhile is none.
        with suppress(psutil.Error):
            if str(socket) in child.cmdline():
                found.append(child)
    return found


def test_one_that_hangs_keeps_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(hung: Terminal, server: int, healthy: Terminal) -> None:
        # What the first question loads takes long on a machine that is busy.
        await healthy.clients()
        monkeypatch.setattr(tmux, "DEADLINE", 3.0)
        with stopped(server):
            asked = [asyncio.create_task(hung.send("x", False, 0.0)) for _ in range(8)]
            # Each of them has begun.
            await asyncio.sleep(0)
            await healthy.send("heard", True, 0.0)
            assert not any(task.done() for task in asked)
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            # The others never had their turn.
            assert [type(outcome) for outcome in outcomes] == [TmuxUnanswered] + 7 * [TmuxUnreachable]
            assert {str(outcome) for outcome in outcomes} == {"tmux did not answer within 3 s"}
            assert not clients(hung.socket)
        await hung.send("y", True, 0.0)
        assert await hung.clients() == 0

    with terminal(tmp_path / "hung") as (hung, server), terminal(tmp_path / "healthy") as (healthy, _):
        asyncio.run(story(hung, server, healthy))


@pytest.mark.parametrize(
    "ask", [Terminal.clients, lambda terminal: terminal.run("display-message", "-p", deadline=0.3)]
)
def test_one_that_hangs_is_not_waited_for_beyond_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Terminal], Awaitable[object]]
) -> None:
    monkeypatch.setattr(tmux, "DEADLINE", 0.3)

    async def refused(hung: Terminal) -> None:
        async with asyncio.timeout(20):
            with pytest.raises(TmuxUnreachable, match="did not answer"):
                await ask(hung)

    async def story(hung: Terminal, server: int) -> None:
        with stopped(server):
            await refused(hung)
            threads = threading.active_count()
            for _ in range(3):
                await refused(hung)
            # Who waits for a process that has ended may not have gone yet.
            until(lambda: threading.active_count() <= threads)
            assert not clients(hung.socket)

    with terminal(tmp_path / "hung") as (hung, server):
        asyncio.run(story(hung, server))


def screen(socket: Path) -> str:
    shown = subprocess.run(
        ["tmux", "-S", str(socket), "capture-pane", "-p"], check=True, capture_output=True, text=True
    )
    return shown.stdout.strip()


@pytest.mark.parametrize(("text", "may_come"), [("late", True), ("late\nlines", False)])
def test_what_may_yet_be_typed_is_told_apart_from_what_is_not(
    tmp_path: Path, text: str, may_come: bool
) -> None:
    async def story(hung: Terminal, server: int) -> None:
        with stopped(server), pytest.raises(TmuxUnreachable) as told:
            await hung.send(text, False, 0.0)
        assert isinstance(told.value, TmuxUnanswered) == may_come
        await hung.send("after", True, 0.0)

    with terminal(tmp_path / "hung") as (hung, server):
        asyncio.run(story(hung, server))
        until(lambda: screen(hung.socket).count("after") == 2)
        # What waited in the socket comes first, or never.
        assert screen(hung.socket).startswith("lateafter" if may_come else "after")


def test_of_text_and_enter_one_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(hung: Terminal, server: int) -> None:
        through = tmux._through_libtmux

        async def stop_after(socket: Path, arguments: Sequence[str]) -> list[str]:
            answer = await through(socket, arguments)
            os.kill(server, signal.SIGSTOP)
            return answer

        monkeypatch.setattr(tmux, "_through_libtmux", stop_after)
        try:
            with pytest.raises(TmuxUnanswered, match="the text was, Enter perhaps not: tmux did not answer"):
                await hung.send("half", True, 0.0)
        finally:
            os.kill(server, signal.SIGCONT)

    with terminal(tmp_path / "hung") as (hung, server):
        asyncio.run(story(hung, server))


def test_whoever_sends_is_told_that_it_may_yet_be_typed(amux: Amux) -> None:
    session = amux.create(["cat"], name="fz")
    show = f"systemctl --user show -P MainPID amux-{session.id}.service"
    server = amux.machine.run(["sh", "-c", show]).stdout.strip()
    amux.machine.run(["kill", "-STOP", server])
    try:
        refused = amux.cli("send", "fz", "x", check=False)
    finally:
        amux.machine.run(["kill", "-CONT", server])
    assert (refused.returncode, refused.stderr) == (
        1,
        "amux: it is not known whether it was typed into fz, or will be yet: "
        "tmux did not answer within 5 s\n",
    )
    until(lambda: "x" in session.log())


def test_a_client_that_is_killed_may_have_done_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "tmux"
    client.write_text("#!/bin/sh\nkill -KILL $$\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TmuxUnanswered, match="its client was killed by SIGKILL"):
        asyncio.run(Terminal("tmux", tmp_path / "socket").send("x", False, 0.0))


@pytest.mark.parametrize("lives_on", [False, True])
def test_who_took_down_the_output_of_one_that_ends_has_ended_with_it(tmp_path: Path, lives_on: bool) -> None:
    async def story(layout: Layout, server: int) -> None:
        outputs = Outputs(Store(tmp_path / "state"), layout, 1)
        process = identify(server)
        assert process
        # Nobody can ask it any more, as when it is about to end.
        layout.socket("abc").unlink()
        if lives_on:
            with pytest.raises(LoggerMissing):
                await outputs.logger("abc", 1, process)
        else:
            asyncio.get_running_loop().call_later(0.1, os.kill, server, signal.SIGTERM)
            assert await outputs.logger("abc", 1, process) is None

    layout = Layout(tmp_path / "run")
    with terminal(layout.socket("abc")) as (_, server):
        asyncio.run(story(layout, server))


def test_where_it_cannot_be_seen_whether_it_ends_it_is_not_taken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left(_: Process) -> int | None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story(layout: Layout, server: int) -> None:
        process = identify(server)
        assert process
        layout.socket("abc").unlink()
        monkeypatch.setattr(processes, "open_process", no_descriptor_left)
        with pytest.raises(LoggerMissing):
            await Outputs(Store(tmp_path / "state"), layout, 1).logger("abc", 1, process)

    layout = Layout(tmp_path / "run")
    with terminal(layout.socket("abc")) as (_, server):
        asyncio.run(story(layout, server))
