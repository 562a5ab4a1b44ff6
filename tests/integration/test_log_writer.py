"""Who takes down the output, by itself: whatever becomes of the disk and of the log, they go on."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import psutil
import pytest
from harness.waiting import until

SCRIPT = str(files("amuxd.hosts") / "logger.sh")
CAP = 64 << 20
RESERVED_FOR_LITTLE = 64 << 10
# Of the file system's own.
OVERHEAD = 16 << 10
SHELLS = ["dash", "bash", "busybox"]


class Writer:
    def __init__(self, directory: Path, shell: str, cap: int, **environment: str) -> None:
        self.log = directory / "output.log"
        self.gates = directory / "gates"
        self.gates.mkdir()
        words = {"dash": ["/bin/dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}[shell]
        if shutil.which(words[0]) is None:
            pytest.skip(f"there is no {words[0]} here")
        self.process = subprocess.Popen(
            [*words, SCRIPT, str(self.log), str(cap), str(self.gates / "up")],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        until(lambda: (self.gates / "up").exists() and (self.gates / "up").read_text() == "log\n")

    def prints(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def kept(self) -> str:
        logs = (self.log.with_name("output.log.1"), self.log)
        return "".join(path.read_text() for path in logs if path.exists())

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(20)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)


class Writers:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.all: list[Writer] = []

    def begin(self, shell: str = "dash", cap: int = CAP, **environment: str) -> Writer:
        writer = Writer(self.directory, shell, cap, **environment)
        self.all.append(writer)
        return writer


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    begun = Writers(tmp_path)
    yield begun
    for writer in begun.all:
        writer.kill()


def held(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("size", [0, 3])
def test_a_log_that_somebody_cuts_goes_on(writers: Writers, shell: str, size: int) -> None:
    writer = writers.begin(shell)
    writer.prints("first\n")
    until(lambda: writer.kept() == "first\n")
    os.truncate(writer.log, size)
    # Longer than a bout of reading, in which the cut is noticed, and shorter than what was there.
    for number in range(200):
        writer.prints("x")
        until(lambda: writer.kept() == "fir"[:size] + (number + 1) * "x")  # noqa: B023
    assert writer.end() == 0
    assert writer.kept() == "fir"[:size] + 200 * "x"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_log_that_somebody_takes_away_is_made_again(writers: Writers, shell: str, how: str) -> None:
    writer = writers.begin(shell)
    writer.prints("first\n")
    until(lambda: writer.kept() == "first\n")
    writer.log.rename(writer.log.with_name("elsewhere"))
    if how == "deleted":
        writer.log.with_name("elsewhere").unlink()
    if how == "replaced":
        writer.log.touch()
    after = "".join(f"{number}\n" for number in range(20_000))
    writer.prints(after)
    until(lambda: writer.log.exists() and writer.kept().endswith(after[-20_000:]))
    writer.prints("last\n")
    assert writer.end() == 0
    # Of what was taken down just before it was taken away a part may be in both.
    assert ("first\n" + after + "last\n").endswith(writer.kept())
    assert writer.kept().endswith(after + "last\n")


def test_it_reserves_little_for_what_prints_little_and_gives_it_back(writers: Writers) -> None:
    writer = writers.begin()
    assert 0 < held(writer.log) <= RESERVED_FOR_LITTLE
    much = 25_000 * "1234567\n"
    writer.prints(much)
    until(lambda: len(writer.kept()) == len(much))
    assert held(writer.log) > len(much) + RESERVED_FOR_LITTLE
    # So little after that, for some bouts of reading.
    for number in range(700):
        writer.prints("x")
        until(lambda: writer.log.stat().st_size > len(much) + number)  # noqa: B023
    assert held(writer.log) < writer.log.stat().st_size + 8 * RESERVED_FOR_LITTLE
    assert writer.end() == 0
    assert held(writer.log) <= writer.log.stat().st_size + OVERHEAD


# What fallocate says where the kernel, a filter of system calls or a program that knows less refuses it: on
# demand only a stand-in does.
@pytest.mark.parametrize(
    "says",
    [
        "fallocate: fallocate failed: Operation not permitted",
        "fallocate: fallocate failed: Function not implemented",
        "fallocate: fallocate failed: Invalid argument",
        "fallocate: fallocate failed: Keep size mode is unsupported",
        "fallocate: unrecognized option: n",
        "fallocate: cannot open /the/No space left on device/output.log: Permission denied",
    ],
)
def test_where_nothing_can_be_reserved_it_does_without(writers: Writers, tmp_path: Path, says: str) -> None:
    writer = writers.begin(PATH=standing_in(tmp_path, says))
    writer.prints("there is room\n")
    until(lambda: writer.kept() == "there is room\n")
    assert not (writer.gates / "full").exists()
    assert writer.end() == 0


@pytest.mark.parametrize(
    "why", ["No space left on device", "Disk quota exceeded", "Read-only file system", "Input/output error"]
)
def test_without_room_it_waits(writers: Writers, tmp_path: Path, why: str) -> None:
    path = standing_in(tmp_path, f"fallocate: fallocate failed: {why}")
    writer = writers.begin(PATH=path)
    writer.prints("there is no room\n")
    until((writer.gates / "full").exists)
    assert writer.kept() == ""
    (tmp_path / "bin/fallocate").unlink()
    until(lambda: writer.kept() == "there is no room\n")
    assert writer.end() == 0


def standing_in(tmp_path: Path, says: str) -> str:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/fallocate"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2; exit 1\n")
    program.chmod(0o700)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", SHELLS)
def test_where_it_cannot_say_that_the_disk_is_full_it_waits_all_the_same(
    writers: Writers, tmp_path: Path, shell: str
) -> None:
    writer = writers.begin(
        shell, PATH=standing_in(tmp_path, "fallocate: fallocate failed: No space left on device")
    )
    shutil.rmtree(writer.gates)
    writer.prints("there is no room\n")
    sleeps = psutil.Process(writer.process.pid)
    until(lambda: any(child.name() in {"sleep", "busybox"} for child in sleeps.children()))
    (tmp_path / "bin/fallocate").unlink()
    until(lambda: writer.kept() == "there is no room\n")
    assert writer.end() == 0


# A cgroup with that limit, as its kernel tells it; not every machine that tests has such cgroups.
LIMITED = r"""
group=/sys/fs/cgroup$(sed -n "s/^0:://p" /proc/self/cgroup)
mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir -p "$group" && echo "$0" >"$group/memory.max" || exit 9
. "$1"
"""


@pytest.mark.parametrize(
    ("cap", "limit", "may_wait"),
    [
        (64 << 20, "max", 16 << 20),
        (4 << 20, "max", 4 << 20),
        (64 << 20, "33554432", 8 << 20),
        (4 << 20, "33554432", 4 << 20),
        (64 << 20, "unlimited?", 16 << 20),
    ],
)
def test_how_much_may_wait(tmp_path: Path, cap: int, limit: str, may_wait: int) -> None:
    """Not more than a quarter of what its cgroup may have."""
    text = Path(SCRIPT).read_text()
    begins = text.index("bound() {")
    function = text[begins : text.index("\n}", begins)]
    part = tmp_path / "bound.sh"
    part.write_text(f'cap={cap}\n{function}\n}} 2>/dev/null\nbound\necho "$bound"\n')
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", LIMITED, limit, str(part)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.stderr) == (f"{may_wait}\n", "")
