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
from typing import NamedTuple, Self

import pytest
from ends_fixtures import certified, ended, on_disk, server_of
from harness.bus import Bus
from harness.client import BUS_NAME, SESSION, Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until

from amuxd.states import End

NAMES = ("first", "second", "third", "fourth")
ANSWER_WITHIN = 0.1
# Beside other jobs of a CI a bare tmux alone may take longer than that, which no amuxd can make up for: there
# it is so many times what the bare one takes. The way through amuxd is two of tmux's clients, one for the
# text and one for Enter, the bus and amuxd itself. What all that adds to a bare one in the same moments is
# never more than ANSWER_WITHIN, whatever else the machine does.
TIMES_A_BARE_TMUX = 4
ROUNDS = 5
# By then it is known, also where the other jobs have single answers come late.
ROUNDS_AT_MOST = 50

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


class Answers(NamedTuple):
    """What two took for theirs, one right after the other."""

    of_session: float
    of_bare_tmux: float

    @property
    def added(self) -> float:
        return self.of_session - self.of_bare_tmux


def are_slow(pairs: list[Answers]) -> bool:
    """In the middle, or at the slowest quarter."""
    sessions = statistics.quantiles((pair.of_session for pair in pairs), n=4)
    bare_ones = statistics.quantiles((pair.of_bare_tmux for pair in pairs), n=4)
    return statistics.median(pair.added for pair in pairs) > ANSWER_WITHIN or any(
        taken > max(ANSWER_WITHIN, TIMES_A_BARE_TMUX * by_bare_tmux)
        for taken, by_bare_tmux in list(zip(sessions, bare_ones, strict=True))[1:]
    )


class Typist:
    """Types all the while into each session, and after each into a bare tmux, on a connection of its own."""

    def __init__(self, amux: Client, sessions: dict[str, Session], tmux: BareTmux) -> None:
        self._sessions = sessions
        self._logs = {name: Path(session.get("LogPath")) for name, session in sessions.items()}
        self._bus = Bus(amux.bus_address)
        self._tmux = tmux
        self._is_over = threading.Event()
        self._worker = ThreadPoolExecutor(1)
        self._answers: dict[str, list[Answers]] = {name: [] for name in sessions}
        self.rounds = 0

    def __enter__(self) -> Self:
        self._typing = self._worker.submit(self._type)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._worker.shutdown()
        self._bus.close()
        self._typing.result()

    def wait_for(self, rounds: int) -> None:
        until(lambda: self.rounds >= rounds or self._typing.done(), timeout=300)
        assert not self._typing.done(), self._typing.exception()

    def judge(self) -> None:
        """While it types: where the first answers leave doubt, more of them decide."""
        slow: list[str] = []

        def is_settled() -> bool:
            nonlocal slow
            slow = [name for name, pairs in self._answers.items() if are_slow(pairs)]
            return not slow or self.rounds >= ROUNDS_AT_MOST or self._typing.done()

        until(is_settled, timeout=300)
        assert not slow, self._answers

    def _type(self) -> None:
        while not self._is_over.is_set():
            for name, session in self._sessions.items():
                word = f"{name}-{self.rounds}"
                send = partial(self._send, session)
                of_session = answer_time(send, self._logs[name], name, word)
                of_bare_tmux = answer_time(self._tmux.send, self._tmux.log, "bare", word)
                self._answers[name].append(Answers(of_session, of_bare_tmux))
            self.rounds += 1

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

# A command whose terminal goes away is hung up, cannot write any more (120 is Python's word for what it could
# not even flush), or is killed with the rest of its unit; and older kernels forget how it ended, for then it
# is nobody's child.
WITHOUT_TERMINAL = {
    "killed by SIGHUP",
    "killed by SIGKILL",
    "killed by SIGTERM",
    "exited with code 1",
    "exited with code 120",
    "ended, and how is not known",
}
ACCIDENTS = [
    pytest.param(segfault, "killed by SIGSEGV", {"killed by SIGSEGV"}, id="segfault"),
    pytest.param(
        kill_terminal_server, r"terminal server died \(SIGKILL\)", WITHOUT_TERMINAL, id="terminal-server"
    ),
    pytest.param(kill_unit, r"terminal server died \(SIGKILL\)", WITHOUT_TERMINAL, id="unit"),
]


@pytest.mark.parametrize(
    ("of_session", "of_bare_tmux", "slow"),
    [(0.09, 0.01, False), (0.11, 0.02, True), (0.29, 0.2, False), (0.31, 0.2, True), (0.8, 0.2, True)],
)
def test_a_busy_machine_excuses_only_what_it_does_itself(
    of_session: float, of_bare_tmux: float, slow: bool
) -> None:
    assert are_slow([Answers(of_session, of_bare_tmux)] * ROUNDS) == slow


@pytest.mark.parametrize(("of_slow_ones", "slow"), [(0.09, False), (0.11, True)])
def test_a_quarter_that_is_slow_where_a_bare_tmux_is_quick_is_too_much(
    of_slow_ones: float, slow: bool
) -> None:
    quick, slower = Answers(0.05, 0.02), Answers(of_slow_ones, 0.02)
    assert are_slow([quick] * 7 + [slower] * 3) == slow


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
            typist.wait_for(typist.rounds + 1 + ROUNDS)
            typist.judge()
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
        told = [event.body[1] for event in events.named("SessionExited")]
        assert [one for one in told if one in ids] == [second.id, *(one.id for one in sessions.values())]
