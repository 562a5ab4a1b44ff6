"""One session of an amuxd that is killed, of which all can be seen without amuxd."""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import psutil

from amuxd.paths import SESSIONS_PATH
from amuxd.states import RERUNNABLE, WITHIN_A_RUN, State
from harness.bus import Proxy
from harness.client import BUS_NAME, Session
from harness.killable import COMMAND, Killable
from harness.terminal import Terminal
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"
DEAD = {"created", "suspended", "stopped", "completed", "failed", "orphaned", "archived"}


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
        until(lambda: self.get("Holders") == holders)
        assert self.get("Queue") == []
        stored = json.loads(self._file.read_text())
        assert [place["session_id"] for place in stored["holders"]] == holders
        assert stored["queue"] == []


class Subject:
    """One session, and all that can be seen of it without asking amuxd."""

    def __init__(self, amux: Killable, directory: Path, agent: str, in_slot: bool) -> None:
        directory.mkdir()
        self.amux = amux
        self.agent = agent
        self.slot = Slot(amux, directory / "place") if in_slot else None
        self.marks = directory / "marks"
        self.orders = directory / "orders"
        subprocess.run(["mkfifo", self.orders], check=True)
        self.known = {path.name for path in self._sessions()}
        self.session: Session
        self.other: Session | None = None
        self.terminal: Terminal | None = None
        self.has_place = True

    def create(self, **options: object) -> None:
        options = {**self._place, **options}
        own = [str(self.marks), str(self.orders)]
        if self.agent:
            self.session = self.amux.create(own, agent=self.agent, **options)
        else:
            self.session = self.amux.create(["sh", "-c", COMMAND, *own], **options)

    @property
    def _place(self) -> dict[str, str]:
        return {"workspace": self.slot.id} if self.slot else {"cwd": "/"}

    def reboot(self) -> None:
        """amuxd is gone already; now all else goes, and what is on disk names another boot."""
        for unit in self.amux.units():
            self.amux.machine.systemctl("stop", unit)
        until(lambda: not self._processes())
        for left in map(Path, self._litter(self.session.id)):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()
        self.rewrite(boot_id="an earlier boot")

    def rewrite(self, **changes: object) -> None:
        path = self.directory / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

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
        until(lambda: self.begun == times)

    def end(self, code: int) -> None:
        """The command ends with this code, whoever watches."""
        with self.orders.open("w") as orders:
            orders.write(f"{code}\n")
        until(lambda: not self._processes())

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
        self.session.wait_state("running", *DEAD, timeout=60)
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
    def is_parked(self) -> bool:
        return bool(json.loads((self.directory / "state.json").read_text())["parked"])

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
            until(lambda: len(self._processes()) == 1)
            until(lambda: session.get("Pid") != 0)
            assert self.amux.units() == {session.get("Unit")}
            assert self.amux.machine.outside_pid(session.get("Pid")) in self._processes()
        else:
            # An ended session keeps its terminal for as long as somebody looks at it.
            self.hang_up()
            until(lambda: not self.amux.units())
            until(lambda: not self._litter(session.id))
            assert not self._processes()
            until(lambda: session.get("Pid") == 0)
        if state == "failed" and not self.has_place:
            assert session.get("Reason").startswith("could not start: ")
            assert session.certificate()["exit_code"] == -1
        elif state == "failed":
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
        until(lambda: begun <= self.begun <= begun + bool(self.agent))

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
