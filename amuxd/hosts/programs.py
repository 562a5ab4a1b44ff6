"""Whether a program can be started: what only the kernel would say, once nobody can be told any more."""

import errno
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from amuxd.hosts import LaunchRefused

# What the kernel reads of a program to see what it is.
_BEGINNING = 256
_ELF = b"\x7fELF"
_MACHINE = slice(18, 20)
# By this an emulator is chosen; without what follows it the kernel itself runs nothing.
_HEADER = 64
_WANTS_LOADER = 3
_LONGEST_PATH = 4096
# A script may be another's interpreter, so many times.
_DEEPEST = 4
# The machine that a kernel may run besides its own: i386 on x86-64, ARM on aarch64.
_ELDER = {62: 3, 183: 40}
_PROBE_DEADLINE = 2.0


def check_program(name: str, directory: str, search: str) -> None:
    """Raises LaunchRefused."""
    first = ""
    for path in _candidates(name, directory, search):
        why = _why_not(path, directory)
        if not why:
            return
        # As execvp does, which looks on.
        first = first or why
    raise LaunchRefused(f"{name} cannot be run: {first}" if first else _why_none(name, directory, search))


def _candidates(name: str, directory: str, search: str) -> Iterator[Path]:
    return (path for path in _places(name, directory, search) if os.access(path, os.X_OK) and path.is_file())


def _places(name: str, directory: str, search: str) -> Iterator[Path]:
    if "/" in name:
        return iter([Path(directory, name)])
    return (Path(directory, place, name) for place in search.split(":"))


def _why_none(name: str, directory: str, search: str) -> str:
    if "/" not in name:
        places = _places(name, directory, search)
        found = next((path for path in places if os.access(path, os.F_OK) and path.is_file()), None)
        return f"{found} is not executable" if found else f"no such program: {name}"
    path = Path(directory, name)
    if not path.exists():
        return f"no such program: {name}"
    return f"{name} is a directory" if path.is_dir() else f"{name} is not executable"


def _why_not(program: Path, directory: str, depth: int = 0) -> str:
    """Empty where it can be run, as far as that can be seen."""
    try:
        with program.open("rb") as file:
            beginning = file.read(_BEGINNING)
            if beginning.startswith(b"#!"):
                interpreter = _interpreter(beginning)
            elif not beginning.startswith(_ELF) or _is_emulated(beginning):
                return ""
            elif _is_foreign(beginning):
                return "it is made for another kind of processor"
            else:
                interpreter = _loader(beginning, file.fileno())
    except (OSError, struct.error, OverflowError):
        # What may not be read may still be run, and what is damaged is for the kernel to judge.
        return ""
    if not interpreter:
        return ""
    path, shown = Path(directory, interpreter), os.fsencode(interpreter).decode(errors="replace")
    if not path.exists():
        return f"its interpreter {shown} is missing"
    if path.is_dir() or not os.access(path, os.X_OK):
        return f"its interpreter {shown} is not executable"
    return _why_not(path, directory, depth + 1) if depth < _DEEPEST else ""


def _interpreter(beginning: bytes) -> str:
    """Empty where the kernel takes it for no script, or for one whose interpreter is cut off."""
    line, newline, _ = beginning[2:].partition(b"\n")
    words = re.split(rb"[ \t\0]", line.strip(b" \t"), maxsplit=1)
    is_whole = newline or len(words) > 1 or len(beginning) < _BEGINNING
    return os.fsdecode(words[0]) if is_whole else ""


def _is_emulated(beginning: bytes) -> bool:
    """What loads it is then the emulator's to find, and need not be where this machine has its own."""
    # 0 is none: that one is damaged.
    return _machine_of(beginning) not in (0, _own_machine()) and not _does_kernel_refuse(beginning[:_HEADER])


def _is_foreign(beginning: bytes) -> bool:
    return _machine_of(beginning) not in (0, _own_machine(), _ELDER.get(_own_machine()))


@cache
def _own_machine() -> int:
    with Path("/proc/self/exe").open("rb") as file:
        return _machine_of(file.read(_HEADER))


def _machine_of(beginning: bytes) -> int:
    return int.from_bytes(beginning[_MACHINE], sys.byteorder)


def _does_kernel_refuse(beginning: bytes) -> bool:
    """Asked with nothing but the beginning: neither it nor an emulator of its has anything to run."""
    file = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        os.write(file, beginning)
        subprocess.run(
            ["program"],
            executable=f"/proc/self/fd/{file}",
            pass_fds=[file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_DEADLINE,
            check=False,
        )
    except OSError as error:
        return error.errno == errno.ENOEXEC
    except subprocess.TimeoutExpired:
        return False
    finally:
        os.close(file)
    return False


def _loader(beginning: bytes, file: int) -> str:
    """What loads the libraries of a program that has any."""
    # Those of 64 and of 32 bits have the same fields, of different widths and in another order.
    is_wide = beginning[4:5] == b"\2"
    table = struct.unpack_from("=Q" if is_wide else "=I", beginning, 32 if is_wide else 28)[0]
    size, count = struct.unpack_from("=HH", beginning, 54 if is_wide else 42)
    for number in range(count):
        header = os.pread(file, size, table + number * size)
        if struct.unpack_from("=I", header)[0] == _WANTS_LOADER:
            offset, length = (
                struct.unpack_from("=Q" if is_wide else "=I", header, at)[0]
                for at in ((8, 32) if is_wide else (4, 16))
            )
            return os.fsdecode(os.pread(file, min(length, _LONGEST_PATH), offset).partition(b"\0")[0])
    return ""
