"""Disks that are full, have no inodes left or cannot be written: nothing is lost, nothing is said twice."""

import json
from collections.abc import Iterator

import pytest
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.machine import Machine
from harness.waiting import until


class Disk:
    """A small file system of its own, under all that amuxd keeps."""

    def __init__(self, machine: Machine, amux: Amux, kind: str) -> None:
        self.machine = machine
        self.kind = kind
        self.refuses = False
        self.directory = amux.state
        self.filler = self.directory / "filler"
        self._root = amux.machine.outside(self.directory)
        machine.run(["mkdir", "-p", self.directory])
        if kind == "full ext4":
            image = machine.temporary / "disk"
            machine.run(["truncate", "--size=16M", image])
            machine.run(["/usr/sbin/mkfs.ext4", "-q", "-m0", image])
            machine.run(["mount", "-o", "loop", image, self.directory])
        else:
            options = "size=8M,nr_inodes=200" if kind == "no inodes" else "size=8M"
            machine.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.directory])

    def refuse(self) -> None:
        self.refuses = True
        match self.kind:
            case "read-only":
                # On top of itself: the files that are open already can be written still.
                self.machine.run(["mount", "--bind", self.directory, self.directory])
                # Refused for as long as somebody is just writing through it.
                remount = ["mount", "-o", "remount,bind,ro", self.directory]
                until(lambda: self.machine.run(remount, check=False).returncode == 0)
            case "no inodes":
                script = 'i=0; mkdir "$0"; while touch "$0/$i"; do i=$((i+1)); done 2>/dev/null'
                self.machine.run(["sh", "-c", script, self.filler])
            case _:
                self.machine.run(["dd", "if=/dev/zero", f"of={self.filler}", "bs=64k"], check=False)
                self.machine.run(["dd", "if=/dev/zero", f"of={self.filler}.2", "bs=512"], check=False)

    def allow(self) -> None:
        self.refuses = False
        if self.kind == "read-only":
            self.machine.run(["umount", "--lazy", self.directory])
        else:
            self.machine.run(["sh", "-c", 'rm -rf "$0" "$0.2"', self.filler])

    def ease(self) -> None:
        """Room for changes of state, and for little output."""
        self.machine.run(["truncate", "--size=-100K", self.filler])

    def stored(self, session: Session, name: str = "state.json") -> str:
        return (self._root / "sessions" / session.id / name).read_text()

    def state(self, session: Session) -> str:
        return str(json.loads(self.stored(session))["state"])

    def log(self, session: Session) -> str:
        return (self._root / "sessions" / session.id / "runs/1/output.log").read_text(errors="replace")


KINDS = ["full", "full ext4", "no inodes", "read-only"]


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, shared_machine: Machine) -> Iterator[tuple[Amux, Disk]]:
    amux = Amux(shared_machine)
    disk = Disk(shared_machine, amux, request.param)
    try:
        amux.start()
        yield amux, disk
    finally:
        if disk.refuses:
            disk.allow()
        # With its directory the mount goes as well.
        amux.close()


def test_a_change_that_cannot_be_written_is_refused_and_nothing_else_changes(
    disk: tuple[Amux, Disk],
) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/")
    ready = amux.create(["sleep", "infinity"], cwd="/", start=False)
    pid = session.get("Pid")
    before = small.stored(session), small.stored(session, "history.jsonl")
    small.refuse()
    with pytest.raises(CallFailed, match=r"stays running: .*(No space left|Read-only)"):
        session.stop()
    with pytest.raises(CallFailed, match=r"stays created: .*(No space left|Read-only)"):
        ready.call("Start")
    with pytest.raises(CallFailed, match=r"No space left|Read-only"):
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
    session.call("Kill", "s", "SIGKILL")
    until(lambda: session.get("SessionAlive") == "dead")
    until(lambda: "cannot be written" in json.dumps(amux.journal(AMUX_SESSION=session.id)))
    assert (session.state, small.state(session)) == ("running", "running")
    small.allow()
    session.wait_state("failed", timeout=15)
    assert small.state(session) == "failed"
    assert session.certificate()["signal"] == "SIGKILL"
    targets = [entry[3] for entry in session.call("History")]
    assert targets == ["created", "starting", "running", "failed"]


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
        amux.machine.systemctl("reset-failed", "amuxd.service", check=False)
        amux.start()
    else:
        small.refuse()
        amux.start()
        assert (session.state, small.state(session)) == ("suspended", "suspended")
        assert session.get("SessionAlive") == "unknown"
        amux.machine.kill(other_pid)
        amux.restart()
        small.allow()
    session.wait_state("running", timeout=15)
    until(lambda: session.get("Pid") == pid)
    assert small.state(session) == "running"
    if small.kind != "read-only":
        other.wait_state("failed", timeout=15)
        assert other.certificate()["signal"] == "SIGKILL"


PRINTER = 'n=0; while read -r word; do n=$((n+1)); echo "line $n $word"; done'


def printing_in_vain(amux: Amux, small: Disk) -> Session:
    """What it printed last, more than what is left of the block that its log ends in, finds no room."""
    session = amux.create(["sh", "-c", PRINTER], cwd="/")
    session.send("before")
    until(lambda: "line 1 before" in small.log(session))
    small.refuse()
    session.send("x" * 6000)
    session.send("unheard")
    until(lambda: "unheard" in session.call("Capture", "u", 50))
    return session


@pytest.mark.parametrize("disk", ["full", "full ext4"], indirect=True)
def test_output_waits_for_room_and_the_log_says_what_is_missing(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing_in_vain(amux, small)
    small.allow()
    session.send("after")
    until(lambda: "after" in small.log(session), timeout=15)
    assert "output is missing here" in small.log(session)
    assert "line 1 before" in small.log(session)


@pytest.mark.parametrize("disk", ["full"], indirect=True)
def test_a_stop_does_not_wait_for_room_for_output(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = printing_in_vain(amux, small)
    # Its copier is at it, and finds none.
    until(lambda: amux.machine.pids_of("sleep"))
    small.ease()
    session.call("Stop", "a{sv}", {}, timeout=20)
    assert small.state(session) == "stopped"
