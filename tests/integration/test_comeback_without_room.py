"""resume=auto on a disk that is full when the machine comes up: it waits for room, and that is no failure."""

import json
from collections.abc import Iterator

import pytest
from harness.daemon import Amux
from harness.machine import Machine
from harness.small_disks import Disk, on_small_disk
from harness.waiting import until


@pytest.fixture(params=["full", "no inodes"])
def disk(request: pytest.FixtureRequest, shared_machine: Machine) -> Iterator[tuple[Amux, Disk]]:
    with on_small_disk(shared_machine, request.param) as amux_and_disk:
        yield amux_and_disk


def test_it_comes_back_when_there_is_room(disk: tuple[Amux, Disk]) -> None:
    amux, small = disk
    session = amux.create(["sleep", "infinity"], cwd="/", resume="auto")
    amux.stop()
    amux.machine.systemctl("stop", "amux-*.service")
    path = amux.machine.outside(amux.state) / "sessions" / session.id / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "an earlier boot"}))
    small.refuse()
    amux.start()
    until(lambda: "does not come back by itself" in json.dumps(amux.journal()))
    assert (session.state, session.get("Run")) == ("suspended", 1)
    small.allow()
    until(lambda: (session.state, session.get("Run")) == ("running", 2), timeout=60)
    stored = json.loads(small.stored(session))
    assert (stored["auto_run"], stored["auto_failures"]) == (2, 0)
