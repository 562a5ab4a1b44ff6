"""Disks that are full, have no inodes left or cannot be written: nothing is lost, nothing is said twice."""

import json
import re
import select
import shlex
import subprocess
import time
from collections.abc import Iterator

import pytest
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.machine import Machine
from harness.small_disks import Disk, on_small_disk
from harness.waiting import until

KINDS = ["full", "full ext4", "quota", "no inodes", "read-only"]
REFUSED = "No space left|Read-only|Disk quota exceeded"


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, shared_machine: Machine) -> Iterator[tuple[Amux, Disk]]:
    with on_small_disk(shared_machine, request.param) as amux_and_disk:
        yield amux_and_disk


def test_a_change_that_cannot_be_written_is_refused_and_nothing_else_changes(
    disk: tuple[Amux, Disk],
) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    ready = amux.create(["sleep", "infinity"], cwd="/", start=False)
    pid = session.get("Pid")
    before = small.stored(session), small.stored(session, "history.jsonl")
    small.refuse()
    with pytest.raises(CallFailed, match=f"stays running: .*({REFUSED})"):
        session.stop()
    with pytest.raises(CallFailed, match=f"stays created: .*({REFUSED})"):
        ready.call("Start")
    with pytest.raises(CallFailed, match=REFUSED):
        amux.create(["true"], cwd="/")
    assert (small.stored(session), small.stored(session, "history.jsonl")) == before
    assert (session.state, session.get("Pid")) == ("running", pid)
    assert (ready.state, small.state(ready)) == ("created", "created")
    assert len(amux.sessions()) == 2
    small.allow()
    session.stop()
    assert (session.state, small.state(session)) == ("stopped", "stopped")
    ready.call("Start")
    assert small.state(ready) == "running"


def test_an_end_that_cannot_be_written_is_written_when_there_is_room(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    small.refuse()
    before = time.time()
    session.call("Kill", "s", "SIGKILL")
    until(lambda: session.get("SessionAlive") == "dead")
    after = time.time()
    until(lambda: "cannot be written" in json.dumps(amux.journal(AMUX_SESSION=session.id)))
    assert (session.state, small.state(session)) == ("running", "running")
    small.allow()
    session.wait_state("failed", timeout=60)
    assert small.state(session) == "failed"
    assert session.certificate()["signal"] == "SIGKILL"
    targets = [entry[3] for entry in session.call("History")]
    assert targets == ["created", "starting", "running", "failed"]
    # When it happened, and not when it could be written.
    for at in (session.call("History")[-1][0], session.certificate()["ended_usec"]):
        assert before <= at / 1e6 <= after


def test_an_end_that_cannot_be_written_is_told_all_the_same(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sh", "-c", "read -r code; exit $code"], cwd="/")
    assert session.get("Unwritten") == ""
    waiting = amux.popen("wait", session.id, stderr=subprocess.PIPE, text=True)
    small.refuse()
    session.send("7")
    assert waiting.stderr is not None
    assert select.select([waiting.stderr], [], [], 20)[0]
    said = waiting.stderr.readline()
    unwritten = session.get("Unwritten")
    assert re.match(
        rf"it is failed \(exited with code 7\), and .* not written down: .*({REFUSED})", unwritten
    )
    assert f"{unwritten}; waiting until its end is written\n" in said
    limited = amux.cli("wait", "--timeout", "0.1s", session.id, check=False)
    assert limited.returncode == 124
    assert limited.stderr.endswith(" has ended, and that is not written down after 0.1s\n")
    assert (session.state, small.state(session)) == ("running", "running")
    assert "running (ended, not written)" in amux.cli("ls").stdout
    shown = amux.cli("show", session.id).stdout
    assert f"running (ended, not written): {unwritten}" in shown
    assert f"Next:        amux logs {session.id}" in shown
    told = json.loads(amux.cli("show", "--json", session.id).stdout)
    assert (told["state"], told["unwritten"], told["session_alive"]) == ("running", unwritten, False)
    events = amux.events()
    small.allow()
    assert waiting.wait(timeout=60) == 7
    assert waiting.stderr.read() == ""
    assert (session.state, session.get("Unwritten")) == ("failed", "")
    assert "failed (exit 7)" in amux.cli("ls").stdout
    signal = events.wait(lambda one: one.member == "PropertiesChanged" and "Unwritten" in one.body[1])
    # Nobody sees the one without the other.
    assert (signal.body[1]["Unwritten"][1], signal.body[1]["State"][1]) == ("", "failed")


def test_a_stop_that_is_refused_names_a_way_to_end_the_processes(disk: tuple[Amux, Disk]) -> None:
    """Of the session that fills the disk, say. It is followed to the letter."""
    amux, small = disk
    session = amux.create(["sh", "-c", "setsid sleep infinity & exec sleep infinity"], cwd="/")
    ended = amux.create(["true"], cwd="/")
    ended.wait_state("completed")
    # All that its end writes and frees is done.
    ended.certificate()
    until(lambda: len(amux.machine.pids_of("sleep")) == 2)
    small.refuse()
    for refused in (
        amux.cli("stop", session.id, check=False),
        amux.cli("rm", "-f", session.id, check=False),
    ):
        assert refused.returncode == 1
        assert re.search(REFUSED, refused.stderr)
        way = re.search(r"its processes can be ended by: (systemctl .*)", refused.stderr)
        assert way
        order = shlex.split(way[1])
    assert session.state == "running"
    amux.machine.run(order, env=amux.environment)
    until(lambda: not amux.machine.pids_of("sleep"))
    # With who took down its output goes what was set apart for the log: the end may find room there.
    may_be_written = small.kind in {"full", "full ext4"}
    until(lambda: session.get("Unwritten") or (may_be_written and session.state == "failed"))
    # btrfs renames nothing for whoever has used up his quota.
    if small.kind not in {"read-only", "quota"}:
        amux.cli("rm", ended.id)
    small.allow()
    session.wait_state("failed", timeout=60)


# Once it is asked to end it takes its time.
THINKER = (
    "trap 'echo asked; until [ -e \"$0\" ]; do sleep 0.05; done; exit 5' TERM; "
    "echo ready; while :; do sleep 0.05; done"
)


# On the others a run gives back at its end what its end finds room in.
@pytest.mark.parametrize("disk", ["read-only"], indirect=True)
def test_who_wants_something_of_one_whose_end_cannot_be_written_is_refused(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    go_on = amux.machine.temporary / "go-on"
    session = amux.create(["sh", "-c", THINKER, str(go_on)], cwd="/")
    until(lambda: "ready" in small.log(session))
    stopping = amux.popen("stop", "--grace", "100s", session.id, stderr=subprocess.PIPE, text=True)
    until(lambda: "asked" in small.log(session))
    removing = amux.popen("rm", "-f", session.id, stderr=subprocess.PIPE, text=True)
    small.refuse()
    go_on.write_text("")
    why = rf"it is stopped \(stopped; exited with code 5\), and that is not written down: .*({REFUSED})"
    for waiting in (stopping, removing):
        _, told = waiting.communicate(timeout=60)
        assert waiting.returncode == 1
        assert re.search(why, told)
    for verb in ("stop", "restart", "archive", "park"):
        refused = amux.cli(verb, session.id, check=False)
        assert refused.returncode
        assert re.search(why, refused.stderr)
    small.allow()
    session.wait_state("stopped", timeout=60)
    assert session.certificate()["exit_code"] == 5
    assert len(amux.sessions()) == 1
    amux.cli("rm", session.id)


def test_amuxd_comes_and_goes_on_a_disk_that_refuses(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    other = amux.create(["sleep", "infinity"], cwd="/")
    pid, other_pid = session.get("Pid"), other.get("Pid")
    amux.stop()
    assert small.state(session) == "suspended"
    if small.kind == "read-only":
        # amuxd can promise nothing there, and says so.
        small.refuse()
        with pytest.raises(Exception, match=r"Job for amuxd\.service failed"):
            amux.start()
        assert "Read-only file system" in json.dumps(amux.journal())
        small.allow()
        # amuxd does not come back by itself, and whoever asks for anything begins it.
        assert session.id in amux.cli("ls").stdout
    else:
        small.refuse()
        amux.start()
        assert (session.state, small.state(session)) == ("suspended", "suspended")
        assert session.get("SessionAlive") == "unknown"
        amux.machine.kill(other_pid)
        amux.restart()
        small.allow()
    session.wait_state("running", timeout=60)
    until(lambda: session.get("Pid") == pid)
    assert small.state(session) == "running"
    if small.kind != "read-only":
        other.wait_state("failed", timeout=60)
        assert other.certificate()["signal"] == "SIGKILL"


def test_how_a_command_in_a_shell_ended_is_known_on_a_disk_that_refuses(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    line = "echo ready; read word; exit 6"
    session = amux.create([line], shell=True, cwd="/", env={"SHELL": "/bin/bash"})
    until(lambda: "ready" in small.log(session))
    small.refuse()
    before = time.time()
    session.send("go")
    # There was room for it from the beginning, but btrfs writes nothing twice to the same place.
    if small.kind in {"read-only", "quota"}:
        told = "exited with code 6, which cannot be written down"
        until(lambda: told in session.call("Capture", "u", 50).replace("\n", ""))
        assert session.get("SessionAlive") == "alive"
    else:
        until(lambda: "it is failed (exited with code 6)" in session.get("Unwritten"))
        assert "running (ended, not written)" in amux.cli("ls").stdout
        # The shell is open still.
        refused = amux.cli("stop", session.id, check=False)
        assert f"can be ended by: systemctl --user kill --signal=SIGKILL amux-{session.id}" in refused.stderr
    after = time.time()
    small.allow()
    session.wait_state("failed", timeout=60)
    assert session.certificate()["exit_code"] == 6
    assert before <= session.certificate()["ended_usec"] / 1e6 <= after
    session.send("echo in-$((40 + 2))")
    until(lambda: "in-42" in small.log(session))


# Once it is ready it says nothing until it is told which lines it shall print, and rings when it has.
READY = "ready\n"
PRINTER = (
    r'stty -echo -onlcr; echo ready; while read -r first last; do seq "$first" "$last"; printf "\a"; done'
)
# More than the log has room reserved for.
MANY = 300_000


def lines(first: int, last: int) -> str:
    return "".join(f"{number}\n" for number in range(first, last + 1)) + "\a"


FIRST = READY + lines(1, 9)


def with_cap(amux: Amux, cap: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[sessions]\nlog_cap = "{cap}"\n')
    amux.manager.call("Reload")


def printing(amux: Amux, small: Disk) -> Session:
    session = amux.create(["sh", "-c", PRINTER], cwd="/")
    # What is typed before that is echoed.
    until(lambda: small.log(session) == READY)
    session.send("1 9")
    until(lambda: small.log(session) == FIRST)
    return session


def printing_in_vain(amux: Amux, small: Disk) -> Session:
    """Most of what it prints finds no room."""
    session = printing(amux, small)
    small.refuse()
    session.send(f"10 {MANY}")
    until(lambda: f"{MANY}" in session.call("Capture", "u", 50), timeout=60)
    # What takes it down is at it, and finds none.
    until(lambda: amux.machine.pids_of("sleep"))
    return session


@pytest.mark.parametrize("disk", ["full", "full ext4"], indirect=True)
def test_output_waits_for_room_and_is_all_there_then(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing_in_vain(amux, small)
    assert not small.log(session).endswith(f"{MANY}\n\a")
    small.allow()
    until(lambda: small.log(session).endswith(f"{MANY}\n\a"), timeout=60)
    assert small.log(session) == FIRST + lines(10, MANY)
    until(lambda: session.get("Attention") == "bell")


@pytest.mark.parametrize("disk", ["full", "full ext4"], indirect=True)
def test_what_a_session_prints_and_ends_with_on_a_full_disk_is_kept(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing_in_vain(amux, small)
    session.call("Kill", "s", "SIGKILL")
    until(lambda: "cannot be written" in json.dumps(amux.journal(AMUX_SESSION=session.id)))
    small.allow()
    session.wait_state("failed", timeout=60)
    assert session.certificate()["last_lines"][-1] == f"{MANY}"
    assert small.log(session) == FIRST + lines(10, MANY)


@pytest.mark.parametrize("disk", ["quota"], indirect=True)
def test_where_what_is_reserved_is_refused_the_log_says_what_is_missing(disk: tuple[Amux, Disk]) -> None:
    """btrfs counts that once more as it is written."""
    amux, small = disk
    session = printing_in_vain(amux, small)
    small.allow()
    until(lambda: small.log(session).endswith(f"{MANY}\n\a"), timeout=60)
    assert "the disk was full, output is missing here" in small.log(session)


@pytest.mark.parametrize("disk", ["full"], indirect=True)
def test_more_than_the_log_would_keep_does_not_wait_in_memory(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    with_cap(amux, "4M")
    session = printing_in_vain(amux, small)
    [terminal] = {process for process in amux.machine.processes() if process.name().startswith("tmux")}
    used = terminal.memory_info().rss
    # 15 megabytes each time, and in the second that it takes to be seen perhaps all of them.
    for last in range(2_000_001, 2_000_004):
        session.send(f"1 {last}")
        until(lambda: f"{last}" in session.call("Capture", "u", 50), timeout=60)  # noqa: B023
    # More than one log and its predecessor have room for waits for nobody.
    until(lambda: terminal.memory_info().rss < used + (16 << 20), timeout=60)
    small.allow()
    until(lambda: "the disk was full, output is missing here" in small.log(session), timeout=60)
    session.send("1 9")
    until(lambda: small.log(session).endswith(lines(1, 9)))


@pytest.mark.parametrize("disk", ["no inodes"], indirect=True)
def test_a_log_that_cannot_begin_anew_goes_on_when_it_can(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    with_cap(amux, "4M")
    session = printing(amux, small)
    small.refuse()
    # More than one log keeps, and less than the disk does.
    last = 800_000
    session.send(f"10 {last}")
    until(lambda: f"{last}" in session.call("Capture", "u", 50), timeout=60)
    until(lambda: amux.machine.pids_of("sleep"))
    aside = small.stored(session, "runs/1/output.log.1")
    assert FIRST + lines(10, last) != aside
    small.allow()
    until(lambda: small.log(session).endswith(f"{last}\n\a"), timeout=60)
    assert aside + small.log(session) == FIRST + lines(10, last)


@pytest.mark.parametrize("disk", ["full", "full ext4"], indirect=True)
def test_a_little_output_has_room_on_a_full_disk(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing(amux, small)
    small.refuse()
    session.send("10 2999")
    until(lambda: small.log(session) == FIRST + lines(10, 2999))


@pytest.mark.parametrize("disk", ["full"], indirect=True)
def test_a_stop_does_not_wait_for_room_for_output_and_the_log_says_so(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing_in_vain(amux, small)
    small.ease()
    session.call("Stop", "a{sv}", {}, timeout=60)
    assert small.state(session) == "stopped"
    assert "the disk was full to the end, output may be missing here" in small.log(session)
