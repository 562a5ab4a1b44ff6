"""A terminal that does not open is opened again; one that never does is a refusal that says what was seen."""

import asyncio
import logging
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from harness.client import Client
from harness.daemon import Amux
from harness.waiting import until

from amuxd import processes
from amuxd.hosts import LaunchRefused, local
from amuxd.hosts.bare import Bare
from amuxd.records import Session
from amuxd.store import Store

# The first panes run what says nothing, in place of the command that is asked for.
TMUX = """#!/bin/sh
if [ "$5" = start-server ] && left=$(ls "{silent}" | head -n 1) && [ -n "$left" ]; then
    rm "{silent}/$left"
    sed 's/^"new-session".*/new-session -d -s main -- sh -c "{instead}"/; /^"pipe-pane"/d' "$4" >"$4.silent"
    exec {tmux} -S "$2" -f "$4.silent" start-server
fi
exec {tmux} "$@"
"""


# The server's parent is a process that is about to end, as it is for a while where the machine is slow.
SLOW_TMUX = """#!/bin/sh
if [ "$5" = start-server ]; then
    exec >/dev/null 2>&1
    ({tmux} -S "$2" -f "$4" -D & exec sleep 0.5) &
    until {tmux} -N -S "$2" list-sessions; do sleep 0.01; done
    exit
fi
exec {tmux} "$@"
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    # Without systemd, whatever bears its id on this machine is taken for a part of it.
    return Session(f"a{uuid.uuid4().hex[:8]}", "quiet", ["true"], str(tmp_path), 1000)


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As many panes say nothing as there are files in it."""
    directory, programs = tmp_path / "silent", tmp_path / "bin"
    directory.mkdir()
    programs.mkdir()
    tmux = programs / "tmux"
    instead = "echo nobody listens; exec sleep 1000"
    tmux.write_text(TMUX.format(silent=directory, tmux=shutil.which("tmux"), instead=instead))
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(local, "FIRST_DEADLINE", 1.0)
    return directory


@asynccontextmanager
async def a_host(tmp_path: Path, session: Session) -> AsyncIterator[local.LocalHost]:
    store = Store(tmp_path / "state")
    store.directory(session.id).mkdir()
    host = local.LocalHost(Bare(tmp_path / "run/tmux"), store, tmp_path / "run", 1 << 20)
    try:
        yield host
    finally:
        await host.tear_down(session.id, at_once=True)


def test_a_terminal_that_says_nothing_is_opened_again(
    tmp_path: Path,
    session: Session,
    silent: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (silent / "1").touch()
    monkeypatch.setattr(logging.getLogger("amuxd"), "propagate", True)

    async def main() -> None:
        async with a_host(tmp_path, session) as host:
            home = await host.launch(session, 1, keep_terminal=False)
            assert processes.identify(home.command.pid) == home.command
            home.close()

    asyncio.run(main())
    assert "is opened again: both said nothing (alive, without a log, in sleep)" in caplog.text
    assert "nobody listens" in caplog.text


def test_a_terminal_that_never_opens_is_a_refusal_that_says_what_was_seen(
    tmp_path: Path, session: Session, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (silent / "1").touch()
    (silent / "2").touch()
    monkeypatch.setattr(local, "PANE_DEADLINE", 1.0)

    async def main() -> None:
        async with a_host(tmp_path, session) as host:
            with pytest.raises(
                LaunchRefused, match=r"did not open within 1 s: both said nothing .*nobody listens"
            ):
                await host.launch(session, 1, keep_terminal=False)
            await host.tear_down(session.id, at_once=True)
            assert not host.has_terminal(session.id)

    asyncio.run(main())


@contextmanager
def first_in_path(amux: Amux, directory: Path) -> Iterator[None]:
    path = amux.environment["PATH"]
    amux.machine.systemctl("set-environment", f"PATH={directory}:{path}")
    amux.restart()
    try:
        yield
    finally:
        amux.machine.systemctl("set-environment", f"PATH={path}")
        amux.restart()


def test_the_first_process_of_the_two_of_a_daemon_is_not_taken_for_it(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    programs = amux.machine.temporary / "programs"
    programs.mkdir()
    tmux = programs / "tmux"
    tmux.write_text(SLOW_TMUX.format(tmux="/usr/bin/tmux"))
    tmux.chmod(0o755)
    with first_in_path(amux, programs):
        session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"])
        main = amux.machine.systemctl("show", "--value", "--property=MainPID", session.get("Unit"))
        server = Path(f"/proc/{amux.machine.outside_pid(int(main))}/cmdline").read_bytes().split(b"\0")
        assert server[-2] == b"-D"
        first = amux.machine.pids_of("sleep") - {amux.machine.outside_pid(session.get("Pid"))}
        until(lambda: not first & amux.machine.pids_of("sleep"))
        assert session.get("State") == "running"
        until(lambda: "ready" in session.log())
        assert not [line for line in amux.journal() if "opened again" in line["MESSAGE"]]
        session.call("Stop", "a{sv}", {})


@pytest.mark.parametrize("where", ["amux", "embedded"])
def test_directories_that_were_swept_away_are_made_again(request: pytest.FixtureRequest, where: str) -> None:
    amux = request.getfixturevalue(where)
    assert isinstance(amux, Client)
    amux.cli("ls")
    for name in ("tmux", "gates", "attached"):
        shutil.rmtree(amux.machine.outside(amux.runtime / name))
    session = amux.create(["sh", "-c", "echo ready; exec sleep 1000"])
    session.wait_state("running")
    until(lambda: "ready" in session.log())
    # And amuxd hears again of who comes and goes.
    with amux.terminal("attach", session.id):
        until(lambda: session.get("Attached") == 1)
    until(lambda: session.get("Attached") == 0)
    session.stop()


def test_a_runtime_directory_that_was_swept_away_is_made_again_for_its_user_alone(
    tmp_path: Path, session: Session
) -> None:
    async def main() -> None:
        async with a_host(tmp_path, session) as host:
            shutil.rmtree(tmp_path / "run")
            home = await host.launch(session, 1, keep_terminal=False)
            home.close()
        made = [tmp_path / "run", *(tmp_path / "run").iterdir()]
        assert {path.name: path.stat().st_mode & 0o777 for path in made} == dict.fromkeys(
            ("run", "tmux", "gates", "attached"), 0o700
        )

    asyncio.run(main())
