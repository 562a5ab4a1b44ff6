"""amux run, against a stand-in for amuxd: what is asked, bad arguments, --wait."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import os
import signal
import subprocess
from pathlib import Path

import pytest
from cli_fixtures import (
    AMUX,
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)


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
        "umask": own_umask(),
    }


def own_umask() -> int:
    """Of this process, which the CLI inherits."""
    own = os.umask(0o022)
    os.umask(own)
    return own


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
        (["-w", ""], "invalid value for '-w' / '--workspace': it must not be empty"),
        (["-a", ""], "invalid value for '-a' / '--agent': it must not be empty"),
        (["-C", ""], "invalid value for '-C' / '--directory': Directory '' does not exist"),
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


@pytest.mark.parametrize(
    ("output", "why"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")],
)
def test_what_was_started_is_told_also_where_it_cannot_be_printed(
    stand: Stand, output: str, why: str
) -> None:
    def amux(*arguments: str) -> tuple[int, str]:
        command = ["sh", "-c", f'"$@" {output}', "sh", *AMUX, *arguments]
        told = subprocess.run(command, env=stand.environment, capture_output=True, text=True, check=False)
        return told.returncode, told.stderr

    unsaid = "amux: started {} ({}), and that cannot be printed: " + why + "\n"
    assert amux("run", "make") == (1, unsaid.format("make", "s001"))
    assert amux("run", "-q", "-n", "quiet", "make") == (1, unsaid.format("quiet", "s002"))
    for code in (0, 7):
        name = f"ends with {code}"
        told = amux("run", "--wait", "-n", name, "exit", str(code))
        assert told == (code, unsaid.format(name, f"s{3 + (code == 7):03}"))
    assert amux("run", "-q", "nope") == (1, "amux: nope (s005): no such program: nope\n")


@pytest.mark.parametrize(("options", "known"), [([], "it"), (["-n", "named"], "named")])
def test_ctrl_c_before_run_is_answered_says_that_it_may_be_there(
    stand: Stand, options: list[str], known: str
) -> None:
    stand.tell("Behave", "s", '{"silent": ["CreateSession"]}')
    running = stand.begin("run", *options, "make")
    wait_for(lambda: "CreateSession" in stand.tell("Calls")[0])
    running.process.send_signal(signal.SIGINT)
    assert running.ends() == (130, "", f"amux: {known} may have been started\n      amux ls\n")
