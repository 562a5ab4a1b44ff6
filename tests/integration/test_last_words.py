"""amuxd goes while the disk is full: what it could not mark suspended, and ends then, has not failed."""

import json
import signal
import time
from collections.abc import Iterator

import pytest
from away_fixtures import stays_down
from ends_fixtures import end, ended
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
        assert (session.state, session.get("SessionAlive")) == ("running", "dead")
        assert session.get("Unwritten").startswith(
            "it is suspended (amuxd was stopped), and that is not written"
        )
        small.allow()
    session.wait_state("suspended", timeout=60)
    assert session.get("Reason") == "amuxd was stopped"


def test_what_is_found_ended_is_told_before_it_can_be_written(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    pid = session.get("Pid")
    small.refuse()
    with stays_down(amux, signal.SIGTERM):
        amux.machine.kill(pid)
        small.refuse()
    assert (session.state, session.get("SessionAlive")) == ("running", "dead")
    told = "it is failed (killed by SIGKILL), and that is not written down: "
    assert session.get("Unwritten").startswith(told)
    assert "running (ended, not written)" in amux.cli("ls").stdout
    refused = amux.cli("stop", session.id, check=False)
    assert refused.returncode == 1
    assert told in refused.stderr
    waiting = amux.cli("wait", "--timeout", "1", session.id, check=False)
    assert waiting.returncode == 124
    assert told in waiting.stderr
    small.allow()
    session.wait_state("failed", timeout=60)
    moved = [entry[3] for entry in session.call("History")]
    assert moved == ["created", "starting", "running", "suspended", "failed"]
    assert session.certificate()["signal"] == "SIGKILL"


def test_what_had_ended_when_amuxd_went_did_so_before(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    small.refuse()
    before = time.time_ns() // 1000
    session.call("Kill", "s", "SIGKILL")
    until(lambda: session.get("Unwritten") != "")
    after = time.time_ns() // 1000
    amux.stop()
    small.allow()
    amux.start()
    assert ended(session) == end("failed", "killed by SIGKILL", signal="SIGKILL")
    assert before <= session.get("EndedUSec") <= after
    assert session.get("EndedAfterUSec") == 0
    assert [entry[3] for entry in session.call("History")] == ["created", "starting", "running", "failed"]


def test_what_ended_later_did_so_after_it_was_left_alive(amux: Amux) -> None:
    session = amux.create(["sleep", "infinity"], cwd="/")
    in_the_way = amux.state / "sessions" / session.id / "state.json.new"
    pid, in_the_way_outside = session.get("Pid"), amux.machine.outside(in_the_way)
    in_the_way_outside.mkdir()
    before = time.time_ns() // 1000
    with stays_down(amux, signal.SIGTERM):
        left = time.time_ns() // 1000
        in_the_way_outside.rmdir()
        amux.machine.kill(pid)
        until(session.command_has_ended)
    wanted = end("failed", "killed by SIGKILL", signal="SIGKILL")
    assert ended(session) == wanted
    moved = [(entry[2], entry[3]) for entry in session.call("History")]
    assert moved[-2:] == [("running", "suspended"), ("suspended", "failed")]
    suspended_at = session.call("History")[-2][0]
    assert before <= suspended_at <= left
    assert suspended_at <= session.get("EndedAfterUSec") <= session.get("EndedUSec")


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
