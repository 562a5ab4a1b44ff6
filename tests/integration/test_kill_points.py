"""amuxd is killed at each point of each transition, and tells the truth when it is back."""

import contextlib
import itertools
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from harness.bus import CallFailed
from harness.client import BUS_NAME, Client, Session
from harness.machine import REPOSITORY, Machine
from harness.terminal import Terminal
from harness.waiting import until

from amuxd.paths import SESSIONS_PATH
from amuxd.states import RERUNNABLE, WITHIN_A_RUN, State

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).with_name("amuxd_that_dies.py")
DBUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
SYSTEMD = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
DEAD = {"created", "suspended", "stopped", "completed", "failed", "orphaned", "archived"}

# Says which run it is each time that it begins, and ends with the code that it is told.
COMMAND = 'echo begun >>"$0"; exec 3<"$1"; echo ready; read -r code <&3; echo "bye $code"; exit "$code"'


class Killable(Client):
    """amuxd without systemd's care: it starts when the test says so, and stays dead when it dies."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.config.parent.mkdir(parents=True, exist_ok=True)
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
        until(lambda: self.has_ended and not self.serves, timeout=30)

    def arm(self, point: int | str) -> None:
        self.reached.write_text("")
        scratch = self.armed.with_suffix(".new")
        scratch.write_text(str(point))
        scratch.rename(self.armed)

    def disarm(self) -> list[str]:
        self.armed.unlink()
        return self.reached.read_text().splitlines()

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


class Subject:
    """One session, and all that can be seen of it without asking amuxd."""

    def __init__(self, amux: Killable, directory: Path) -> None:
        directory.mkdir()
        self.amux = amux
        self.marks = directory / "marks"
        self.orders = directory / "orders"
        subprocess.run(["mkfifo", self.orders], check=True)
        self.known = {path.name for path in self._sessions()}
        self.session: Session
        self.terminal: Terminal | None = None

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", COMMAND, str(self.marks), str(self.orders)]

    def create(self, **options: object) -> None:
        self.session = self.amux.create(self.command, cwd="/", **options)

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
            return
        # An end may be told a moment after amuxd is there.
        state = session.wait_state(*allowed)
        self._check_history(session)
        if state == "running":
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
        assert session.get("SessionAlive") == {"running": "alive", "created": "none"}.get(state, "dead")

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
        # Each run's command has begun, and once.
        self.wait_until_begun(begun)

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


def _command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


Act = Callable[[Subject], None]

# What happens to the subject, before amuxd is armed and while it is.


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
    until(lambda: subject.amux.has_ended)
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


SCENARIOS: dict[str, tuple[Act, Act, set[str]]] = {
    "create": (nothing, create, {"none", "created"}),
    "create and start": (nothing, create_and_start, {"none", "created", "running"}),
    "start": (create, start, {"created", "running"}),
    "stop": (create_and_start, stop, {"running", "stopped"}),
    "end": (create_and_start, end, {"failed"}),
    "restart": (run_and_end, restart, {"failed", "created", "running"}),
    "restart in the same terminal": (run_and_end_attached, restart, {"failed", "created", "running"}),
    "archive": (run_and_end, archive, {"failed", "archived"}),
    "remove": (run_and_end, remove, {"failed", "none"}),
    "remove while it runs": (create_and_start, remove_while_it_runs, {"running", "stopped", "none"}),
    "suspend": (create_and_start, go, {"running"}),
    "adopt": (run_and_go, come_back, {"running"}),
    "end unwatched": (end_unwatched, come_back, {"failed"}),
    "start again": (die_while_it_starts, come_back, {"running"}),
    "stop again": (die_while_it_stops, come_back, {"stopped"}),
    "settle again": (die_while_it_settles, come_back, {"failed"}),
}


@pytest.fixture(scope="module")
def killable(shared_machine: Machine) -> Iterator[Killable]:
    amux = Killable(shared_machine)
    amux.config.write_text('[sessions]\nstop_grace = "5s"\n')
    try:
        amux.start()
        yield amux
    finally:
        amux.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_each_point_amuxd_comes_back_to_the_truth(
    killable: Killable, name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    before, act, allowed = SCENARIOS[name]
    for point in itertools.count(1):
        subject = Subject(killable, tmp_path / str(point))
        before(subject)
        killable.arm(point)
        # A caller learns from the bus that amuxd is gone.
        with contextlib.suppress(CallFailed, TimeoutError):
            act(subject)
        reached = killable.disarm()
        died = len(reached) >= point
        if died:
            until(lambda: killable.has_ended, timeout=10)
        where = f"killed at {reached[point - 1]}" if died else "not killed"
        if killable.has_ended:
            killable.start()
        try:
            subject.check(allowed)
        except BaseException as error:
            error.add_note(where)
            raise
        subject.remove()
        if not died:
            break
    record_property("points", point - 1)
    assert point > 1
