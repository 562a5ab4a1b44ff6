"""Twenty processes race for two slots, and some are killed at any moment of it."""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pytest

from amuxd import files, processes
from amuxd.records import HistoryEntry, RunState, Session, Workspace
from amuxd.states import LIVE, State
from amuxd.store import Store
from amuxd.workspaces.ledger import Ledger
from amuxd.workspaces.slots import Queued, Taken, free

RACERS = 20
SLOTS = 2
ROUNDS = 1000
TURNS = 40
FORK = multiprocessing.get_context("fork")
BOOT = "this boot"


def load(store: Store, session_id: str) -> RunState:
    return files.read(RunState, store.directory(session_id) / "state.json")


def move(store: Store, session_id: str, target: State, run: int | None = None) -> None:
    present = load(store, session_id)
    at = present.state_changed_at + 1
    new = replace(
        present,
        state=target,
        previous=present.state,
        state_changed_at=at,
        run=run or present.run,
        command=processes.identify(os.getpid()),
        boot_id=BOOT,
    )
    line = HistoryEntry(at, new.run, present.state, target, "", "test")
    store.change(present, new, line)


def race(root: Path, session_id: str, orders: Connection) -> None:
    """Takes a slot when it is told to, and is live with it until it is told to end."""
    store = Store(root)
    ledger = Ledger(root, store, BOOT)
    with contextlib.suppress(EOFError):
        while True:
            order = orders.recv()
            if order == "end":
                move(store, session_id, State.COMPLETED)
                ledger.tidy("ws0001")
                orders.send("ended")
                continue
            run = load(store, session_id).run
            with ledger.taking(session_id, run):
                outcome = ledger.take("ws0001", session_id, run, may_wait=order == "queue")
                if isinstance(outcome, Taken):
                    move(store, session_id, State.STARTING)
            if isinstance(outcome, Taken):
                move(store, session_id, State.RUNNING)
                orders.send("live")
            else:
                orders.send("waits" if isinstance(outcome, Queued) else "busy")


@dataclass
class Racer:
    id: str
    process: multiprocessing.process.BaseProcess
    orders: Connection


class Track:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root)
        self.ledger = Ledger(root, self.store, BOOT)
        self.ledger.define(Workspace("ws0001", "w", "/w", 1, SLOTS))
        self.racers: list[Racer] = []
        for number in range(RACERS):
            session_id = f"racer{number}"
            state = RunState(session_id, State.CREATED, 1, os.getpid(), 1, BOOT, "")
            line = HistoryEntry(1, 1, None, State.CREATED, "", "test")
            self.store.create(Session(session_id, session_id, ["true"], "/", 1), state, line)
            self.racers.append(self.begin(session_id))

    def begin(self, session_id: str) -> Racer:
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=race, args=(self.root, session_id, theirs), daemon=True)
        process.start()
        theirs.close()
        return Racer(session_id, process, ours)

    def kill(self, racer: Racer) -> None:
        """What amuxd then does: it sees what became of the session, and says so."""
        assert racer.process.pid is not None
        os.kill(racer.process.pid, signal.SIGKILL)
        racer.process.join()
        if load(self.store, racer.id).state in LIVE:
            move(self.store, racer.id, State.FAILED)

    def begin_again(self, racer: Racer) -> None:
        """A new run of its session, by a new process where the old one was killed."""
        if not racer.process.is_alive():
            racer.orders.close()
            self.racers[self.racers.index(racer)] = self.begin(racer.id)
        state = load(self.store, racer.id)
        if state.state is not State.CREATED:
            move(self.store, racer.id, State.CREATED, run=state.run + 1)

    def answers(self, asked: list[Racer]) -> dict[str, str]:
        told: dict[str, str] = {}
        waiting = {racer.orders: racer for racer in asked}
        deadline = time.monotonic() + 60
        while waiting:
            ready = wait(list(waiting), timeout=deadline - time.monotonic())
            assert ready, f"no answer from {[r.id for r in waiting.values()]}"
            for orders in ready:
                assert isinstance(orders, Connection)
                racer = waiting.pop(orders)
                with contextlib.suppress(EOFError, ConnectionError):
                    told[racer.id] = orders.recv()
        return told

    def live(self) -> list[Racer]:
        return [racer for racer in self.racers if load(self.store, racer.id).state in LIVE]

    def close(self) -> None:
        for racer in self.racers:
            racer.process.kill()
            racer.process.join()


@pytest.fixture
def track() -> Iterator[Track]:
    root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    track = Track(root)
    yield track
    track.close()
    shutil.rmtree(root)


def one_round(track: Track, chance: random.Random, number: int) -> None:
    """Whoever is live ends, by its own will or by a signal; then all that do not wait race at once."""
    ended = track.live()
    for racer in ended:
        if chance.random() < 0.2:
            track.kill(racer)
        else:
            racer.orders.send("end")
            assert track.answers([racer]) == {racer.id: "ended"}
    present = track.ledger.tidy("ws0001")
    assert not present.holders
    # Only now: with a new run alone a slot would be given back as well.
    for racer in ended:
        track.begin_again(racer)
    waiting = [place.session_id for place in present.queue]
    heads = waiting[: free(present)]
    assert heads == waiting[:SLOTS]
    starters = [racer for racer in track.racers if racer.id in heads or racer.id not in waiting]
    chance.shuffle(starters)
    for racer in starters:
        racer.orders.send("queue" if chance.random() < 0.3 else "take")
    victim = chance.choice(starters) if number % 3 == 0 else None
    if victim is not None:
        # At once, or somewhere on its way.
        victim.orders.poll(chance.choice([0, chance.random() / 200]))
        track.kill(victim)
    told = track.answers(starters)
    live = {racer.id for racer in track.live()}
    assert len(live) <= SLOTS
    if victim is None:
        assert len(live) == SLOTS
        assert sorted(told.values()).count("live") == SLOTS
    # Whose run is over waits no more; who was killed before it began is where it was, and is waited for.
    over = {victim.id} if victim and load(track.store, victim.id).state is State.FAILED else set()
    assert live.issuperset({*heads} - {victim.id if victim else ""})
    let_go = over & {*heads} if waiting == heads else set()
    assert len(live.difference(heads)) <= SLOTS - len(heads) + len(let_go)
    if victim is not None:
        track.begin_again(victim)
    after = [place.session_id for place in track.ledger.tidy("ws0001").queue]
    stayed = [one for one in waiting if one not in live | over]
    assert after[: len(stayed)] == stayed
    came = {one for one, how in told.items() if how == "waits"}
    assert came <= {*after[len(stayed) :]} <= came | ({victim.id} if victim else set())


def test_twenty_processes_for_two_slots(track: Track) -> None:
    chance = random.Random(5)
    for number in range(ROUNDS):
        one_round(track, chance, number)


def take_and_give_back(root: Path, session_id: str, results: Connection) -> None:
    """Again and again; tells how often it had a slot, and how often nobody would have known of that."""
    store = Store(root)
    ledger = Ledger(root, store, BOOT)
    had = unknown = 0
    for run in range(1, TURNS + 1):
        if run > 1:
            move(store, session_id, State.CREATED, run=run)
        with ledger.taking(session_id, run):
            outcome = ledger.take("ws0001", session_id, run, may_wait=False)
            if isinstance(outcome, Taken):
                move(store, session_id, State.RUNNING)
        if isinstance(outcome, Taken):
            had += 1
            present = files.read(Workspace, root / "workspaces/ws0001.json")
            holders = {place.session_id for place in present.holders}
            unknown += session_id not in holders or len(holders) > SLOTS
            move(store, session_id, State.COMPLETED)
            ledger.tidy("ws0001")
    results.send((had, unknown))


def test_slots_are_taken_and_given_back_at_the_same_time(track: Track) -> None:
    told: list[Connection] = []
    racing = []
    for racer in track.racers:
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=take_and_give_back, args=(track.root, racer.id, theirs), daemon=True)
        process.start()
        theirs.close()
        told.append(ours)
        racing.append(process)
    results = [answer.recv() for answer in told]
    for process in racing:
        process.join()
    assert sum(had for had, _ in results) > TURNS
    assert [unknown for _, unknown in results] == [0] * RACERS
    assert not track.ledger.tidy("ws0001").holders
