"""How a program ended that is another user's, as sudo is, or that lets nobody look into it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from away_fixtures import stays_down
from ends_fixtures import certified, drop_in, end, ended, forgetful, kernel_remembers, ready
from harness.daemon import Amux
from harness.waiting import until

from amuxd import processes
from amuxd.hosts import launch

# Root may look into everything but for this.
AS_OTHERS_SEE_IT = "[Service]\nCapabilityBoundingSet=~CAP_SYS_PTRACE\n"
AS_ANOTHER = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c"]
SHUT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(4, 0); print('last words', flush=True); os._exit(3)"
UNKNOWN = end("failed", "ended, and how is not known")

remembered = pytest.mark.skipif(
    not kernel_remembers(), reason="this kernel forgets how a process ended when it is reaped"
)


@remembered
@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("exit 0", end("completed", "exited with code 0", 0)),
        ("exit 3", end("failed", "exited with code 3", 3)),
        ("ulimit -c 0; kill -SEGV $$", end("failed", "killed by SIGSEGV", signal="SIGSEGV")),
        ("kill -KILL $$", end("failed", "killed by SIGKILL", signal="SIGKILL")),
    ],
)
def test_another_users(amux: Amux, script: str, wanted: dict[str, Any]) -> None:
    with drop_in(amux, AS_OTHERS_SEE_IT), amux.events() as events:
        session = amux.create([*AS_ANOTHER, f"seq 10000; echo last words; {script}"])
        assert ended(session) == wanted
        assert certified(amux, events, session, wanted)[-2:] == ["10000", "last words"]
        assert session.log().splitlines()[-10001:] == [*map(str, range(1, 10001)), "last words"]


@remembered
def test_one_that_lets_nobody_look_into_it(amux: Amux) -> None:
    with drop_in(amux, AS_OTHERS_SEE_IT), amux.events() as events:
        session = amux.create([sys.executable, "-c", SHUT])
        wanted = end("failed", "exited with code 3", 3)
        assert ended(session) == wanted
        assert certified(amux, events, session, wanted) == ["last words"]


@remembered
def test_one_that_ended_while_nobody_watched(amux: Amux) -> None:
    with drop_in(amux, AS_OTHERS_SEE_IT):
        session = amux.create(
            [*AS_ANOTHER, "trap 'echo last words; exit 3' USR1; echo ready; while :; do sleep 0.1; done"]
        )
        ready(session)
        pid = session.get("Pid")
        with stays_down(amux, signal.SIGTERM):
            amux.machine.kill(pid, signal.SIGUSR1)
            until(session.command_has_ended)
        assert ended(session) == end("failed", "exited with code 3", 3)
        assert session.certificate()["last_lines"] == ["ready", "last words"]


def test_a_kernel_that_forgets_says_nothing_untrue(amux: Amux) -> None:
    with drop_in(amux, forgetful(amux) + "CapabilityBoundingSet=~CAP_SYS_PTRACE\n"):
        for script in ("exit 0", "exit 3", "kill -KILL $$"):
            session = amux.create([*AS_ANOTHER, f"echo last words; {script}"])
            assert ended(session) == UNKNOWN
            assert session.get("HowEnded") == "end not known"
            certificate = session.certificate()
            assert (certificate["known"], certificate["last_lines"]) == (False, ["last words"])


def test_what_its_parent_wrote_down_is_told_where_the_kernel_forgets(amux: Amux) -> None:
    with drop_in(amux, forgetful(amux) + "CapabilityBoundingSet=~CAP_SYS_PTRACE\n"), amux.events() as events:
        session = amux.create([*AS_ANOTHER, "echo ready; read word; exit 3"])
        ready(session)
        run = amux.state / "sessions" / session.id / "runs/1"
        (run / "ended").write_text(f"{os.CLD_EXITED} 3\n")
        session.send("go")
        wanted = end("failed", "exited with code 3", 3)
        assert ended(session) == wanted
        assert certified(amux, events, session, wanted)[0] == "ready"
        (run / "ended").write_text("damaged")
        session.call("Restart")
        session.wait_state("running")
        assert not (run.with_name("2") / "ended").exists()


def where_sudo_could_be() -> str:
    places = (tempfile.gettempdir(), "/var/tmp", str(Path.home()))
    return next(place for place in places if not os.statvfs(place).f_flag & os.ST_NOSUID)


@pytest.mark.parametrize("told", [True, False])
def test_who_looks_at_it_sees_how_it_ended(amux: Amux, told: bool) -> None:
    with drop_in(amux, AS_OTHERS_SEE_IT):
        session = amux.create([*AS_ANOTHER, "echo ready; read word; exit 3"])
        ready(session)
        if told:
            ended_file = amux.state / "sessions" / session.id / "runs/1/ended"
            ended_file.write_text(f"{os.CLD_EXITED} 3\n")
        with amux.terminal("attach", session.id, columns=120) as terminal:
            terminal.expect("ready")
            until(lambda: session.get("Attached") == 1)
            terminal.type("go\r")
            known = "Process exited with code 3. Click or press R to restart."
            unknown = "Process has ended. Click or press R to restart."
            # What is drawn without word of the end is drawn once more where the kernel was asked in time.
            terminal.expect_any(*[known] * (told or kernel_remembers()), *[unknown] * (not told))
            if kernel_remembers():
                assert ended(session) == end("failed", "exited with code 3", 3)


@contextmanager
def pane(*command: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """As a person has it, its command just let go: the directory of the run, and the process."""
    with tempfile.TemporaryDirectory(prefix="amux-test-", dir=where_sudo_could_be()) as place:
        top = Path(place)
        sudo = Path(shutil.copy(shutil.which("setpriv") or "", top / "sudo"))
        sudo.chmod(0o4755)
        shutil.copy(launch.__file__, top)
        (top / "command").write_text("\0".join(["/", f"{top}:{os.defpath}", *command]))
        (top / "token").write_text("secret")
        for name in ("gate", "up", "end"):
            os.mkfifo(top / name)
        for path in {top, *top.iterdir()} - {sudo}:
            os.chown(path, 65534, 65534)
        gates = [os.open(top / name, os.O_RDWR) for name in ("gate", "up", "end")]
        python = ["/usr/bin/python3", "-I", "-S", str(top / "launch.py"), str(top), str(top)]
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        process = subprocess.Popen([*as_nobody, *python], start_new_session=True)
        try:
            os.write(gates[0], launch.GO)
            yield top, process
        finally:
            for gate in gates:
                os.close(gate)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 0", f"{os.CLD_EXITED} 0\n"),
        ("exit 3", f"{os.CLD_EXITED} 3\n"),
        ("ulimit -c 0; kill -SEGV $$", f"{os.CLD_KILLED} 11\n"),
    ],
)
def test_its_parent_writes_down_what_nobody_else_is_told(script: str, told: str) -> None:
    with pane("sudo", "--reuid=0", "--clear-groups", "sh", "-c", script) as (run, process):
        until((run / "ended").exists)
        assert (run / "ended").read_text() == told
        # It becomes the one who keeps the terminal open, and reaps nobody.
        until(lambda: processes.command_line(process.pid)[:1] == ["cat"])
        [child] = processes.children(process.pid)
        assert Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_parent_of_an_ordinary_command_is_small_at_once() -> None:
    with pane("sleep", "1000") as (run, process):
        until(lambda: processes.command_line(process.pid)[:1] == ["cat"])
        [child] = processes.children(process.pid)
        assert processes.command_line(child)[:1] == ["sleep"]
        assert not (run / "ended").exists()
