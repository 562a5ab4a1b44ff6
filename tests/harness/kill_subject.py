"""One session of an amuxd that is killed, of which all can be seen without amuxd."""

import contextlib
import json
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amuxd.addresses import SESSIONS_PATH
from amuxd.states import ARCHIVABLE, RERUNNABLE, WITHIN_A_RUN, State
from harness.bus import Proxy
from harness.client import BUS_NAME, Session
from harness.killable import COMMAND, Killable
from harness.logind import Logind
from harness.terminal import Terminal
from harness.waiting import until

WORKSPACE = "org.amux.Amux1.Workspace"
DEAD = {"created", "suspended", "stopped", "completed", "failed", "orphaned", "archived"}

EXITED = "exited with code 3"
# After a state: its command has ended, and the shell that it ran in is there.
SHELL_OPEN = " (shell open)"

Step = tuple[State, State]
LEGAL: set[Step] = {
    *((source, target) for source, targets in WITHIN_A_RUN.items() for target in targets),
    *((source, State.CREATED) for source in RERUNNABLE),
    *((source, State.ARCHIVED) for source in ARCHIVABLE),
}


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

    def __init__(
        self, amux: Killable, directory: Path, agent: str = "", in_slot: bool = False, in_shell: bool = False
    ) -> None:
        directory.mkdir()
        self.amux = amux
        self.agent = agent
        self.in_shell = in_shell
        self.slot = Slot(amux, directory / "place") if in_slot else None
        self.marks = directory / "marks"
        self.orders = directory / "orders"
        subprocess.run(["mkfifo", self.orders], check=True)
        self.known = {path.name for path in self._sessions()}
        self.session: Session
        self.other: Session | None = None
        self.terminal: Terminal | None = None
        self.logind: Logind | None = None
        self.obstacle: Path | None = None
        # How its reason begins where it has failed.
        self.why_failed = EXITED
        # What its history says that it has passed, when it was checked last.
        self.passed: set[Step] = set()

    def create(self, **options: Any) -> None:
        options = {**self._place, **options}
        own = [str(self.marks), str(self.orders)]
        if self.agent:
            self.session = self.amux.create(own, agent=self.agent, **options)
        elif self.in_shell:
            line = shlex.join(["sh", "-c", COMMAND, *own])
            self.session = self.amux.create([line], shell=True, env={"SHELL": "/bin/bash"}, **options)
        else:
            self.session = self.amux.create(["sh", "-c", COMMAND, *own], **options)

    @property
    def _place(self) -> dict[str, Any]:
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
        (self.directory / "state.json").write_text(json.dumps(self.stored | changes))

    def hear_of_shutdowns(self) -> None:
        """Whichever amuxd begins from now on."""
        self.logind = Logind(self.amux.machine)

    def obstruct(self) -> None:
        """What is left of it cannot be taken away."""
        self.obstacle = self._runtime / "attached" / self.session.id
        self.obstacle.mkdir()

    def clear_the_way(self) -> None:
        if self.obstacle is not None and self.obstacle.exists():
            self.obstacle.rmdir()

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
        if self.in_shell:
            until((self._run_directory / "exit_status").exists)

    def leave_shell(self) -> None:
        self.amux.machine.kill(self.stored["command"]["pid"], signal.SIGHUP)

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
    def stored(self) -> dict[str, Any]:
        """What is on disk, so that looking makes no points."""
        stored: dict[str, Any] = json.loads((self.directory / "state.json").read_text())
        return stored

    @property
    def is_at_rest(self) -> bool:
        state = self.stored["state"]
        if state in ("starting", "stopping"):
            return False
        if state == "created" and self.slot is not None:
            return self.slot.directory.exists()
        return state in ("running", "created") or self.has_certificate

    @property
    def is_parked(self) -> bool:
        return bool(self.stored["parked"])

    @property
    def has_certificate(self) -> bool:
        """All of it, with the last lines."""
        with contextlib.suppress(FileNotFoundError):
            return bool(json.loads((self._run_directory / "exit.json").read_text())["complete"])
        return False

    @property
    def directory(self) -> Path:
        return self.amux.state / "sessions" / self.session.id

    @property
    def _run_directory(self) -> Path:
        return self.directory / "runs" / str(self.stored["run"])

    @property
    def _runtime(self) -> Path:
        return self.amux.machine.outside(self.amux.runtime)

    def check(self, allowed: set[str]) -> None:
        """That the session is in one of these states, and that it is true in every respect."""
        session = self.find()
        if session is None:
            assert "none" in allowed
            assert not self._processes()
            assert not self.amux.units()
            until(lambda: not self._litter())
            if self.slot:
                self.slot.check([])
            return
        # An end may be told a moment after amuxd is there.
        state = session.wait_state(*(told.removesuffix(SHELL_OPEN) for told in allowed))
        self._check_history(session)
        if self.slot:
            self.slot.check([session.id] if state == "running" else [])
        if state == "running" and not session.get("Parked"):
            self._check_alive(session)
        elif state + SHELL_OPEN in allowed and (state not in allowed or self._shell_is_open(session)):
            self._check_open_shell(session)
        else:
            self._check_gone(session)
        self._check_end(session, state)
        assert (self.stored["state"], self.stored["run"]) == (state, session.get("Run"))

    def _check_alive(self, session: Session) -> None:
        until(lambda: len(self._processes()) == 1)
        until(lambda: session.get("Pid") != 0)
        assert self.amux.units() == {session.get("Unit")}
        # In a shell the command is what the shell runs.
        found = list(self._ancestry(self._processes()[0]))
        assert session.get("Pid") in (found if self.in_shell else found[:1])
        assert session.get("SessionAlive") == "alive"

    def _shell_is_open(self, session: Session) -> bool:
        """Once what there is to be done about it is done."""
        until(lambda: session.get("ShellOpen") == bool(self.amux.units()))
        return bool(session.get("ShellOpen"))

    def _check_open_shell(self, session: Session) -> None:
        until(lambda: session.get("ShellOpen"))
        assert self.amux.units() == {session.get("Unit")}
        assert (session.get("SessionAlive"), session.get("HostAlive")) == ("dead", "alive")
        assert not self._processes()

    def _check_gone(self, session: Session) -> None:
        # An ended session keeps its terminal for as long as somebody looks at it.
        self.hang_up()
        until(lambda: not self.amux.units())
        if self.obstacle is None:
            until(lambda: not self._litter(session.id))
        assert not self._processes()
        until(lambda: session.get("Pid") == 0)
        alive = "none" if session.state in ("created", "running") else "dead"
        # What could not be looked at is looked at again.
        until(lambda: session.get("SessionAlive") == alive)
        assert not session.get("ShellOpen")

    def _check_end(self, session: Session, state: str) -> None:
        if state == "failed":
            assert session.get("Reason").startswith(self.why_failed)
        if state == "completed" or (state == "failed" and self.why_failed == EXITED):
            code = 3 if state == "failed" else 0
            certificate = session.certificate()
            assert certificate["exit_code"] == code
            assert certificate["last_lines"][-1] == f"bye {code}"
        elif state == "failed":
            assert session.certificate()["exit_code"] == -1

    def _check_history(self, session: Session) -> None:
        last, last_run, begun = None, 1, 0
        self.passed = set()
        for at, run, source, target, reason, _ in session.call("History"):
            assert at
            assert reason
            assert (source or None) == last
            assert run - last_run == (1 if last and target == "created" else 0)
            if last is not None:
                self.passed.add((State(source), State(target)))
            last, last_run = target, run
            begun += (source, target) == ("starting", "running")
        assert self.passed <= LEGAL
        assert (last, last_run) == (session.state, session.get("Run"))
        # Each run's command has begun, and once; that of an agent once more where it was brought back.
        until(lambda: begun <= self.begun <= begun + bool(self.agent))

    def _litter(self, session_id: str = "") -> list[str]:
        """What is left in the runtime directory, of one or of all."""
        return [str(path) for path in self._runtime.glob(f"*/{session_id}*")]

    def _processes(self) -> list[int]:
        """By their numbers in the machine."""
        needle = str(self.orders)
        found = self.amux.machine.outside("/proc").glob("[1-9]*")
        return [int(process.name) for process in found if needle in _command_line(process)]

    def _ancestry(self, pid: int) -> Iterator[int]:
        while pid > 1:
            yield pid
            status = self.amux.machine.outside(f"/proc/{pid}/stat").read_text()
            pid = int(status.rpartition(")")[2].split()[1])

    def _sessions(self) -> list[Path]:
        directory = self.amux.state / "sessions"
        return [path for path in directory.glob("[a-z]*") if path.is_dir()] if directory.exists() else []

    def hang_up(self) -> None:
        if self.terminal is not None:
            self.terminal.close()
            self.terminal = None

    def close(self) -> None:
        self.hang_up()
        self.clear_the_way()
        if self.logind is not None:
            self.logind.close()
            self.logind = None

    def remove(self) -> None:
        self.hang_up()
        session = self.find()
        if session is not None:
            session.remove(force=True)
        self.check({"none"})
        if self.slot:
            self.slot.call("Remove", "a{sv}", {})


def _command_line(process: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return []
