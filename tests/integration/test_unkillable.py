"""Without systemd: a process that waits in the kernel, where no signal ends it, holds up nobody else."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import hung_mount
from harness.daemon import Embedded
from harness.waiting import until

from amuxd.hosts import bare

pytestmark = pytest.mark.skipif(not Path(hung_mount.DEVICE).exists(), reason="there is no /dev/fuse")

# It is asked, killed with all that is left, and looked at; and the machine may be busy.
AT_MOST = 2 * (bare.DEADLINE + bare.LOOKS)


@pytest.fixture
def hung(embedded: Embedded) -> Iterator[Path]:
    """Who reads a file in it waits until the test is over."""
    directory = embedded.machine.temporary / "hung"
    directory.mkdir()
    program = [sys.executable, hung_mount.__file__, str(directory), hung_mount.TAKEN]
    server = embedded.machine.popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == "mounted\n"
    try:
        yield directory
    finally:
        server.communicate()
        assert server.returncode == 0


def reader(embedded: Embedded, directory: Path, name: str) -> int:
    """A session whose command can be ended, and what it left behind cannot: the number of that."""
    file = f"{directory}/{name}"
    embedded.cli("run", "-n", name, "--", "sh", "-c", f"setsid cat {file} & wait")
    return until(lambda: hanging(embedded, ["cat", file]))


def hanging(embedded: Embedded, command: list[str]) -> int:
    """Its number in the machine, once it waits in the kernel; 0: it does not yet."""
    for pid, words in embedded.machine.command_lines().items():
        if words == command and Path(f"/proc/{pid}/wchan").read_text() == "request_wait_answer":
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            return int(next(line for line in status if line.startswith("NSpid:")).split()[-1])
    return 0


def pid_of_amuxd(embedded: Embedded) -> int:
    return int((embedded.state / "amuxd.lock").read_text())


def test_a_stop_says_what_is_left_and_amuxd_goes_on_and_can_end(embedded: Embedded, hung: Path) -> None:
    pid = reader(embedded, hung, "stuck")
    refused = embedded.cli("stop", "stuck", check=False, timeout=AT_MOST)
    assert refused.returncode == 1
    left = f"process {pid} (cat) cannot be ended, not even by SIGKILL"
    assert refused.stderr == f"amux: stuck could not be stopped: {left}\n"
    session = embedded.session("stuck")
    assert (session.state, session.get("Reason")) == ("failed", f"could not be stopped: {left}")
    embedded.cli("run", "-n", "other", "--", "sleep", "1000")
    embedded.cli("stop", "other")
    assert embedded.session("other").state == "stopped"
    # Returns once it has ended.
    embedded.machine.kill(pid_of_amuxd(embedded), signal.SIGTERM)


def test_amuxd_ends_while_more_are_stopped_than_it_has_threads(embedded: Embedded, hung: Path) -> None:
    for number in range(9):
        reader(embedded, hung, f"s{number}")
    stopping = [embedded.popen("stop", f"s{number}", stderr=subprocess.PIPE) for number in range(9)]
    until(lambda: all(embedded.session(f"s{number}").state == "stopping" for number in range(9)))
    # Past the time that each command has to end by itself.
    until(lambda: embedded.machine.pids_of("sh") == set(), timeout=AT_MOST)
    began = time.monotonic()
    embedded.machine.kill(pid_of_amuxd(embedded), signal.SIGTERM)
    assert time.monotonic() - began < bare.DEADLINE
    for process in stopping:
        process.communicate(timeout=AT_MOST)
