"""Every end has its own reason, and it is the true one."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ends_fixtures import ENDLESS, certified, drop_in, end, ended, forgetful, made, ready
from harness.client import Client
from harness.daemon import Amux

from amuxd import processes
from amuxd.records import Process
from amuxd.states import End


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("exit 0", end("completed", "exited with code 0", 0)),
        ("exit 3", end("failed", "exited with code 3", 3)),
        ("exit 127", end("failed", "exited with code 127", 127)),
        ("ulimit -c 0; kill -SEGV $$", end("failed", "killed by SIGSEGV", signal="SIGSEGV")),
        (
            "ulimit -c unlimited; kill -SEGV $$",
            end("failed", "killed by SIGSEGV (core dumped)", signal="SIGSEGV", core=True),
        ),
    ],
)
def test_a_command_ends_by_itself(anywhere: Client, script: str, wanted: dict[str, Any]) -> None:
    with anywhere.events() as events:
        session = anywhere.create(
            ["sh", "-c", f"echo first; echo last words; {script}"], cwd=str(anywhere.machine.temporary)
        )
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["first", "last words"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGHUP", "SIGRTMIN+3"])
def test_a_command_is_killed_by_hand(anywhere: Client, name: str) -> None:
    with anywhere.events() as events:
        session = anywhere.create(ENDLESS)
        ready(session)
        session.call("Kill", "s", name)
        wanted = end("failed", f"killed by {name}", signal=name)
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["ready"]


FIRST_MILLISECOND = {
    "true": end("completed", "exited with code 0", 0),
    "false": end("failed", "exited with code 1", 1),
    "kill -SEGV $$": end("failed", "killed by SIGSEGV", signal="SIGSEGV"),
    "kill -KILL $$": end("failed", "killed by SIGKILL", signal="SIGKILL"),
}


def brief(script: str) -> list[str]:
    return [script] if " " not in script else ["sh", "-c", script]


@pytest.mark.parametrize("script", FIRST_MILLISECOND)
def test_ends_in_the_first_millisecond_one_after_the_other(anywhere: Client, script: str) -> None:
    for _ in range(5):
        with anywhere.events() as events:
            session = anywhere.create(brief(script))
            assert ended(session) == FIRST_MILLISECOND[script]
            assert certified(anywhere, events, session, FIRST_MILLISECOND[script]) == []
            session.remove()


def test_twenty_ends_in_the_first_millisecond_at_once(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    scripts = list(FIRST_MILLISECOND) * 5
    with amux.events() as events:
        sessions = [(script, amux.create(brief(script), start=False)) for script in scripts]
        starting = [
            amux.machine.popen(
                [
                    "busctl",
                    "--user",
                    "call",
                    "org.amux.Amux1",
                    session.path,
                    "org.amux.Amux1.Session",
                    "Start",
                ]
            )
            for _, session in sessions
        ]
        assert [process.wait(30) for process in starting] == [0] * len(sessions)
        for script, session in sessions:
            assert ended(session) == FIRST_MILLISECOND[script]
            assert certified(amux, events, session, FIRST_MILLISECOND[script]) == []


@pytest.mark.parametrize("script", ["", "; kill -SEGV $$"])
def test_ten_thousand_lines_just_before_the_end(anywhere: Client, script: str) -> None:
    code = "SIGSEGV" if script else ""
    for _ in range(3):
        session = anywhere.create(["sh", "-c", f"seq -f 'line %.0f' 1 10000{script}"])
        assert ended(session)["ExitSignal"] == code
        lines = session.certificate()["last_lines"]
        assert lines == [f"line {number}" for number in range(9981, 10001)]
        wanted = b"".join(b"line %d\r\n" % number for number in range(1, 10001))
        assert Path(session.get("LogPath")).read_bytes() == wanted


def test_what_a_command_leaves_in_the_terminal_does_not_outlive_it(anywhere: Client) -> None:
    script = "trap '' HUP; sleep 1001 & echo $! >pid; echo over"
    with anywhere.events() as events:
        session = anywhere.create(["sh", "-c", script], cwd=str(anywhere.machine.temporary))
        wanted = end("completed", "exited with code 0", 0)
        assert ended(session) == wanted
        assert certified(anywhere, events, session, wanted) == ["over"]
    left = int((anywhere.machine.temporary / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        anywhere.machine.outside_pid(left)


# A machine that none of those is that this runs on: S/390.
FOREIGN = 22


def own_program() -> bytes:
    return Path("/bin/true").read_bytes()


def made_for(program: bytes, machine: int) -> bytes:
    return program[:18] + machine.to_bytes(2, sys.byteorder) + program[20:]


def loader_of(program: bytes) -> tuple[bytes, bytes]:
    """And another of the same length that is not there."""
    found = re.search(rb"/lib[^\0]*/ld-[^\0]*", program)
    assert found
    return found[0], b"/nonexistent".ljust(len(found[0]), b"x")


@pytest.mark.parametrize(
    ("command", "cwd", "why"),
    [
        (["nowhere-to-be-found"], "", "no such program: nowhere-to-be-found"),
        (["/nowhere/to-be-found"], "", "no such program: /nowhere/to-be-found"),
        (["./plain"], "", "./plain is not executable"),
        (["/usr"], "", "/usr is a directory"),
        (["true"], "missing", "no such directory: {cwd}"),
        (["true"], "plain", "not a directory: {cwd}"),
        (
            ["./orphan", "word"],
            "",
            "./orphan cannot be run: its interpreter /nonexistent/interpreter is missing",
        ),
        (
            ["./orphans-child"],
            "",
            "./orphans-child cannot be run: its interpreter /nonexistent/interpreter is missing",
        ),
        (["./of-plain"], "", "./of-plain cannot be run: its interpreter ./plain is not executable"),
        (["./foreign"], "", "./foreign cannot be run: it is made for another kind of processor"),
        (["./unloadable"], "", "./unloadable cannot be run: its interpreter {loader} is missing"),
        # Only the kernel finds these out, once the command is let go.
        (["./loop"], "", "./loop cannot be run: Too many levels of symbolic links"),
        (["./damaged"], "", "./damaged cannot be run: Exec format error"),
    ],
)
def test_a_program_that_cannot_start(anywhere: Client, command: Sequence[str], cwd: str, why: str) -> None:
    temporary = anywhere.machine.temporary
    made(temporary, "plain", "echo never\n", 0o644)
    made(temporary, "orphan", "#!/nonexistent/interpreter\n", 0o755)
    made(temporary, "orphans-child", "#! \t./orphan -x\n", 0o755)
    made(temporary, "of-plain", "#!./plain\n", 0o755)
    made(temporary, "loop", "#!./loop\n", 0o755)
    program = own_program()
    made(temporary, "foreign", made_for(program, FOREIGN), 0o755)
    loader, other = loader_of(program)
    made(temporary, "unloadable", program.replace(loader, other), 0o755)
    made(temporary, "damaged", program[:64].ljust(512, b"\0"), 0o755)
    directory = str(temporary / cwd)
    with anywhere.events() as events:
        session = anywhere.create(command, cwd=directory)
        wanted = end("failed", "could not start: " + why.format(cwd=directory, loader=other.decode()))
        assert ended(session) == wanted
        lines = certified(anywhere, events, session, wanted)
        assert "never" not in lines
        assert session.get("StartedUSec") == 0 or command[0] in ("./loop", "./damaged")
    if session.get("StartedUSec") == 0 and not cwd:
        refused = anywhere.cli("run", *command, cwd=directory, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.endswith(f" could not start: {why.format(loader=other.decode())}\n")


def test_a_script_without_a_first_line_is_one_for_the_shell(anywhere: Client) -> None:
    script = made(anywhere.machine.temporary, "script", "echo ran with $1\nexit 4\n", 0o755)
    session = anywhere.create([script, "words"])
    assert ended(session) == end("failed", "exited with code 4", 4)
    assert session.certificate()["last_lines"] == ["ran with words"]


def test_tmux_is_missing(amux: Amux) -> None:
    with drop_in(amux, "[Service]\nEnvironment=PATH=/var/empty\n"), amux.events() as events:
        session = amux.create(["/bin/true"])
        wanted = end("failed", "could not start: tmux is not installed")
        assert ended(session) == wanted
        assert certified(amux, events, session, wanted) == []
    amux.restart()
    session.call("Restart")
    assert ended(session) == end("completed", "exited with code 0", 0)


def test_a_kernel_that_forgets_what_was_reaped(amux: Amux) -> None:
    ends = [
        ("exit 0", end("completed", "exited with code 0", 0)),
        ("exit 3", end("failed", "exited with code 3", 3)),
        ("kill -SEGV $$", end("failed", "killed by SIGSEGV", signal="SIGSEGV")),
        ("kill -KILL $$", end("failed", "killed by SIGKILL", signal="SIGKILL")),
    ]
    with drop_in(amux, forgetful(amux)), amux.events() as events:
        for script, wanted in ends * 3:
            session = amux.create(["sh", "-c", f"echo last words; {script}"])
            assert ended(session) == wanted
            assert certified(amux, events, session, wanted) == ["last words"]
            session.remove()
        session = amux.create(ENDLESS)
        ready(session)
        session.stop()
        assert session.state == "stopped"


def test_how_a_process_ended_is_read_before_and_after_it_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(script: str) -> tuple[subprocess.Popen[bytes], Process, int]:
        child = subprocess.Popen(["sh", "-c", script], cwd="/")
        process = processes.identify(child.pid)
        assert process is not None
        pidfd = processes.open_process(process)
        assert pidfd is not None
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        return child, process, pidfd

    child, process, pidfd = over("exit 3")
    kernel_keeps = processes._kept_status(pidfd, process) is not None
    monkeypatch.setattr(processes, "_GET_INFO", 0)
    assert processes.end_of(pidfd, process) == End(code=3)
    child.wait()
    assert processes.end_of(pidfd, process) is None
    os.close(pidfd)
    child, process, pidfd = over("ulimit -c 0; kill -SEGV $$")
    assert processes.end_of(pidfd, process) == End(signal="SIGSEGV", core_dumped=False)
    child.wait()
    monkeypatch.undo()
    if kernel_keeps:
        assert processes.end_of(pidfd, process) == End(signal="SIGSEGV", core_dumped=False)
    os.close(pidfd)
