"""Who takes down the output, by itself: whatever becomes of the disk and of the log, they go on."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
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
    def __init__(
        self, directory: Path, shell: str, cap: int, user: int | None, python: str, **environment: str
    ) -> None:
        self.log = directory / "output.log"
        self.gates = directory / "gates"
        self.gates.mkdir()
        if user is not None:
            os.chown(self.gates, user, user)
        scripts = Path(str(files("amuxd.hosts")))
        for name in ("logger.sh", "spare_logger.py"):
            # Where anybody may read them.
            shutil.copy(scripts / name, directory)
        words = {"dash": ["/bin/dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}[shell]
        if shutil.which(words[0]) is None:
            pytest.skip(f"there is no {words[0]} here")
        self.process = subprocess.Popen(
            [
                *(*words, str(directory / "logger.sh"), str(self.log), str(cap)),
                *(str(self.gates / "up"), python),
            ],
            stdin=subprocess.PIPE,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env={**os.environ, **environment},
            start_new_session=True,
        )
        until(lambda: (self.gates / "up").exists() and (self.gates / "up").read_text() == "log\n")

    def prints(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def kept(self) -> str:
        found = []
        for log in (self.log.with_name("output.log.1"), self.log):
            # What was put aside before goes while the next is put aside.
            with contextlib.suppress(FileNotFoundError):
                found.append(log.read_text())
        return "".join(found)

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(20)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)


class Writers:
    def __init__(self, directory: Path, user: int | None = None, python: str = sys.executable) -> None:
        self.directory = directory
        self.user = user
        self.python = python
        self.all: list[Writer] = []

    def begin(self, shell: str = "dash", cap: int = CAP, **environment: str) -> Writer:
        writer = Writer(self.directory, shell, cap, self.user, self.python, **environment)
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


# Nobody else's, nor that of other tests at the same time: only its own processes are to count.
SOMEBODY = 50_000 + os.getpid() % 10_000


@pytest.fixture
def limited() -> Iterator[Writers]:
    """Of a user whom the kernel holds to a limit; it does not hold root to any."""
    directory = Path(tempfile.mkdtemp())
    os.chown(directory, SOMEBODY, SOMEBODY)
    python = next(filter(_may_be_run, [sys.executable, "/usr/bin/python3"]), None)
    if python is None:
        pytest.skip("there is no Python here for anybody but root")
    begun = Writers(directory, SOMEBODY, python)
    yield begun
    for writer in begun.all:
        writer.kill()
    shutil.rmtree(directory, ignore_errors=True)


def _may_be_run(python: str) -> bool:
    try:
        subprocess.run([python, "-I", "-S", "-c", ""], user=SOMEBODY, group=SOMEBODY, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def allow(writer: Writer, processes: int) -> None:
    limit(writer, f"--nproc={processes}:")


def limit(writer: Writer, what: str) -> None:
    # Not by root, which need not be allowed to everywhere.
    words = ["prlimit", f"--pid={writer.process.pid}", what]
    subprocess.run(words, user=SOMEBODY, group=SOMEBODY, extra_groups=[], check=True)


def stands_in(writer: Writer) -> bool:
    return any(word.endswith("spare_logger.py") for word in psutil.Process(writer.process.pid).cmdline())


@pytest.mark.parametrize("shell", SHELLS)
def test_it_goes_on_without_another_process(limited: Writers, shell: str) -> None:
    writer = limited.begin(shell)
    whole = "first\n"
    writer.prints("first\n")
    until(lambda: writer.kept() == whole)
    for _ in range(2):
        allow(writer, 1)
        # What copies for it ends after so many pieces, and no other can be had.
        for number in range(200):
            writer.prints(f"{number}\n")
            whole += f"{number}\n"
            if not stands_in(writer):
                until(lambda: writer.kept() == whole or stands_in(writer))  # noqa: B023
        # bash tries for a quarter of a minute.
        until(lambda: writer.kept() == whole, timeout=60)  # noqa: B023
        assert stands_in(writer)
        writer.prints("\0\x1b\xff")
        whole += "\0\x1b\xff"
        until(lambda: writer.kept() == whole)  # noqa: B023
        allow(writer, 1000)
        writer.prints("once more\n")
        whole += "once more\n"
        until(lambda: not stands_in(writer))
        until(lambda: writer.kept() == whole)  # noqa: B023
    allow(writer, 1)
    writer.prints("last\n")
    writer.end()
    assert writer.kept() == whole + "last\n"


def begin_stand_in(writers: Writers, cap: int = CAP) -> Writer:
    writer = writers.begin(cap=cap)
    allow(writer, 1)
    begin_to_stand_in(writer)
    return writer


def begin_to_stand_in(writer: Writer) -> None:
    def prints_and_stands_in() -> bool:
        # What copies for it ends after so many pieces, and no other can be had.
        writer.prints("x")
        return stands_in(writer)

    until(prints_and_stands_in)


def test_without_another_process_the_log_keeps_to_its_cap(limited: Writers) -> None:
    cap = 100_000
    writer = begin_stand_in(limited, cap)
    dropped = writer.log.with_name("output.log.dropped")
    last = 0
    for number in range(1, 6):
        first, last = last, number * 12_000
        writer.prints("".join(f"{line}\n" for line in range(first, last)))
        until(lambda: writer.kept().endswith(f"{last - 1}\n"))  # noqa: B023
    assert stands_in(writer)
    for log in (writer.log, writer.log.with_name("output.log.1")):
        assert log.stat().st_size < cap + RESERVED_FOR_LITTLE
    kept = [int(line) for line in writer.kept().splitlines()[1:]]
    assert kept == list(range(kept[0], last))
    assert dropped.stat().st_size == 0


LOST = "[amux: the disk was full, output is missing here]"
LOST_TO_THE_END = "[amux: the disk was full to the end, output may be missing here]"


def in_want_of_room(limited: Writers, cap: int = CAP) -> Writer:
    """Held to the size that its log has."""
    writer = begin_stand_in(limited, cap)
    writer.prints(1000 * "before\n")
    until(lambda: writer.kept().count("before\n") == 1000)
    limit(writer, f"--fsize={writer.log.stat().st_size}:")
    writer.prints("in vain\n")
    until((writer.gates / "full").exists)
    return writer


def test_without_another_process_it_waits_for_room_as_well(limited: Writers) -> None:
    writer = in_want_of_room(limited)
    limit(writer, "--fsize=unlimited:")
    until(lambda: writer.kept().endswith("before\nin vain\n"))
    until(lambda: not (writer.gates / "full").exists())
    writer.process.terminate()
    writer.prints("on\n")
    writer.end()
    assert writer.kept().endswith("before\nin vain\non\n")


def test_without_another_process_a_session_that_ends_does_not_wait_for_room(limited: Writers) -> None:
    writer = in_want_of_room(limited)
    writer.process.terminate()
    assert writer.process.wait(20) == 1
    assert writer.kept().splitlines()[-1] == LOST_TO_THE_END


def test_without_another_process_not_everything_waits_for_room(limited: Writers) -> None:
    writer = in_want_of_room(limited, cap=100_000)
    # To the writer, who tests is the terminal.
    held = bytearray(b"x") * (64 << 20)
    writer.prints((2 << 20) * "x")
    del held
    limit(writer, "--fsize=unlimited:")
    until(lambda: LOST in writer.kept())
    writer.prints("on\n")
    until(lambda: writer.kept().endswith("on\n"))


def test_without_another_process_nor_a_directory_it_ends_with_the_output(limited: Writers) -> None:
    writer = begin_stand_in(limited)
    writer.prints("y")
    until(lambda: writer.kept().endswith("y"))
    shutil.rmtree(limited.directory)
    writer.prints("in vain\n")
    assert writer.end() == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_one_that_has_processes_again_still_ends_with_its_session(limited: Writers, shell: str) -> None:
    path = standing_in(limited.directory, "fallocate: fallocate failed: No space left on device")
    fallocate = limited.directory / "bin/fallocate"
    for program in (fallocate.parent, fallocate):
        program.chmod(0o755)
    fallocate.rename(limited.directory / "later")
    writer = limited.begin(shell, PATH=path)
    allow(writer, 1)
    begin_to_stand_in(writer)
    (limited.directory / "later").rename(fallocate)
    allow(writer, 1000)
    writer.prints("more\n")
    until(lambda: not stands_in(writer))
    writer.prints("more\n")
    until((writer.gates / "full").exists)
    writer.process.terminate()
    writer.process.wait(20)
    assert writer.kept().splitlines()[-1] == LOST_TO_THE_END
