"""The CLI against a stand-in for amuxd, on a private bus: every way to fail, terminals, pipes, restarts."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

from amuxd import __version__, paths
from amuxd.cli.text import width

ROOT = Path(__file__).parents[2]
STANDIN = Path(__file__).with_name("standin.py")
DEADLINE = 20
AMUX = [sys.executable, "-m", "amuxd.cli"]
CONFIG = """<busconfig><type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<servicedir>{services}</servicedir><policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"""


def read_until(descriptor: int, pattern: str) -> str:
    """What is read until the pattern is in it; at the end of the output, all of it."""
    text = b""
    deadline = time.monotonic() + DEADLINE
    while not re.search(pattern, text.decode(errors="replace")):
        assert select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0], text
        try:
            block = os.read(descriptor, 4096)
        except OSError:
            block = b""
        if not block:
            raise AssertionError(f"ended before {pattern!r}: {text!r}")
        text += block
    return text.decode(errors="replace")


class Background:
    """An amux that goes on while the test does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        return read_until(self.process.stdout.fileno(), pattern)

    def ends(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out.decode(), err.decode()


class Terminal:
    def __init__(
        self, arguments: list[str], environment: dict[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.main, slave = pty.openpty()
        os.set_blocking(self.main, True)
        subprocess.run(["stty", "cols", str(columns), "rows", str(rows)], stdin=slave, check=True)
        self.process = subprocess.Popen(
            arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def until(self, pattern: str) -> str:
        return read_until(self.main, pattern)

    def type(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def ends(self) -> tuple[int, str]:
        text = b""
        while True:
            try:
                block = os.read(self.main, 4096)
            except OSError:
                break
            if not block:
                break
            text += block
        return self.process.wait(DEADLINE), text.decode()


class Stand:
    """A bus, a stand-in on it, and the CLI beside them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "session-bus"
        self.services = directory / "services"
        self.services.mkdir()
        self.address = f"unix:path={self.socket}"
        unwanted = ("AMUX_", "DBUS_", "NO_COLOR", "COLUMNS", "TMUX")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)} | {
            "DBUS_SESSION_BUS_ADDRESS": self.address,
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "PYTHONPATH": str(ROOT),
            "STANDIN_FILE": str(directory / "standin.json"),
            "TERM": "xterm-256color",
        }
        (directory / "run").mkdir(mode=0o700)
        self.running: list[subprocess.Popen[bytes]] = []
        self.bus = self._start_bus()
        self.standin: subprocess.Popen[bytes] | None = None

    def _start_bus(self) -> subprocess.Popen[bytes]:
        config = self.directory / "bus.conf"
        config.write_text(CONFIG.format(socket=self.socket, services=self.services))
        command = [
            "dbus-daemon",
            "--config-file",
            str(config),
            "--nofork",
            "--nopidfile",
            "--print-address=1",
        ]
        bus = self._started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert bus.stdout is not None
        assert bus.stdout.readline()
        return bus

    def _started(self, command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=self.environment, **settings)
        self.running.append(process)
        return process

    def start(self, **kept: Any) -> None:
        file = Path(self.environment["STANDIN_FILE"])
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | kept))
        self.standin = self._started([sys.executable, str(STANDIN)], stdout=subprocess.PIPE)
        assert self.standin.stdout is not None
        assert self.standin.stdout.readline() == b"ready\n"

    def stop(self, how: int = signal.SIGKILL) -> None:
        assert self.standin is not None
        self.standin.send_signal(how)
        self.standin.wait(DEADLINE)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(DEADLINE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def amux(self, *arguments: str | bytes, text: str = "", **environment: str) -> tuple[int, str, str]:
        finished = subprocess.run(
            [*AMUX, *arguments],
            input=text.encode(),
            capture_output=True,
            env=self.environment | environment,
            timeout=DEADLINE,
            check=False,
        )
        return finished.returncode, finished.stdout.decode(), finished.stderr.decode()

    def begin(self, *arguments: str) -> Background:
        return Background(self._started([*AMUX, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def terminal(self, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
        terminal = Terminal([*AMUX, *arguments], self.environment | environment, columns, rows)
        self.running.append(terminal.process)
        return terminal

    def tell(self, member: str, signature: str = "", *body: Any) -> tuple[Any, ...]:
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = self.address
        with open_dbus_connection() as connection:
            address = DBusAddress(paths.MANAGER_PATH, paths.BUS_NAME, "org.amux.Standin")
            call = new_method_call(address, member, signature or None, body)
            reply = connection.send_and_get_reply(call, timeout=DEADLINE)
        assert reply.header.message_type is MessageType.method_return, reply.body
        return reply.body

    def sent(self) -> list[Any]:
        return list(json.loads(self.tell("Sent")[0]))

    def kill_standin(self) -> None:
        standin, _ = self._processes()
        os.kill(standin, signal.SIGKILL)

    def owner_of_bus(self) -> int:
        return self._processes()[1]

    def _processes(self) -> tuple[int, int]:
        """amuxd's stand-in and the bus itself."""
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = self.address
        address = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        with open_dbus_connection() as connection:
            found = [
                connection.send_and_get_reply(
                    new_method_call(address, "GetConnectionUnixProcessID", "s", (name,)), timeout=DEADLINE
                ).body[0]
                for name in (paths.BUS_NAME, "org.freedesktop.DBus")
            ]
        return found[0], found[1]

    def waiting(self, *names: str, options: Sequence[str] = ()) -> Background:
        """An amux wait that has asked for the names and then looked: from here on it only listens."""
        before = self.tell("Calls")[0].count("GetAll")
        background = self.begin("wait", *options, *names)
        wait_for(lambda: self.tell("Calls")[0].count("GetAll") >= before + 2 * len(names))
        return background


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unset")
    stand = Stand(tmp_path)
    try:
        yield stand
    finally:
        stand.close()


@pytest.fixture
def stand(bus: Stand) -> Stand:
    bus.start()
    return bus


@pytest.fixture
def build(stand: Stand) -> Stand:
    """With a session build, s001, that runs."""
    assert stand.amux("run", "-n", "build", "-d", "what for", "make", "-j4")[0] == 0
    return stand


# run


def test_run_says_name_and_id_and_passes_what_was_asked(stand: Stand) -> None:
    arguments = ["-n", "a name", "-d", "what for", "-e", "A=b", "-C", "/", "--shell", "--memory-max", "1.5G"]
    limits = ["--cpu-quota", "50%", "--cpu-weight", "10", "--tasks-max", "5", "--memory-high", "infinity"]
    code, out, err = stand.amux("run", *arguments, *limits, "make", "-j4", "--wait", EDITOR="vi", SECRET="s")
    assert (code, out, err) == (0, "started a name (s001)\n", "")
    _, command, options = stand.sent()[0]
    assert command == ["make", "-j4", "--wait"]
    env = options.pop("env")
    assert (env["A"], env["EDITOR"]) == ("b", "vi")
    assert "SECRET" not in env
    assert options == {
        "name": "a name",
        "description": "what for",
        "cwd": "/",
        "shell": True,
        "memory_max": 3 << 29,
        "memory_high": 2**64 - 1,
        "cpu_quota": 50,
        "cpu_weight": 10,
        "tasks_max": 5,
    }


def test_run_without_a_command_is_the_shell_here(stand: Stand) -> None:
    assert stand.amux("run", "-q", SHELL="/bin/zsh")[1] == "s001\n"
    _, command, options = stand.sent()[0]
    assert command == ["/bin/zsh"]
    assert (options["cwd"], options["shell"]) == (str(Path.cwd()), False)


@pytest.mark.parametrize("name", ["with spaces", "🦀 🎉", "x" * 200, "-dash", "日本語"])
def test_names_go_all_the_way(stand: Stand, name: str) -> None:
    assert stand.amux("run", "-n", name, "make")[1] == f"started {name} (s001)\n"
    assert stand.amux("show", "--", name)[1].startswith(f"Session:     {name} (s001)\n")
    assert stand.amux("stop", "--", name)[1] == f"stopped {name} (s001)\n"


def test_a_program_that_cannot_start_leaves_a_failed_session(stand: Stand) -> None:
    code, out, err = stand.amux("run", "nope")
    assert (code, out, err) == (1, "", "amux: nope (s001): no such program: nope\n")
    assert "failed (could not start)" in stand.amux("ls")[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--memory-max", "4X"], "--memory-max"),
        (["--cpu-quota", "much"], "--cpu-quota"),
        (["--cpu-weight", "0"], "--cpu-weight"),
        (["--tasks-max", "-3"], "--tasks-max"),
        (["-C", "/does/not/exist"], "--directory"),
        (["-e", "NOT_SET_HERE"], "NOT_SET_HERE"),
        (["--attach", "--wait"], "--wait"),
        (["--frobnicate"], "--frobnicate"),
        (["-n", ""], "a name must not be empty"),
    ],
)
def test_a_bad_argument_leaves_no_session(stand: Stand, arguments: list[str], says: str) -> None:
    code, out, err = stand.amux("run", *arguments, "make")
    assert (code, out) == (2, "")
    assert err.startswith("amux: ")
    assert says in err.splitlines()[0]
    assert stand.sent() == []


def test_text_that_is_not_utf8_is_refused(stand: Stand) -> None:
    assert stand.amux("run", "-n", b"a\xff", "make")[0] == 2
    assert stand.amux("run", "make", b"a\xff")[0] == 2
    assert stand.sent() == []


def test_run_in_a_directory_that_is_gone(stand: Stand) -> None:
    script = f'mkdir {stand.directory}/gone && cd {stand.directory}/gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", script, "sh", *AMUX, "run", "make"]
    finished = subprocess.run(command, env=stand.environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert finished.stderr == "amux: this directory no longer exists\n      amux run -C DIR\n"


@pytest.mark.parametrize("code", [0, 7])
def test_run_wait_gives_the_code_even_of_an_end_that_came_at_once(stand: Stand, code: int) -> None:
    assert stand.amux("run", "-q", "--wait", "exit", str(code)) == (code, "s001\n", "")


def test_run_wait_gives_the_signal_and_ctrl_c_leaves_it_running(stand: Stand) -> None:
    first = stand.begin("run", "--wait", "-n", "one", "make")
    first.until("started")
    stand.tell("Exit", "sis", "s001", -1, "SIGSEGV")
    assert first.ends()[0] == 128 + signal.SIGSEGV
    second = stand.begin("run", "--wait", "-n", "two", "make")
    second.until("started")
    second.process.send_signal(signal.SIGINT)
    code, _, err = second.ends()
    assert (code, err.strip()) == (130, "amux: two (s002) goes on\n      amux attach s002")
    assert "running" in stand.amux("ls")[1]


@pytest.mark.parametrize(("options", "known"), [([], "it"), (["-n", "named"], "named")])
def test_ctrl_c_before_run_is_answered_says_that_it_may_be_there(
    stand: Stand, options: list[str], known: str
) -> None:
    stand.tell("Behave", "s", '{"silent": ["CreateSession"]}')
    running = stand.begin("run", *options, "make")
    wait_for(lambda: "CreateSession" in stand.tell("Calls")[0])
    running.process.send_signal(signal.SIGINT)
    assert running.ends() == (130, "", f"amux: {known} may have been started\n      amux ls\n")


# ls, show, history


def test_an_empty_list(stand: Stand) -> None:
    assert stand.amux("ls") == (0, "", "")
    assert stand.amux("ls", "--json") == (0, "[]\n", "")
    assert "no sessions yet" in stand.terminal("ls").ends()[1]


def test_ls_in_a_pipe_has_columns_for_programs(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", 3, "")
    code, out, err = build.amux("ls")
    assert (code, err) == (0, "")
    head, row = [line.split("\t") for line in out.splitlines()]
    columns = ["SESSION", "NAME", "DESCRIPTION", "AGENT", "WORKSPACE", "STATUS", "IN-STATUS", "TOTAL"]
    assert head == columns
    assert row[:6] == ["s001", "build", "what for", "-", "-", "failed (exit 3)"]


def test_ls_on_a_terminal_fits_it_and_shows_names_harmless(stand: Stand) -> None:
    stand.amux("run", "-n", "日本\x1b[2Jx" + "y" * 80, "-d", "long " * 40, "make")
    code, out = stand.terminal("ls", columns=70).ends()
    assert code == 0
    assert "\x1b[2J" not in out
    assert "\\e[2J" in out
    assert "…" in out
    assert "\x1b[32mrunning" in out
    assert "AGENT" not in out
    plain = stand.terminal("ls", columns=70, NO_COLOR="1").ends()[1]
    assert "\x1b" not in plain
    assert all(width(line) <= 70 for line in plain.splitlines())


def test_ls_filters(build: Stand) -> None:
    build.amux("run", "nope")
    assert build.amux("ls", "--state", "failed")[1].count("\n") == 2
    build.amux("archive", "nope")
    assert "nope" not in build.amux("ls")[1]
    assert "nope" in build.amux("ls", "-a")[1]
    assert "nope" in build.amux("ls", "--state", "archived", "--state", "failed")[1]
    assert build.amux("ls", "--state", "happy")[0] == 2


def test_json_is_snake_case_with_null(build: Stand) -> None:
    (listed,) = json.loads(build.amux("ls", "--json")[1])
    assert listed == json.loads(build.amux("show", "--json", "build")[1])
    assert (listed["id"], listed["state"], listed["session_alive"]) == ("s001", "running", True)
    assert (listed["exit_code"], listed["exit_signal"], listed["workspace"]) == (None, None, None)
    assert listed["command"] == ["make", "-j4"]


def test_ls_watch_shows_each_change(build: Stand) -> None:
    watching = build.begin("ls", "--watch")
    watching.until("running")
    build.tell("Exit", "sis", "s001", 2, "")
    watching.until(r"failed \(exit 2\)")
    build.stop()
    build.start()
    build.amux("run", "-n", "after", "make")
    watching.until("after")
    watching.process.send_signal(signal.SIGINT)
    code, _, err = watching.ends()
    assert (code, err.strip()) == (130, "")


@pytest.mark.parametrize(("rows", "hidden"), [(23, 0), (22, 2), (4, 20), (2, 20)])
def test_ls_watch_says_how_many_do_not_fit(stand: Stand, rows: int, hidden: int) -> None:
    for number in range(20):
        stand.amux("run", "-q", "-n", f"session-{number}", "true")
    watching = stand.terminal("ls", "--watch", rows=rows)
    screen = watching.until(r"session-19 .*\n" if not hidden else f"and {hidden} more, for which .*\n")
    assert screen.count("\n") <= rows - 1
    assert screen.count("session-") == 20 - hidden
    os.kill(watching.process.pid, signal.SIGINT)
    assert watching.ends()[0] == 130


def test_show_leaves_out_what_nobody_would_read(stand: Stand) -> None:
    stand.amux("run", "-n", "long", "-d", "why", "echo", "x" * 100_000)
    shown = stand.amux("show", "long")[1]
    assert len(shown) < 3000
    assert re.search(r"Command: +echo x{900,}… and 99005 more characters: --json has them\n", shown)
    assert json.loads(stand.amux("show", "--json", "long")[1])["command"] == ["echo", "x" * 100_000]


def test_show_tells_the_end(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", -1, "SIGSEGV")
    code, out, _ = build.amux("show", "build")
    assert code == 0
    assert "State:       failed (SIGSEGV): killed by SIGSEGV\n" in out
    assert "Ended:       SIGSEGV, 20" in out
    assert "  the last line\\e[31m\n  of all\n" in out
    assert "Next:        amux logs|restart|archive|rm s001" in out


def test_history(build: Stand) -> None:
    out = build.amux("history", "build")[1]
    assert [line.split("\t")[1:5] for line in out.splitlines()][1:] == [
        ["1", "created", "starting", "asked to start"],
        ["1", "starting", "running", "started"],
    ]
    last = json.loads(build.amux("history", "--json", "build")[1])[-1]
    assert {**last, "at_usec": 0} == {
        "at_usec": 0,
        "run": 1,
        "from": "starting",
        "to": "running",
        "reason": "started",
        "by": "standin",
    }


# stop, kill, restart, archive, rm, send


def test_several_go_on_after_a_failure_and_the_first_failure_counts(build: Stand) -> None:
    build.amux("run", "nope")
    code, out, err = build.amux("stop", "nobody", "nope", "build")
    assert code == 3
    assert out == "stopped build (s001)\n"
    assert "no session 'nobody': did you mean 'build'?" in err
    assert "a failed session cannot be stopped" in err
    assert build.amux("stop", "nope", "nobody")[0] == 4


def test_the_other_verbs(build: Stand) -> None:
    assert build.amux("stop", "--grace", "2s", "build")[:2] == (0, "stopped build (s001)\n")
    assert build.amux("restart", "build")[:2] == (0, "restarted build (s001)\n")
    assert build.amux("kill", "build", "-s", "9")[:2] == (0, "sent SIGKILL to build (s001)\n")
    assert build.amux("kill", "build", "-s", "int")[1] == "sent SIGINT to build (s001)\n"
    assert build.amux("kill", "build", "-s", "NOISE")[0] == 2
    assert build.amux("rm", "build")[0] == 4
    assert build.amux("rm", "-f", "build")[:2] == (0, "removed build (s001)\n")
    assert build.amux("show", "build")[0] == 3


@pytest.mark.parametrize(("verb", "member"), [("stop", "Stop"), ("restart", "Restart")])
def test_ctrl_c_says_what_goes_on(build: Stand, verb: str, member: str) -> None:
    build.amux("run", "-n", "other", "make")
    build.tell("Behave", "s", json.dumps({"silent": [member]}))
    acting = build.begin(verb, "nobody", "build", "other")
    wait_for(lambda: build.tell("Calls")[0].count(member) == 2)
    acting.process.send_signal(signal.SIGINT)
    code, out, err = acting.ends()
    assert (code, out.strip()) == (130, "")
    assert f"amux: {verb} goes on for build (s001), other (s002)\n" in err


def test_send(build: Stand) -> None:
    assert build.amux("send", "build", "ls -l") == (0, "", "")
    build.amux("send", "--no-enter", "build", "y")
    build.amux("send", "build", "-", text="one\ntwo\n")
    typed = [call[2:] for call in build.sent() if call[0] == "Send"]
    assert typed == [["ls -l", True], ["y", False], ["one\ntwo", True]]
    assert build.amux("send", "build", "-", text="a\0b")[0] == 2


# wait


def test_wait_gives_the_first_code_that_is_not_zero_in_the_order_given(build: Stand) -> None:
    for name in ("two", "three"):
        build.amux("run", "-n", name, "make")
    waiting = build.waiting("build", "two", "three")
    build.tell("Exit", "sis", "s003", 3, "")
    build.tell("Exit", "sis", "s002", 2, "")
    build.tell("Exit", "sis", "s001", 0, "")
    assert waiting.ends() == (2, "", "")


def test_wait_any_gives_the_one_that_ended(build: Stand) -> None:
    build.amux("run", "-n", "two", "make")
    waiting = build.waiting("build", "two", options=["--any"])
    build.tell("Exit", "sis", "s002", 2, "")
    assert waiting.ends() == (2, "s002\n", "")


def test_wait_has_a_time_limit(build: Stand) -> None:
    code, _, err = build.amux("wait", "--timeout", "0.1s", "build")
    assert (code, err) == (124, "amux: build (s001) goes on after 0.1s\n")
    assert build.amux("wait", "--timeout", "soon", "build")[0] == 2


def test_wait_does_not_take_suspended_for_an_end_and_survives_a_restart(build: Stand) -> None:
    waiting = build.waiting("build")
    build.tell("Move", "sss", "s001", "suspended", "amuxd stops")
    file = Path(build.environment["STANDIN_FILE"])
    build.stop()
    known = json.loads(file.read_text())
    known["sessions"]["s001"] |= {"State": "failed", "ExitCode": 9}
    build.start(**known)
    assert waiting.ends() == (9, "", "")


def test_wait_for_one_that_is_removed(build: Stand) -> None:
    waiting = build.waiting("build")
    build.amux("rm", "-f", "build")
    assert waiting.ends() == (3, "", "amux: build (s001) was removed\n")


@pytest.mark.parametrize(("verb", "code"), [("stop", 128 + signal.SIGTERM), ("archive", 0)])
def test_wait_for_one_that_the_user_ended(build: Stand, verb: str, code: int) -> None:
    build.amux(verb, "build")
    assert build.amux("wait", "build")[0] == code


# watch


def test_watch_tells_each_event_once_across_a_restart(build: Stand) -> None:
    watching = build.begin("watch", "--json")
    watching.until('"event": "session".*\n')
    build.tell("Attention", "sss", "s001", "permission", "may I?")
    watching.until('"event": "attention".*"permission".*\n')
    build.stop()
    build.start()
    build.tell("Exit", "sis", "s001", 1, "")
    lines = [json.loads(line) for line in watching.until('"exited".*\n').splitlines()]
    assert [(line["event"], line["id"]) for line in lines] == [("state", "s001"), ("exited", "s001")]
    assert (lines[0]["old"], lines[0]["new"], lines[0]["reason"]) == (
        "running",
        "failed",
        "exited with code 1",
    )
    assert (lines[1]["exit_code"], lines[1]["signal"]) == (1, None)
    build.amux("rm", "build")
    watching.until('"removed"')


def test_watch_for_people(build: Stand) -> None:
    watching = build.begin("watch")
    watching.until(r"build \(s001\)  running: started\n")
    build.amux("stop", "build")
    watching.until(r"running → stopped: asked to stop\n(.|\n)*exited: SIGTERM\n")


# logs


def log_of(stand: Stand, run: int = 1) -> Path:
    return stand.directory / "s001" / "runs" / str(run) / "output.log"


def test_logs_prints_bytes_and_last_lines(build: Stand) -> None:
    log_of(build).with_name("output.log.1").write_bytes(b"one\ntwo\n")
    log_of(build).write_bytes(b"three\n\xffour\n")
    finished = subprocess.run(
        [*AMUX, "logs", "build"], env=build.environment, capture_output=True, check=True
    )
    assert finished.stdout == b"one\ntwo\nthree\n\xffour\n"
    assert build.amux("logs", "build", "-n", "0")[1] == ""
    command = [*AMUX, "logs", "build", "-n", "3"]
    assert subprocess.check_output(command, env=build.environment) == b"two\nthree\n\xffour\n"


def test_logs_of_another_run(build: Stand) -> None:
    log_of(build, 2).parent.mkdir()
    log_of(build, 2).write_bytes(b"second\n")
    assert build.amux("logs", "build", "--run", "2")[1] == "second\n"
    assert build.amux("logs", "build", "--run", "7") == (1, "", "amux: build (s001) has no output of run 7\n")


def test_logs_follows_across_rotation_and_restart_to_the_end_of_the_run(build: Stand) -> None:
    log = log_of(build)
    log.write_bytes(b"one\n")
    following = build.begin("logs", "-f", "build")
    following.until("one\n")
    log.rename(log.with_name("output.log.1"))
    log.write_bytes(b"two\n")
    following.until("two\n")
    build.stop()
    with log.open("ab") as file:
        file.write(b"three\n")
    following.until("three\n")
    build.start()
    with log.open("ab") as file:
        file.write(b"four\n")
    build.tell("Exit", "sis", "s001", 0, "")
    assert following.ends() == (0, "four\n", "")
    assert build.amux("logs", "-f", "-n", "1", "build")[:2] == (0, "four\n")


# attach


def test_attach_takes_the_terminal(build: Stand) -> None:
    code, out = build.terminal("attach", "build", TMUX="outer").ends()
    assert (code, out) == (0, "attached to s001 tmux=\r\nbuild (s001) is running\r\n")
    out = build.terminal("run", "--attach", "-q", "make").ends()[1]
    assert out.startswith("s002\r\nattached to s002 tmux=\r\n")


def test_attach_without_a_terminal(build: Stand) -> None:
    code, _, err = build.amux("attach", "build")
    assert (code, err.splitlines()[0]) == (1, "amux: attach needs a terminal")


def test_attach_to_itself(build: Stand) -> None:
    code, out = build.terminal("attach", "build", AMUX_SESSION_ID="s001").ends()
    assert (code, out) == (4, "amux: this terminal is build (s001) itself\r\n")


def test_attach_to_one_that_ended_in_a_pipe(build: Stand) -> None:
    build.tell("Exit", "sis", "s001", 1, "")
    code, _, err = build.amux("attach", "build")
    assert code == 4
    assert err.startswith("amux: build (s001) is failed (exit 1): exited with code 1\n")


@pytest.mark.parametrize(
    ("key", "code", "says", "state"),
    [
        (b"r", 0, "attached to s001", "running"),
        (b"T", 0, "archived build", "archived"),
        (b"c", 0, "C\r\n", "failed"),
        (b"x\x03", 0, "C\r\n", "failed"),
    ],
)
def test_attach_offers_what_is_possible(build: Stand, key: bytes, code: int, says: str, state: str) -> None:
    build.tell("Exit", "sis", "s001", 1, "")
    terminal = build.terminal("attach", "build")
    terminal.until(re.escape("[R] Restart  [T] Teardown  [C] Cancel "))
    wait_for(lambda: "-icanon" in settings(terminal))
    terminal.type(key)
    ended, out = terminal.ends()
    assert ended == code
    assert says in out
    assert json.loads(build.amux("show", "--json", "build")[1])["state"] == state


def settings(terminal: Terminal) -> str:
    return subprocess.run(
        ["stty", "-a"], stdin=terminal.main, capture_output=True, text=True, check=True
    ).stdout


# The bus, and amuxd


def test_amuxd_that_hangs(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"silent": ["ListSessions"]}')
    before = time.monotonic()
    code, _, err = stand.amux("ls")
    assert 9 < time.monotonic() - before < 13
    assert (code, err.splitlines()[0]) == (5, "amux: amuxd does not answer (waited 10 s)")
    assert "journalctl --user -u amuxd" in err


def test_amuxd_that_goes_away_in_a_call(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"silent": ["ListSessions"]}')
    listing = stand.begin("ls")
    wait_for(lambda: "ListSessions" in stand.tell("Calls")[0])
    stand.stop()
    code, _, err = listing.ends()
    assert code == 5
    assert err.startswith("amux: amuxd went away before it answered\n")


def test_amuxd_of_another_version(stand: Stand) -> None:
    stand.tell("Behave", "s", '{"unknown": ["ListSessions"], "version": "0.0.9"}')
    code, _, err = stand.amux("ls")
    assert code == 5
    assert (
        err.splitlines()[0] == f"amux: amuxd is 0.0.9, amux {__version__}: they do not understand each other"
    )
    assert "systemctl --user restart amuxd" in err
    stand.tell("Behave", "s", json.dumps({"version": __version__}))
    assert stand.amux("ls")[0] == 1


def test_amuxd_that_does_not_start(bus: Stand) -> None:
    service = f"[D-BUS Service]\nName={paths.BUS_NAME}\nExec=/bin/false\n"
    (bus.services / "amux.service").write_text(service)
    reload(bus)
    code, _, err = bus.amux("ls")
    assert code == 5
    assert err.startswith("amux: amuxd does not start: ")
    assert err.endswith("journalctl --user -u amuxd\n")


def test_amuxd_is_started_by_the_first_call(bus: Stand) -> None:
    service = f"[D-BUS Service]\nName={paths.BUS_NAME}\nExec={sys.executable} {STANDIN}\n"
    (bus.services / "amux.service").write_text(service)
    reload(bus)
    assert bus.amux("ls", "--json") == (0, "[]\n", "")
    bus.kill_standin()


def reload(bus: Stand) -> None:
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    with open_dbus_connection() as connection:
        address = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        connection.send_and_get_reply(new_method_call(address, "ReloadConfig"), timeout=DEADLINE)


@pytest.mark.parametrize("command", [["watch"], ["wait", "build"], ["ls", "--watch"]])
def test_a_bus_that_dies(build: Stand, command: list[str]) -> None:
    before = build.tell("Calls")[0].count("ListSessions")
    waiting = build.waiting("build") if command[0] == "wait" else build.begin(*command)
    wait_for(lambda: command[0] == "wait" or build.tell("Calls")[0].count("ListSessions") > before)
    build.bus.kill()
    code, _, err = waiting.ends()
    assert (code, err) == (5, "amux: the message bus closed the connection\n")


def test_an_address_that_was_asked_for_is_the_only_one(bus: Stand) -> None:
    address = f"unix:path={bus.directory}/nothing"
    code, _, err = bus.amux("ls", AMUX_BUS_ADDRESS=address)
    assert (code, err) == (5, f"amux: no message bus at {address}: No such file or directory\n")
    assert bus.amux("ls", AMUX_BUS_ADDRESS=bus.address)[0] == 5
    assert not (bus.directory / "run" / "amux").exists()


@pytest.fixture
def bare(bus: Stand) -> Iterator[Stand]:
    """No session bus, and a program that stands in for `python -m amuxd` on the private one."""
    package = bus.directory / "path" / "amuxd"
    package.mkdir(parents=True)
    for module in (ROOT / "amuxd").iterdir():
        if module.name != "__main__.py":
            (package / module.name).symlink_to(module)
    (package / "__main__.py").write_text(
        f"import runpy\nrunpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
    )
    bus.environment["PYTHONPATH"] = str(package.parent)
    bus.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={bus.directory}/nothing"
    yield bus
    bus.address = f"unix:path={bus.directory}/run/amux/bus"
    if Path(bus.address.removeprefix("unix:path=")).exists():
        bus.kill_standin()
        os.kill(bus.owner_of_bus(), signal.SIGTERM)


def test_without_a_session_bus_one_is_started_once(bare: Stand) -> None:
    first = [bare.begin("run", "-q", "-n", str(at), "make") for at in range(4)]
    ended = [process.ends() for process in first]
    assert [code for code, _, _ in ended] == [0] * 4, ended
    assert bare.amux("ls")[1].count("running") == 4
    assert (bare.directory / "run" / "amux").stat().st_mode & 0o777 == 0o700


def test_a_private_bus_that_died_is_replaced(bare: Stand) -> None:
    assert bare.amux("run", "-q", "make")[0] == 0
    bare.address = f"unix:path={bare.directory}/run/amux/bus"
    bus = bare.owner_of_bus()
    descriptor = os.pidfd_open(bus)
    os.kill(bus, signal.SIGKILL)
    select.select([descriptor], [], [], DEADLINE)
    os.close(descriptor)
    assert bare.amux("run", "-q", "-n", "second", "make")[0] == 0


def test_a_session_bus_without_amuxd_is_as_good_as_none(bare: Stand) -> None:
    bare.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={bare.socket}"
    assert bare.amux("run", "-q", "--wait", "exit", "4") == (4, "s001\n", "")


def test_another_version_on_a_private_bus(bare: Stand) -> None:
    assert bare.amux("run", "-q", "make")[0] == 0
    bare.address = f"unix:path={bare.directory}/run/amux/bus"
    bare.tell("Behave", "s", '{"unknown": ["ListSessions"], "version": "0.0.9"}')
    code, _, err = bare.amux("ls")
    assert code == 5
    told, hint = err.splitlines()
    assert told.startswith("amux: amuxd is 0.0.9, ")
    # There is no systemctl to do it; what it says has the next amux start the new one.
    file = Path(bare.environment["STANDIN_FILE"])
    known = json.loads(file.read_text())
    subprocess.run(["sh", "-c", hint.partition("(")[0]], check=True)
    file.write_text(json.dumps(known | {"unknown": [], "version": __version__}))
    wait_for(lambda: bare.amux("ls")[1].count("running") == 1)


def test_without_dbus_daemon(bare: Stand) -> None:
    code, _, err = bare.amux("ls", PATH="/nowhere")
    assert code == 5
    assert err.startswith("amux: there is no session bus, and dbus-daemon to start one is not installed\n")
    assert "apt install dbus" in err


# The way out


def test_a_broken_pipe_is_quiet(build: Stand) -> None:
    command = f"{sys.executable} -m amuxd.cli watch | head -1"
    script = ["bash", "-c", command + '; echo "${PIPESTATUS[0]}"']
    process = subprocess.Popen(
        script, env=build.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "running" in process.stdout.readline()
    build.tell("Exit", "sis", "s001", 0, "")
    out, err = process.communicate(timeout=DEADLINE)
    assert (out, err) == ("141\n", "")


def test_a_full_disk_is_told(build: Stand) -> None:
    command = ["sh", "-c", f"{sys.executable} -m amuxd.cli ls >/dev/full"]
    finished = subprocess.run(command, env=build.environment, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (1, "amux: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lss"], "amux: no such command 'lss'; did you mean 'ls'?\n"),
        (["frobnicate"], "amux: no such command 'frobnicate'\n"),
        (["show"], "amux: missing argument 'S'"),
        (["show", "a", "b"], "amux: got unexpected extra argument"),
        (["stop"], "amux: missing argument 'S...'"),
        (["--frobnicate"], "amux: no such option"),
        (["completion", "tcsh"], "amux: invalid value for"),
    ],
)
def test_wrong_usage(bus: Stand, arguments: list[str], says: str) -> None:
    code, out, err = bus.amux(*arguments)
    assert (code, out) == (2, "")
    assert err.lower().startswith(says.lower())
    assert len(err.splitlines()) <= 2


def test_a_name_that_is_taken_for_an_option(bus: Stand) -> None:
    code, _, err = bus.amux("stop", "-dash")
    assert code == 2
    assert err.endswith("\n      amux stop --help; a name that begins with a dash: amux stop -- NAME\n")
    assert bus.amux("ls", "-dash")[2].endswith("\n      amux ls --help\n")


def test_help_and_version_need_no_amuxd(bus: Stand) -> None:
    assert bus.amux("--version") == (0, f"amux {__version__}\n", "")
    code, out, _ = bus.amux("--help")
    assert (code, bus.amux()[1]) == (0, out)
    assert bus.amux("ws") == bus.amux("ws", "--help")
    for command in re.findall(r"^  (\w+)  ", out.split("Commands:")[1], re.MULTILINE):
        assert bus.amux(command, "--help")[0] == 0


@pytest.mark.parametrize("arguments", [["--help"], ["ls"]])
def test_nothing_heavy_is_imported(build: Stand, arguments: list[str]) -> None:
    heavy = [
        "asyncio",
        "dbus_fast",
        "libtmux",
        "filelock",
        "psutil",
        "subprocess",
        "json",
        "importlib.metadata",
    ]
    script = (
        "import sys; from amuxd.cli.app import run; run(sys.argv[1:]);"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *arguments]
    finished = subprocess.run(command, env=build.environment, capture_output=True, text=True, check=True)
    assert finished.stderr == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(build: Stand, shell: str) -> None:
    assert "_AMUX_COMPLETE" in build.amux("completion", shell)[1]
    words = {"COMP_WORDS": "amux show bu", "COMP_CWORD": "bu" if shell == "fish" else "2"}
    out = build.amux(_AMUX_COMPLETE=f"{shell}_complete", **words)[1]
    assert "build" in out


def test_completion_is_quiet_without_amuxd(bus: Stand) -> None:
    code, out, err = bus.amux(_AMUX_COMPLETE="bash_complete", COMP_WORDS="amux show bu", COMP_CWORD="2")
    assert (code, out.strip(), err) == (0, "", "")
    assert not (bus.directory / "run" / "amux").exists()


def wait_for(condition: Callable[[], bool]) -> None:
    """For what only looking tells: the bus's own books, a terminal's mode."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()
