"""What happens to one session does not happen to the others."""

import os
import re
import shlex
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from ends_fixtures import certified, ended, on_disk, server_of
from harness.bus import Bus
from harness.client import BUS_NAME, SESSION, Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until

from amuxd.states import End

NAMES = ("first", "second", "third", "fourth")
ANSWER_WITHIN = 0.1
# So many do, on a machine on which a bare tmux is as quick as this.
MOST, QUICK = 0.75, 0.025
# Beside other jobs of a CI a bare tmux alone may take longer than that, which no amuxd can make up for, so
# that there it is so many times what the bare one takes meanwhile. The way through amuxd is two of tmux's
# clients, one for the text and one for Enter, the bus and amuxd itself.
TIMES_A_BARE_TMUX = 4
ROUNDS = 5

# Far from full, so that each log begins with the first line.
LOG_CAP = "512M"

# Prints without pause, answers what is typed, and dies when told so.
PRINTER = """
import os, signal, sys, threading
name = sys.argv[1].encode()
def answer():
    for line in sys.stdin:
        if line == "die\\n":
            os.kill(os.getpid(), signal.SIGSEGV)
        os.write(1, b"%s heard %s" % (name, line.encode()))
threading.Thread(target=answer, daemon=True).start()
number = 0
while True:
    number += 1
    os.write(1, b"%s %d\\n" % (name, number))
"""


def printing(amux: Client, name: str) -> list[str]:
    script = 'ulimit -c 0; stty -echo -onlcr; exec "$0" -c "$1" "$2"'
    return ["sh", "-c", script, str(amux.machine.bindir / "python3"), PRINTER, name]


def printer(amux: Client, name: str) -> Session:
    return amux.create(printing(amux, name), name=name)


class BareTmux:
    """A fourth that prints, in a tmux that amux knows nothing of."""

    def __init__(self, amux: Client) -> None:
        self._amux = amux
        self._tmux = ["tmux", "-S", str(amux.machine.temporary / "bare.sock"), "-f", "/dev/null"]
        self.log = amux.machine.temporary / "bare.log"

    def __enter__(self) -> Self:
        command = shlex.join(printing(self._amux, "bare"))
        pipe = f"exec cat >>{self.log}"
        self._run("new-session", "-d", "-s", "main", command, ";", "pipe-pane", "-t", "main", pipe)
        until(lambda: self.log.exists() and self.log.stat().st_size > 100_000)
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")
        self.log.unlink()

    def send(self, word: str) -> None:
        self._run("send-keys", "-t", "main", word, "Enter")

    def _run(self, *arguments: str) -> None:
        self._amux.machine.run([*self._tmux, *arguments])


class Typist:
    """Types all the while into each session and into a bare tmux, on a connection of its own."""

    def __init__(self, amux: Client, sessions: dict[str, Session], tmux: BareTmux) -> None:
        self._sessions = sessions
        self._logs = {name: Path(session.get("LogPath")) for name, session in sessions.items()}
        self._bus = Bus(amux.bus_address)
        self._tmux = tmux
        self._is_over = threading.Event()
        self._worker = ThreadPoolExecutor(1)
        self.times: dict[str, list[float]] = {name: [] for name in sessions}
        self.bare: list[float] = []

    def __enter__(self) -> Self:
        self._typing = self._worker.submit(self._type)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._worker.shutdown()
        self._bus.close()
        self._typing.result()

    def wait_for(self, rounds: int) -> None:
        until(lambda: len(self.bare) >= rounds or self._typing.done(), timeout=300)
        assert not self._typing.done(), self._typing.exception()

    def judge(self) -> None:
        limit = max(ANSWER_WITHIN, TIMES_A_BARE_TMUX * statistics.median(self.bare))
        slow = {name: taken for name, taken in self.times.items() if statistics.median(taken) > limit}
        assert not slow, self.bare
        if statistics.median(self.bare) <= QUICK:
            answers = sorted(taken for session in self.times.values() for taken in session)
            assert answers[int(MOST * len(answers))] <= ANSWER_WITHIN, answers

    def _type(self) -> None:
        while not self._is_over.is_set():
            word = f"word-{len(self.bare)}"
            for name, session in self._sessions.items():
                send = partial(self._send, session)
                self.times[name].append(answer_time(send, self._logs[name], name, word))
            self.bare.append(answer_time(self._tmux.send, self._tmux.log, "bare", word))

    def _send(self, session: Session, word: str) -> None:
        self._bus.call(BUS_NAME, session.path, SESSION, "Send", "sb", word, True)


def log_files(session: Session) -> list[Path]:
    log = Path(session.get("LogPath"))
    return [path for path in (log.with_name("output.log.1"), log) if path.exists()]


def printed(session: Session) -> Iterator[bytes]:
    """Whole lines; while it still prints, the last one may be half there."""
    for path in log_files(session):
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]


def size(session: Session) -> int:
    return sum(path.stat().st_size for path in log_files(session))


def assert_every_line_in_order(session: Session, name: str) -> int:
    """Nothing is missing, nothing is twice, nothing is another's; gives how many there were."""
    number = 0
    for line in printed(session):
        if line.startswith(f"{name} heard ".encode()):
            continue
        number += 1
        assert line == f"{name} {number}".encode(), f"after line {number - 1} of {name}"
    return number


def answer_time(send: Callable[[str], None], log: Path, name: str, word: str) -> float:
    answer = f"{name} heard {word}\n".encode()
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        seen = b""

        def answered() -> bool:
            nonlocal seen
            seen = seen[-len(answer) :] + file.read()
            return answer in seen

        begin = time.monotonic()
        send(word)
        until(answered, interval=0.001)
        return time.monotonic() - begin


def segfault(amux: Client, session: Session) -> None:
    session.send("die")


def kill_terminal_server(amux: Client, session: Session) -> None:
    amux.machine.kill(server_of(amux, session))


def kill_unit(amux: Client, session: Session) -> None:
    amux.machine.systemctl("kill", "--signal=KILL", session.get("Unit"))


Accident = Callable[[Client, Session], None]

# A command whose terminal goes away is hung up, cannot write any more, or is killed with the rest of its
# unit; and older kernels forget how it ended, for then it is nobody's child.
WITHOUT_TERMINAL = {
    "killed by SIGHUP",
    "killed by SIGKILL",
    "killed by SIGTERM",
    "exited with code 1",
    "ended, and how is not known",
}
ACCIDENTS = [
    pytest.param(segfault, "killed by SIGSEGV", {"killed by SIGSEGV"}, id="segfault"),
    pytest.param(
        kill_terminal_server, r"terminal server died \(SIGKILL\)", WITHOUT_TERMINAL, id="terminal-server"
    ),
    pytest.param(kill_unit, r"terminal server died \(SIGKILL\)", WITHOUT_TERMINAL, id="unit"),
]


@pytest.mark.parametrize(("accident", "reason", "ends"), ACCIDENTS)
def test_one_of_four_that_print_dies(
    amux_everywhere: Amux, accident: Accident, reason: str, ends: set[str]
) -> None:
    isolation(amux_everywhere, accident, reason, ends)


@pytest.mark.parametrize(
    ("accident", "reason", "ends"),
    [
        ACCIDENTS[0],
        pytest.param(
            kill_terminal_server, r"terminal server died \(.*\)", WITHOUT_TERMINAL, id="terminal-server"
        ),
    ],
)
def test_one_of_four_that_print_dies_without_systemd(
    embedded: Embedded, accident: Accident, reason: str, ends: set[str]
) -> None:
    embedded.cli("ls")
    isolation(embedded, accident, reason, ends)


def isolation(amux: Client, accident: Accident, reason: str, ends: set[str]) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[sessions]\nlog_cap = "{LOG_CAP}"\n')
    amux.manager.call("Reload")
    with amux.events() as events:
        sessions = {name: printer(amux, name) for name in NAMES}
        ids = [session.id for session in sessions.values()]
        second = sessions.pop("second")
        until(lambda: all(size(session) > 100_000 for session in [second, *sessions.values()]), timeout=60)
        with BareTmux(amux) as tmux, Typist(amux, sessions, tmux) as typist:
            typist.wait_for(ROUNDS)
            accident(amux, second)
            facts = ended(second)
            # The round that was going on, and as many after it.
            typist.wait_for(len(typist.bare) + 1 + ROUNDS)
        sizes = {name: size(session) for name, session in sessions.items()}
        assert re.fullmatch(reason, facts["Reason"])
        last_lines = certified(amux, events, second, facts)
        how = on_disk(amux, second, "runs/1/exit.json")["end"]
        assert End(code=how["code"], signal=how["signal"]).describe() in ends
        assert (how["terminal_died"] or "") in facts["Reason"]
        assert assert_every_line_in_order(second, "second") > 1000
        # tmux drops up to three buffers of what a process printed that died in full flight.
        end_of_log = b"".join(path.read_bytes() for path in log_files(second))[-4096:].decode()
        # The last one may be cut anywhere, and spaces at its end are none that a person sees.
        assert last_lines == [line.rstrip() for line in end_of_log.splitlines()[-20:]]
        until(lambda: all(size(one) > sizes[name] for name, one in sessions.items()))
        for name, session in sessions.items():
            assert (session.state, session.get("Run")) == ("running", 1)
            session.stop(grace=2)
            assert assert_every_line_in_order(session, name) > 1000
        typist.judge()
        told = [event.body[1] for event in events.named("SessionExited")]
        assert [one for one in told if one in ids] == [second.id, *(one.id for one in sessions.values())]
