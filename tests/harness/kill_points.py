"""An amuxd that is killed at a point of what it does, and one session of which all can be seen without it.

A point is a write, a call on the bus or of tmux.
"""

import contextlib
import fcntl
import itertools
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from amuxd.paths import SESSIONS_PATH
from amuxd.states import RERUNNABLE, WITHIN_A_RUN, State
from harness.bus import CallFailed, Proxy
from harness.client import BUS_NAME, Client, Session
from harness.machine import REPOSITORY, Machine
from harness.terminal import Terminal
from harness.waiting import until

PROGRAM = Path(__file__).with_name("amuxd_that_dies.py")
WORKSPACE = "org.amux.Amux1.Workspace"
DBUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
SYSTEMD = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
DEAD = {"created", "suspended", "stopped", "completed", "failed", "orphaned", "archived"}

# Says which run it is each time that it begins, and ends with the code that it is told.
COMMAND = 'echo begun >>"$0"; exec 3<"$1"; echo ready; read -r code <&3; echo "bye $code"; exit "$code"'

# An agent that begins and continues in the same way, so that it can be parked and resumed.
CONFIGURATION = f"""
[sessions]
stop_grace = "5s"
[agents.marked]
start = {json.dumps(["sh", "-c", COMMAND])}
resume = {json.dumps(["sh", "-c", COMMAND])}
"""


class Killable(Client):
    """amuxd without systemd's care: it starts when the test says so, and stays dead when it dies."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIGURATION)
        self.armed = machine.temporary / "armed"
        self.reached = machine.temporary / "reached"
        self.exit_code: int | None = None
        self._nursery = machine.popen(
            [machine.bindir / "python3", PROGRAM, self.armed, self.reached],
            env={"PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self) -> None:
        self.exit_code = None
        self._order("start")

    def start(self) -> None:
        self.begin()
        assert self.comes_up()

    def comes_up(self) -> bool:
        """True once it serves, False once it has died instead."""
        until(lambda: self.serves or self.has_ended, timeout=30)
        return not self.has_ended

    @property
    def serves(self) -> bool:
        return bool(self.bus.call(*DBUS, "NameHasOwner", "s", BUS_NAME))

    @property
    def has_ended(self) -> bool:
        if self.exit_code is None and (answer := self._order("poll", answered=True)) != "alive":
            self.exit_code = int(answer)
        return self.exit_code is not None

    def end(self, number: int) -> None:
        self._order(f"signal {int(number)}")
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """The bus may hear of it after its parent did, and must not take callers of the next one to it."""
        until(lambda: self.has_ended and not self.serves, timeout=30)

    def arm(self, point: int | str) -> None:
        self.reached.write_text("")
        scratch = self.armed.with_suffix(".new")
        scratch.write_text(str(point))
        scratch.rename(self.armed)

    def disarm(self) -> list[str]:
        self.armed.unlink()
        with self.reached.open() as reached:
            fcntl.flock(reached, fcntl.LOCK_EX)
            return reached.read().splitlines()

    def units(self) -> set[str]:
        found = self.bus.call(*SYSTEMD, "ListUnitsByPatterns", "asas", [], ["amux-*.service"])
        return {unit[0] for unit in (found or []) if unit[3] not in ("inactive", "failed")}

    def close(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        if not self.has_ended:
            self.end(signal.SIGKILL)
        self._nursery.stdin.close()
        self._nursery.stdout.close()
        self._nursery.wait(10)
        super().close()

    def _order(self, words: str, answered: bool = False) -> str:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(words + "\n")
        self._nursery.stdin.flush()
        return str(self._nursery.stdout.readline()).strip() if answered else ""


Act = Callable[["Subject"], None]


class Slot(Proxy):
    """A workspace in which one session can be live."""

    def __init__(self, amux: Killable, directory: Path) -> None:
        directory.mkdir()
        options = {"path": ("s", str(directory)), "slots": ("u", 1)}
        path = amux.manager.call("AddWorkspace", "sa{sv}", f"in {directory}", options)
        super().__init__(amux.bus, BUS_NAME, path, WORKSPACE)
        self.id = path.rpartition("/")[2]
        self.directory = directory
        self._file = amux.state / f"workspaces/{self.id}.json"

    def check(self, holders: list[str]) -> None:
        # It is given back right after the end is told.
        until(lambda: self.get("Holders") == holders, timeout=10)
        assert self.get("Queue") == []
        stored = json.loads(self._file.read_text())
        assert [place["session_id"] for place in stored["holders"]] == holders
        assert stored["queue"] == []


@dataclass(frozen=True)
class Scenario:
    """What happens before amuxd is armed and while it is, and what may have become of the session then."""

    before: Act
    act: Act
    allowed: set[str]
    agent: bool = False
    in_slot: bool = False


class Subject:
    """One session, and all that can be seen of it without asking amuxd."""

    def __init__(self, amux: Killable, directory: Path, scenario: "Scenario") -> None:
        directory.mkdir()
        self.amux = amux
        self.agent = scenario.agent
        self.slot = Slot(amux, directory / "place") if scenario.in_slot else None
        self.marks = directory / "marks"
        self.orders = directory / "orders"
        subprocess.run(["mkfifo", self.orders], check=True)
        self.known = {path.name for path in self._sessions()}
        self.session: Session
        self.other: Session | None = None
        self.terminal: Terminal | None = None

    def create(self, **options: object) -> None:
        own = [str(self.marks), str(self.orders)]
        if self.agent:
            self.session = self.amux.create(own, agent="marked", **self._place, **options)
        else:
            self.session = self.amux.create(["sh", "-c", COMMAND, *own], **self._place, **options)

    @property
    def _place(self) -> dict[str, str]:
        return {"workspace": self.slot.id} if self.slot else {"cwd": "/"}

    def let_another_in(self) -> None:
        """It takes the slot, and is nothing that is looked at."""
        self.other = self.amux.create(["sleep", "infinity"], **self._place)
        self.known.add(self.other.id)

    def send_the_other_away(self) -> None:
        if self.other is not None:
            if self.other.id in self.amux.sessions():
                self.other.remove(force=True)
            self.known.discard(self.other.id)
            self.other = None

    def wait_until_begun(self, times: int) -> None:
        until(lambda: self.begun == times, timeout=10)

    def end(self, code: int) -> None:
        """The command ends with this code, whoever watches."""
        with self.orders.open("w") as orders:
            orders.write(f"{code}\n")
        until(lambda: not self._processes(), timeout=10)

    @property
    def begun(self) -> int:
        return self.marks.read_text().count("begun") if self.marks.exists() else 0

    def find(self) -> Session | None:
        """The session that amuxd knows of, at rest."""
        found = [name for name in self.amux.sessions(archived=("b", True)) if name not in self.known]
        assert len(found) <= 1
        assert found == [path.name for path in self._sessions() if path.name not in self.known]
        if not found:
            return None
        self.session = self.amux.session(found[0])
        self.session.wait_state("running", *DEAD, timeout=20)
        return self.session

    def find_on_disk(self) -> None:
        [directory] = [path for path in self._sessions() if path.name not in self.known]
        self.session = Session(self.amux, f"{SESSIONS_PATH}/{directory.name}")

    @property
    def is_at_rest(self) -> bool:
        """By what is on disk, so that looking makes no points."""
        state = json.loads((self.directory / "state.json").read_text())
        if state["state"] in ("starting", "stopping"):
            return False
        return state["state"] in ("running", "created") or self.has_certificate

    @property
    def has_certificate(self) -> bool:
        """All of it, with the last lines."""
        with contextlib.suppress(FileNotFoundError):
            return bool(json.loads((self.directory / "runs/1/exit.json").read_text())["complete"])
        return False

    @property
    def directory(self) -> Path:
        return self.amux.state / "sessions" / self.session.id

    def check(self, allowed: set[str]) -> None:
        """That the session is in one of these states, and that it is true in every respect."""
        session = self.find()
        if session is None:
            assert "none" in allowed
            assert not self._processes()
            assert not self.amux.units()
            if self.slot:
                self.slot.check([])
            return
        # An end may be told a moment after amuxd is there.
        state = session.wait_state(*allowed)
        self._check_history(session)
        parked = session.get("Parked")
        if self.slot:
            self.slot.check([session.id] if state == "running" else [])
        if state == "running" and not parked:
            until(lambda: len(self._processes()) == 1, timeout=10)
            until(lambda: session.get("Pid") != 0, timeout=10)
            assert self.amux.units() == {session.get("Unit")}
            assert self.amux.machine.outside_pid(session.get("Pid")) in self._processes()
        else:
            # An ended session keeps its terminal for as long as somebody looks at it.
            self.hang_up()
            until(lambda: not self.amux.units(), timeout=10)
            until(lambda: not self._litter(session.id), timeout=10)
            assert not self._processes()
            until(lambda: session.get("Pid") == 0, timeout=10)
        if state == "failed":
            certificate = session.certificate()
            assert (certificate["exit_code"], certificate["last_lines"][-1]) == (3, "bye 3")
        stored = json.loads((self.directory / "state.json").read_text())
        assert (stored["state"], stored["run"]) == (state, session.get("Run"))
        alive = {"running": "none" if parked else "alive", "created": "none"}.get(state, "dead")
        assert session.get("SessionAlive") == alive

    def _check_history(self, session: Session) -> None:
        last, last_run, begun = None, 1, 0
        for at, run, source, target, reason, _ in session.call("History"):
            assert at
            assert reason
            assert (source or None) == last
            assert run - last_run == (1 if last and target == "created" else 0)
            if last is not None and target == "created":
                assert State(source) in RERUNNABLE
            elif last is not None and target != "archived":
                assert State(target) in WITHIN_A_RUN[State(source)]
            last, last_run = target, run
            begun += (source, target) == ("starting", "running")
        assert (last, last_run) == (session.state, session.get("Run"))
        # Each run's command has begun, and once; that of an agent once more where it was brought back.
        until(lambda: begun <= self.begun <= begun + self.agent, timeout=10)

    def _litter(self, session_id: str) -> list[str]:
        """What is left of it in the runtime directory."""
        runtime = self.amux.machine.outside(self.amux.runtime)
        return [str(path) for path in runtime.glob(f"*/{session_id}*")]

    def _processes(self) -> list[int]:
        needle = str(self.orders)
        return [process.pid for process in self.amux.machine.processes() if needle in _command_line(process)]

    def _sessions(self) -> list[Path]:
        directory = self.amux.state / "sessions"
        return [path for path in directory.glob("[a-z]*") if path.is_dir()] if directory.exists() else []

    def hang_up(self) -> None:
        if self.terminal is not None:
            self.terminal.close()
            self.terminal = None

    def remove(self) -> None:
        self.hang_up()
        session = self.find()
        if session is not None:
            session.remove(force=True)
        self.check({"none"})
        if self.slot:
            self.slot.call("Remove", "a{sv}", {})


def _command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


# What happens to the subject.


def nothing(_: Subject) -> None:
    pass


def create(subject: Subject) -> None:
    subject.create(start=False)


def create_and_start(subject: Subject) -> None:
    subject.create()
    subject.wait_until_begun(1)


def start(subject: Subject) -> None:
    subject.session.call("Start")


def stop(subject: Subject) -> None:
    subject.session.stop(5)


def end(subject: Subject) -> None:
    subject.end(3)
    until(lambda: subject.has_certificate or subject.amux.has_ended, timeout=20)


def restart(subject: Subject) -> None:
    subject.session.call("Restart")


def archive(subject: Subject) -> None:
    subject.session.call("Archive")


def remove(subject: Subject) -> None:
    subject.session.remove()


def remove_while_it_runs(subject: Subject) -> None:
    subject.session.remove(force=True)


def go(subject: Subject) -> None:
    subject.amux.end(signal.SIGTERM)


def begin(subject: Subject) -> None:
    subject.amux.begin()
    subject.amux.comes_up()


def come_back(subject: Subject) -> None:
    subject.amux.begin()
    if subject.amux.comes_up():
        until(lambda: subject.is_at_rest or subject.amux.has_ended, timeout=20)


def run_and_end(subject: Subject) -> None:
    create_and_start(subject)
    end(subject)


def run_and_end_attached(subject: Subject) -> None:
    """The terminal stays, because somebody looks at it."""
    create_and_start(subject)
    subject.terminal = subject.amux.terminal("attach", subject.session.id)
    until(lambda: subject.session.get("Attached") == 1)
    end(subject)


def run_and_go(subject: Subject) -> None:
    create_and_start(subject)
    go(subject)


def end_unwatched(subject: Subject) -> None:
    create_and_start(subject)
    subject.amux.end(signal.SIGKILL)
    subject.end(3)


def die(subject: Subject, act: Act, point: str) -> None:
    subject.amux.arm(point)
    with contextlib.suppress(CallFailed):
        act(subject)
    subject.amux.wait_until_gone()
    subject.amux.disarm()


def die_while_it_starts(subject: Subject) -> None:
    die(subject, create_and_start, "answer to StartTransientUnit")
    subject.find_on_disk()


def die_while_it_stops(subject: Subject) -> None:
    create_and_start(subject)
    die(subject, stop, "a signal")


def die_while_it_settles(subject: Subject) -> None:
    create_and_start(subject)
    die(subject, end, "answer to StopUnit")


def resume(subject: Subject) -> None:
    subject.session.call("Resume")


def park(subject: Subject) -> None:
    subject.session.call("Park")


def run_and_park(subject: Subject) -> None:
    create_and_start(subject)
    park(subject)


def park_and_go(subject: Subject) -> None:
    run_and_park(subject)
    go(subject)


def run_and_stop(subject: Subject) -> None:
    create_and_start(subject)
    stop(subject)


def wait_for_another(subject: Subject) -> None:
    subject.let_another_in()
    subject.create(queue=True)


def run_end_and_let_another_in(subject: Subject) -> None:
    subject.create(queue=True)
    end(subject)
    subject.let_another_in()


def come_next(subject: Subject) -> None:
    subject.send_the_other_away()
    until(lambda: subject.begun or subject.amux.has_ended)


def lose_the_directory(subject: Subject) -> None:
    assert subject.slot is not None
    shutil.rmtree(subject.slot.directory)
    until(lambda: subject.amux.has_ended or subject.has_certificate, timeout=20)


def lose_the_directory_unwatched(subject: Subject) -> None:
    assert subject.slot is not None
    run_and_go(subject)
    shutil.rmtree(subject.slot.directory)


SCENARIOS: dict[str, Scenario] = {
    "begin": Scenario(go, begin, {"none"}),
    "create": Scenario(nothing, create, {"none", "created"}),
    "create and start": Scenario(nothing, create_and_start, {"none", "created", "running"}),
    "start": Scenario(create, start, {"created", "running"}),
    "stop": Scenario(create_and_start, stop, {"running", "stopped"}),
    "end": Scenario(create_and_start, end, {"failed"}),
    "restart": Scenario(run_and_end, restart, {"failed", "running"}),
    "restart in the same terminal": Scenario(run_and_end_attached, restart, {"failed", "running"}),
    "archive": Scenario(run_and_end, archive, {"failed", "archived"}),
    "remove": Scenario(run_and_end, remove, {"failed", "none"}),
    "remove while it runs": Scenario(create_and_start, remove_while_it_runs, {"running", "stopped", "none"}),
    "suspend": Scenario(create_and_start, go, {"running"}),
    "adopt": Scenario(run_and_go, come_back, {"running"}),
    "end unwatched": Scenario(end_unwatched, come_back, {"failed"}),
    "start again": Scenario(die_while_it_starts, come_back, {"running"}),
    "stop again": Scenario(die_while_it_stops, come_back, {"stopped"}),
    "settle again": Scenario(die_while_it_settles, come_back, {"failed"}),
    "resume": Scenario(run_and_stop, resume, {"stopped", "running"}, agent=True),
    "park": Scenario(create_and_start, park, {"running"}, agent=True),
    "bring back": Scenario(run_and_park, resume, {"running"}, agent=True),
    "stop a parked one": Scenario(run_and_park, stop, {"running", "stopped"}, agent=True),
    "adopt a parked one": Scenario(park_and_go, come_back, {"running"}, agent=True),
    "come next": Scenario(wait_for_another, come_next, {"running"}, in_slot=True),
    "restart and wait": Scenario(run_end_and_let_another_in, restart, {"failed", "running"}, in_slot=True),
    "be orphaned": Scenario(create_and_start, lose_the_directory, {"orphaned"}, in_slot=True),
    "be orphaned unwatched": Scenario(lose_the_directory_unwatched, come_back, {"orphaned"}, in_slot=True),
}
SCENARIOS |= {
    f"{name}, in a slot": replace(SCENARIOS[name], in_slot=True)
    for name in (
        *("create and start", "start", "stop", "end", "restart", "remove", "remove while it runs"),
        *("suspend", "adopt", "end unwatched", "start again", "stop again", "settle again"),
        *("park", "bring back", "adopt a parked one"),
    )
}


def walk(amux: Killable, scenario: Scenario, directory: Path, point: int) -> list[str]:
    """Kills amuxd at this point, if it comes to it, and returns all that it came to."""
    subject = Subject(amux, directory, scenario)
    scenario.before(subject)
    amux.arm(point)
    # A caller learns from the bus that amuxd is gone.
    with contextlib.suppress(CallFailed, TimeoutError):
        scenario.act(subject)
    reached = amux.disarm()
    died = 0 < point <= len(reached)
    if died:
        amux.wait_until_gone()
    if amux.has_ended:
        amux.start()
    try:
        subject.send_the_other_away()
        subject.check(scenario.allowed)
        subject.remove()
    except BaseException as error:
        error.add_note(f"killed at {reached[point - 1]}" if died else "not killed")
        # The next scenario is another one's.
        for name in amux.sessions(archived=("b", True)):
            amux.session(name).remove(force=True)
        raise
    return reached


class Firsts:
    """Which points of a scenario are in none before it, by what amuxd comes to when it is left alone."""

    def __init__(self, amux: Killable, directory: Path) -> None:
        self._amux = amux
        self._directory = directory
        self._met: set[tuple[str, str, str]] = set()
        self._start: list[str] = []
        self._points: dict[str, list[int]] = {}
        self._looks = 0

    def of(self, name: str) -> list[int]:
        for earlier in SCENARIOS:
            if name not in self._points and earlier not in self._points:
                self._points[earlier] = self._look(earlier)
        return self._points[name]

    def _look(self, name: str) -> list[int]:
        scenario = SCENARIOS[name]
        self._looks += 1
        reached = walk(self._amux, scenario, self._directory / str(self._looks), 0)
        points = []
        for point, kind in enumerate(self._kinds(scenario, [_alike(line) for line in reached]), 1):
            if kind not in self._met:
                self._met.add(kind)
                points.append(point)
        return points

    def _kinds(self, scenario: Scenario, reached: list[str]) -> Iterator[tuple[str, str, str]]:
        """A point is what is about to be done, what was done before it, and the state that it is done for."""
        self._start = self._start or reached
        situation = ""
        for number, (before, what) in enumerate(itertools.pairwise(["", *reached])):
            if not situation and reached[: number + 1] != self._start[: number + 1]:
                situation = scenario.before.__name__
            if written := re.fullmatch(r" half of state\.json\S* (\w+)", what):
                situation = written[1]
            yield situation, before, what


def _alike(line: str) -> str:
    """Without ids, and the numbers of processes and descriptors."""
    return re.sub(r"\d+", "", re.sub(r"(?<=[/ -])[a-z][a-z0-9]{5}(?=[./'])", "ID", line))
