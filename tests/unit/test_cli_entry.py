"""From the interpreter's start to its end: Ctrl-C at any moment, and streams that the caller closed."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = {"AMUX_BUS_ADDRESS": "unix:path=/nowhere"}


def run(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | NOWHERE | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)


def amux(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = f'"$0" -m amuxd.cli "$@" {redirection}'
    return run("sh", "-c", script, sys.executable, *arguments)


@pytest.mark.parametrize(
    ("redirection", "code", "out", "err"),
    [
        (">&-", 1, "", "amux: standard output is closed\n"),
        (">&- <&-", 1, "", "amux: standard output is closed\n"),
        (">&- 2>&- <&-", 1, "", ""),
        ("2>&-", 0, "amux ", ""),
        ("<&-", 0, "amux ", ""),
    ],
)
def test_closed_streams(redirection: str, code: int, out: str, err: str) -> None:
    finished = amux(redirection, "--version")
    assert (finished.returncode, finished.stderr) == (code, err)
    assert finished.stdout.startswith(out)
    assert len(finished.stdout.splitlines()) == (1 if out else 0)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["nosuchcommand"], 2), (["ls"], 5), (["report", "turn"], 1), (["--version"], 0)]
)
def test_the_exit_code_is_true_though_standard_error_is_full(arguments: list[str], code: int) -> None:
    assert amux("2>/dev/full", *arguments).returncode == code
    assert amux("", *arguments).returncode == code


def test_what_goes_wrong_is_not_told_elsewhere_when_nobody_listens() -> None:
    finished = amux("2>&-", "ls")
    assert (finished.returncode, finished.stdout, finished.stderr) == (5, "", "")


def test_text_from_a_closed_stream_is_none() -> None:
    finished = amux("<&-", "send", "build", "-")
    assert finished.returncode == 2
    assert finished.stderr == "amux: standard input cannot be read: Bad file descriptor\n"


# Ctrl-C where an exception would only be printed: in a destructor, after all is done.
WHILE_IT_LOADS = """
class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            Late()
sys.meta_path.insert(0, Finder())
"""
WHEN_IT_IS_DONE = """
leave = os._exit
def late(code):
    os.kill(os.getpid(), signal.SIGINT)
    leave(code)
os._exit = late
"""
BEGIN = """
import os, signal, sys
%s
sys.argv = ["amux", *%r]
from amuxd.cli import main
main()
"""


@pytest.mark.parametrize(
    ("interrupt", "arguments"),
    [
        (WHILE_IT_LOADS.replace("MODULE", "'click'"), ["--version"]),
        (WHILE_IT_LOADS.replace("MODULE", "'jeepney'"), ["ls"]),
        (WHEN_IT_IS_DONE, ["--version"]),
    ],
    ids=["amux loads", "a command loads", "it is done"],
)
def test_ctrl_c_is_quiet(interrupt: str, arguments: list[str]) -> None:
    finished = run(sys.executable, "-c", BEGIN % (interrupt, arguments))
    assert (finished.returncode, finished.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    ("end", "code", "err"), [("", 0, ""), ("None", 0, ""), ("3", 3, ""), ("'it broke'", 1, "it broke\n")]
)
def test_an_exit_is_the_one_that_python_makes(end: str, code: int, err: str) -> None:
    script = f"import sys; from amuxd.cli import way_out; way_out.leave(way_out.run(lambda: sys.exit({end})))"
    finished = run(sys.executable, "-c", script)
    assert (finished.returncode, finished.stderr) == (code, err)


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    ignore = 'trap "" INT; exec "$0" "$@"'
    script = BEGIN % (WHEN_IT_IS_DONE, ["--version"])
    finished = run("sh", "-c", ignore, sys.executable, "-c", script)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_ctrl_c_while_a_report_waits(tmp_path: Path) -> None:
    address = str(tmp_path / "amuxd.sock")
    variables = {"AMUX_SESSION_ID": "a1", "AMUX_TOKEN": "t", "AMUX_SOCKET": address, "PYTHONPATH": str(ROOT)}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, "-m", "amuxd.cli", "report", "question"]
        process = subprocess.Popen(
            command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        listener.settimeout(20)
        connection, _ = listener.accept()
        assert connection.recv(4096)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == b""
        assert process.returncode == -signal.SIGINT
        connection.close()
