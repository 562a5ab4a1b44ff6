"""amuxd goes while the disk is full: what it could not mark suspended, and ends then, has not failed."""

import json
from collections.abc import Iterator

import pytest
from harness.daemon import Amux
from harness.machine import Machine
from harness.small_disks import Disk, on_small_disk
from harness.waiting import until


@pytest.fixture(params=["full", "full ext4", "no inodes"])
def disk(request: pytest.FixtureRequest, shared_machine: Machine) -> Iterator[tuple[Amux, Disk]]:
    with on_small_disk(shared_machine, request.param) as amux_and_disk:
        yield amux_and_disk


@pytest.mark.parametrize("room_again", ["before", "after"])
def test_what_ended_with_a_logout_is_suspended(disk: tuple[Amux, Disk], room_again: str) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    small.refuse()
    amux.stop()
    assert small.state(session) == "running"
    amux.machine.systemctl("stop", "amux-*.service")
    if room_again == "before":
        small.allow()
    else:
        # What ended has left some.
        small.refuse()
    amux.start()
    if room_again == "after":
        assert session.state == "running"
        assert session.get("SessionAlive") == "unknown"
        small.allow()
    session.wait_state("suspended", timeout=60)
    assert session.get("Reason") == "amuxd was stopped"


def test_what_lives_on_is_found_and_its_later_end_is_its_own(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    small.refuse()
    amux.stop()
    amux.start()
    assert (session.state, session.get("SessionAlive")) == ("running", "alive")
    small.allow()
    amux.machine.systemctl("kill", "--signal=SIGKILL", "amuxd.service")
    amux.machine.systemctl("stop", "amuxd.socket", "amuxd.service", check=False)
    amux.machine.systemctl("stop", "amux-*.service")
    amux.start()
    until(lambda: session.state == "failed")
    assert session.get("Reason") == "gone without a trace, its end is not known"


def test_half_a_word_is_none(amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"], cwd="/")
    words = amux.machine.outside(amux.state) / "last-words"
    until(lambda: words.exists() and words.stat().st_size)
    amux.stop()
    size = words.stat().st_size
    words.write_bytes(json.dumps({"schema": 1, "words": []}).encode()[:-3].ljust(size, b"\0"))
    amux.start()
    session.wait_state("running")
