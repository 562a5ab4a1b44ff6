"""The CLI's way out: broken pipes, full disks, wrong usage, help, completion."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import os
import re
import subprocess
import sys

import pytest
from cli_fixtures import (
    DEADLINE,
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)

from amuxd import __version__


def test_a_broken_pipe_is_quiet(build: Stand) -> None:
    command = f"{sys.executable} -m amuxd.cli watch | head -1"
    script = ["bash", "-c", command + '; echo "${PIPESTATUS[0]}"']
    process = subprocess.Popen(
        script, env=build.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "running" in process.stdout.readline()

    def has_noticed() -> bool:
        # What is printed before head has ended breaks nothing.
        build.tell("Attention", "sss", "s001", "permission", "may I?")
        return process.poll() is not None

    wait_for(has_noticed)
    out, err = process.communicate(timeout=DEADLINE)
    assert (out, err) == ("141\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ls", "--help"]])
def test_help_that_nobody_reads_is_quiet(bus: Stand, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        finished = subprocess.run(
            [sys.executable, "-m", "amuxd.cli", *arguments],
            env=bus.environment,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    assert (finished.returncode, finished.stderr) == (141, "")


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
        (["completion"], "amux: missing argument '{bash|zsh|fish}'. choose from: bash, zsh, fish\n"),
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
    # What follows there is a command.
    assert bus.amux("run", "--nope")[2].endswith("\n      amux run --help\n")
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
