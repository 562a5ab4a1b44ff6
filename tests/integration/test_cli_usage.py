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
from harness.loaded import LOADED, WITH_CLICK

from amuxd import __version__


def test_a_broken_pipe_is_quiet(build: Stand) -> None:
    command = f"{sys.executable} -m amuxd.cli watch | head -1"
    script = ["bash", "-c", command + '; echo "${PIPESTATUS[0]}"']
    # Without a buffer, in which what comes at once with the first line would stay.
    process = subprocess.Popen(
        script, env=build.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    assert b"running" in process.stdout.readline()

    def has_noticed() -> bool:
        # What is printed before head has ended breaks nothing.
        build.tell("Attention", "sss", "s001", "permission", "may I?")
        return process.poll() is not None

    wait_for(has_noticed)
    out, err = process.communicate(timeout=DEADLINE)
    assert (out, err) == (b"141\n", b"")


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
        (["ls", "-w", ""], "amux: invalid value for '-w' / '--workspace': it must not be empty\n"),
        (["ws", "add", "x", "--branch="], "amux: invalid value for '--branch': it must not be empty\n"),
        (["ws", "add", "x", "--base="], "amux: invalid value for '--base': it must not be empty\n"),
        (["ws", "add", "x", "--repo="], "amux: invalid value for '--repo': directory '' does not exist\n"),
        (["ws", "add", "x", "--path="], "amux: invalid value for '--path': directory '' does not exist\n"),
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


HEAVY = ["asyncio", "dbus_fast", "libtmux", "filelock", "psutil", "subprocess", "json", "importlib.metadata"]


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY),
        (["ls", "-a"], HEAVY),
        # By their names alone, lists do without click as well.
        (["ls"], [*HEAVY, "click", "pathlib", "shutil"]),
        (["ls", "--json"], [*set(HEAVY) - {"json"}, "click", "pathlib", "shutil"]),
    ],
)
def test_nothing_heavy_is_imported(build: Stand, arguments: list[str], heavy: list[str]) -> None:
    def out_and_err(script: str) -> tuple[str, str]:
        command = [sys.executable, "-c", script, *arguments]
        finished = subprocess.run(command, env=build.environment, capture_output=True, text=True, check=True)
        return finished.stdout, finished.stderr

    out, loaded = out_and_err(LOADED)
    assert "amuxd.cli.way_out" in loaded.split()
    assert [name for name in heavy if name in loaded.split()] == []
    with_click, err = out_and_err(WITH_CLICK)
    assert (_timeless(with_click), err) == (_timeless(out), "")


def _timeless(listed: str) -> str:
    return re.sub(r"\b\d+s\b", "0s", listed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(build: Stand, shell: str) -> None:
    assert "_AMUX_COMPLETE" in build.amux("completion", shell)[1]
    words = {"COMP_WORDS": "amux show bu", "COMP_CWORD": "bu" if shell == "fish" else "2"}
    out = build.amux(_AMUX_COMPLETE=f"{shell}_complete", **words)[1]
    assert "build" in out


@pytest.mark.parametrize("words", ["amux show bu", "amux ws rm fi", "amux ls -w fi"])
def test_completion_is_quiet_without_amuxd(bus: Stand, words: str) -> None:
    last = str(len(words.split()) - 1)
    code, out, err = bus.amux(_AMUX_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert (code, out.strip(), err) == (0, "", "")
    assert not (bus.directory / "run" / "amux").exists()
