"""What happens to one session does not happen to the others."""

import json
import os
import re
import shlex
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until

NAMES = ("first", "second", "third", "fourth")
ANSWER_WITHIN = 0.1
# So many do, on a machine on which a bare tmux is as quick as this.
MOST, QUICK = 0.75, 0.025
# Where others keep the processors busy: so many times what a bare tmux takes at that moment. The way through
# amuxd is two of tmux's clients, one for the text and one for Enter, the bus and amuxd itself.
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


def server_of(amux: Client, session: Session) -> int:
    state = json.loads((amux.state / "sessions" / session.id / "state.json").read_text())
    return int(state["server"]["pid"])


def segfault(amux: Client, session: Session) -> None:
    session.send("die")


def kill_terminal_server(amux: Client, session: Session) -> None:
    amux.machine.kill(server_of(amux, session))


def kill_unit(amux: Client, session: Session) -> None:
    amux.machine.systemctl("kill", "--signal=KILL", session.get("Unit"))


Accident = Callable[[Client, Session], None]

ACCIDENTS = [
    pytest.param(segfault, "killed by SIGSEGV", "SIGSEGV", id="segfault"),
    pytest.param(kill_terminal_server, r"terminal server died \(SIGKILL\)", None, id="terminal-server"),
    pytest.param(kill_unit, r"terminal server died \(SIGKILL\)", None, id="unit"),
]


@pytest.mark.parametrize(("accident", "reason", "number"), ACCIDENTS)
def test_one_of_four_that_print_dies(
    amux_everywhere: Amux, accident: Accident, reason: str, number: str | None
) -> None:
    isolation(amux_everywhere, accident, reason, number)


@pytest.mark.parametrize(
    ("accident", "reason", "number"),
    [
        ACCIDENTS[0],
        pytest.param(kill_terminal_server, r"terminal server died \(.*\)", None, id="terminal-server"),
    ],
)
def test_one_of_four_that_print_dies_without_systemd(
    embedded: Embedded, accident: Accident, reason: str, number: str | None
) -> None:
    embedded.cli("ls")
    isolation(embedded, accident, reason, number)


def isolation(amux: Client, accident: Accident, reason: str, number: str | None) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[sessions]\nlog_cap = "{LOG_CAP}"\n')
    amux.manager.call("Reload")
    with amux.events() as events:
        sessions = {name: printer(amux, name) for name in NAMES}
        second = sessions.pop("second")
        until(lambda: all(size(session) > 100_000 for session in [second, *sessions.values()]), timeout=60)
        accident(amux, second)
        second.wait_state("failed")
        sizes = {name: size(session) for name, session in sessions.items()}
        assert re.fullmatch(reason, second.get("Reason"))
        certificate = second.certificate()
        assert (certificate["reason"], certificate["signal"]) == (
            second.get("Reason"),
            second.get("ExitSignal"),
        )
        assert number in (None, certificate["signal"])
        assert assert_every_line_in_order(second, "second") > 1000
        # tmux drops up to three buffers of what a process printed that died in full flight.
        end_of_log = b"".join(path.read_bytes() for path in log_files(second))[-4096:].decode()
        # The last one may be cut anywhere, and spaces at its end are none that a person sees.
        assert certificate["last_lines"] == [line.rstrip() for line in end_of_log.splitlines()[-20:]]
        until(lambda: all(size(one) > sizes[name] for name, one in sessions.items()))
        times: dict[str, list[float]] = {name: [] for name in sessions}
        bare: list[float] = []
        with BareTmux(amux) as tmux:
            for number_of_word in range(ROUNDS):
                word = f"word-{number_of_word}"
                bare.append(answer_time(tmux.send, tmux.log, "bare", word))
                for name, session in sessions.items():
                    log = Path(session.get("LogPath"))
                    times[name].append(answer_time(session.send, log, name, word))
        for name, session in sessions.items():
            assert (session.state, session.get("Run")) == ("running", 1)
            session.stop(grace=2)
            assert assert_every_line_in_order(session, name) > 1000
        limit = max(ANSWER_WITHIN, TIMES_A_BARE_TMUX * statistics.median(bare))
        slow = {name: taken for name, taken in times.items() if statistics.median(taken) > limit}
        assert not slow, bare
        answers = sorted(taken for session in times.values() for taken in session)
        if statistics.median(bare) <= QUICK:
            assert answers[int(MOST * len(answers))] <= ANSWER_WITHIN, answers
        ended = [event.body[1] for event in events.named("SessionExited")]
        assert ended.count(second.id) == 1
        assert sorted(ended) == sorted([second.id, *(session.id for session in sessions.values())])
