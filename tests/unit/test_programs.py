"""Which programs are refused before anybody was told that they run, and which are left to the kernel."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amuxd.hosts import LaunchRefused, programs
from amuxd.hosts.programs import check_program

TRUE = Path("/bin/true").read_bytes()
MISSING = "its interpreter /nonexistent is missing"


def made(path: Path, content: str | bytes, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def refusal(name: str, directory: Path, search: str = "") -> str:
    try:
        check_program(name, str(directory), search)
    except LaunchRefused as refused:
        return str(refused)
    return ""


def test_a_later_one_of_the_same_name_is_found_as_execvp_finds_it(tmp_path: Path) -> None:
    made(tmp_path / "first/prog", "#!/nonexistent\n")
    search = f"{tmp_path}/none:{tmp_path}/first:{tmp_path}/second"
    assert refusal("prog", tmp_path, search) == f"prog cannot be run: {MISSING}"
    made(tmp_path / "second/prog", TRUE)
    assert refusal("prog", tmp_path, search) == ""


def test_an_empty_place_is_the_directory_of_the_session(tmp_path: Path) -> None:
    assert refusal("prog", tmp_path, ":/none") == "no such program: prog"
    program = made(tmp_path / "prog", "#!/bin/sh\n", 0o644)
    assert refusal("prog", tmp_path, ":/none") == f"{program} is not executable"
    program.chmod(0o755)
    assert refusal("prog", tmp_path, ":/none") == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("#!/nonexistent", MISSING),
        ("#! /nonexistent -x\n", MISSING),
        ("#!/nonexistent " + "x" * 300, MISSING),
        ("#!/nonexistent\r\n", "its interpreter /nonexistent\r is missing"),
        ("#!/nonexistent\0x\n", MISSING),
        ("#!/\n", "its interpreter / is not executable"),
        ("#!./prog\n", ""),
        # The kernel takes these for no script, and a shell runs them.
        ("#!\n", ""),
        ("#!/" + "x" * 300, ""),
        ("echo\n", ""),
        ("", ""),
        (TRUE, ""),
        # What is damaged is for the kernel to judge.
        (TRUE[:4], ""),
        (TRUE[:100], ""),
        (TRUE[:32] + b"\xff" * 8 + TRUE[40:], ""),
    ],
)
def test_what_it_begins_with_is_looked_at(tmp_path: Path, content: str | bytes, why: str) -> None:
    made(tmp_path / "prog", content)
    assert refusal("./prog", tmp_path) == (f"./prog cannot be run: {why}" if why else "")


def test_what_may_not_be_read_may_still_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = made(tmp_path / "prog", "#!/nonexistent\n", 0o111)
    if os.access(program, os.R_OK):
        # For root nothing is unreadable.
        def refuse(self: Path, *_: Any) -> None:
            raise PermissionError(str(self))

        monkeypatch.setattr(Path, "open", refuse)
    assert refusal("./prog", tmp_path) == ""


def test_one_for_another_processor_is_refused_where_the_kernel_has_no_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "prog", TRUE[:18] + (22).to_bytes(2, sys.byteorder) + TRUE[20:])
    assert refusal("./prog", tmp_path) == "./prog cannot be run: it is made for another kind of processor"

    def emulated(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(argv, 1)

    def slow(argv: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(argv, 1)

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError

    for answer in (emulated, slow, forbidden):
        monkeypatch.setattr(subprocess, "run", answer)
        assert refusal("./prog", tmp_path) == ""


LOADER = re.compile(rb"/lib[^\0]*/ld-linux[^\0]*\0")
OWN = int.from_bytes(TRUE[18:20], sys.byteorder)
OTHERS = [22, programs._ELDER.get(OWN, 22)]


def of_machine(number: int) -> bytes:
    """Its loader is nowhere on this one."""
    found = LOADER.search(TRUE)
    assert found
    nowhere = b"/nonexistent\0".ljust(len(found[0]), b"\0")
    return TRUE[:18] + number.to_bytes(2, sys.byteorder) + TRUE[20:].replace(found[0], nowhere)


@pytest.mark.parametrize("machine", OTHERS)
def test_the_loader_of_what_is_emulated_is_the_emulators_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: int
) -> None:
    def emulated(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(argv, 1)

    made(tmp_path / "prog", of_machine(machine))
    monkeypatch.setattr(subprocess, "run", emulated)
    assert refusal("./prog", tmp_path) == ""


@pytest.mark.parametrize("machine", {OWN, OTHERS[1]} - {22})
def test_the_loader_of_what_the_kernel_runs_itself_is_looked_for(tmp_path: Path, machine: int) -> None:
    made(tmp_path / "prog", of_machine(machine))
    assert refusal("./prog", tmp_path) == f"./prog cannot be run: {MISSING}"


def test_its_beginning_is_open_for_the_kernels_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run
    seen: list[bool] = []

    def look(*words: Any, pass_fds: list[int], **how: Any) -> Any:
        seen.extend(map(os.get_inheritable, pass_fds))
        return run(*words, pass_fds=pass_fds, **how)

    monkeypatch.setattr(subprocess, "run", look)
    assert programs._does_kernel_refuse(b"nothing that it runs")
    assert not programs._does_kernel_refuse(b"#!/bin/true\n")
    assert seen == [False, False]
