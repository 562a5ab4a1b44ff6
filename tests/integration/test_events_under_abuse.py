"""The events socket: garbage, floods, readers that do not read, strangers."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psutil
import pytest
from events_fixtures import (
    connect,
    lines,  # noqa: F401
    path_of,
    subscribe,
    token_of,
)
from harness.daemon import Amux, Embedded
from harness.lines import Lines
from harness.waiting import until


def test_what_was_asked_for_is_not_quoted_at_any_length(amux: Amux, lines: Lines) -> None:
    assert len(lines.ask(type="x" * 60_000)["message"]) == 1024
    subscribe(lines)
    amux.cli("run", "--", "x" * 100_000, check=False)
    failed = lines.until(status="failed")[-1]
    (session,) = amux.sessions().values()
    assert len(failed["reason"]) == len(session["Reason"]) == 1024
    assert failed["reason"].startswith("could not start: ")
    history = amux.state / "sessions" / failed["sessionId"] / "history.jsonl"
    before = history.read_text()
    assert max(map(len, before.splitlines())) < 2048
    amux.restart()
    assert history.read_text() == before


GARBAGE = [
    b"hello\n",
    b"[]\n",
    b"\xff\xfe\n",
    b"{" * 30_000 + b"\n",
    b"[" * 60_000 + b"\n",
    b"x" * 70_000,
    b"\n",
    b'{"type":"subscribe"',
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_gets_an_error_and_is_left(amux: Amux, lines: Lines, garbage: bytes) -> None:
    lines.socket.sendall(garbage)
    lines.socket.shutdown(socket.SHUT_WR)
    answer = lines.next()
    assert answer is not None
    assert (answer["type"], answer["code"]) == ("error", "InvalidArgument")
    assert lines.next() is None
    with connect(amux) as other:
        subscribe(other)


def memory_of(amux: Amux) -> int:
    return int(psutil.Process(amux.machine.outside_pid(amux.pid)).memory_info().rss)


def test_ten_thousand_wrong_messages_leave_amuxd_as_it_was(amux: Amux) -> None:
    path = path_of(amux)

    def send(number: int) -> None:
        with Lines(path) as lines:
            lines.socket.sendall(GARBAGE[number % len(GARBAGE)])
            if number % 3:
                lines.socket.shutdown(socket.SHUT_WR)
                while lines.next():
                    pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(2_000)))
        before = memory_of(amux)
        list(pool.map(send, range(8_000)))
    with connect(amux) as lines:
        subscribe(lines)
    assert memory_of(amux) - before < 4 * 1024 * 1024


def test_readers_that_do_not_read_are_dropped_and_cost_nobody_anything(amux: Amux) -> None:
    session = amux.create(["cat"])
    token = token_of(amux, session)
    message = "x" * 480
    with ExitStack() as stack:
        lazy = [stack.enter_context(connect(amux)) for _ in range(100)]
        for one in lazy:
            subscribe(one)
        before = most = memory_of(amux)
        reporter, reader = stack.enter_context(connect(amux)), stack.enter_context(connect(amux))
        subscribe(reader)
        for number in range(3_000):
            kind = ("turn", "question")[number % 2]
            report = {"type": "session.report", "sessionId": session.id, "token": token, "kind": kind}
            assert reporter.ask(**report, message=f"{number} {message}") == {"type": "ok"}
            if number % 100 == 99:
                reader.until(type="session.attention", message=f"{number} {message}")
                most = max(most, memory_of(amux))
        # What many have not read is the same for all of them, and there once.
        assert most - before < 16 * 1024 * 1024
        for one in lazy:
            # What it had not taken was at most a megabyte, and then the connection was gone.
            taken = 0
            while data := one.socket.recv(1 << 20):
                taken += len(data)
            assert taken < 3_000 * 480


def test_a_reader_that_is_slow_gets_everything_in_its_order(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    subscribe(lines)
    messages = [f"{number} {'x' * 480}" for number in range(1_000)]
    with connect(amux) as reporter:
        for message in messages:
            assert reporter.ask(**report, kind="custom", message=message) == {"type": "ok"}
    # More than the kernel keeps for it, and less than it may leave.
    seen = lines.until(message=messages[-1])
    assert [m["message"] for m in seen if m["type"] == "session.attention"] == messages
    assert lines.ask(**report, kind="turn")["type"] != "error"


def test_programs_that_only_hold_connections_keep_nobody_from_reporting(amux: Amux) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    with ExitStack() as stack:
        held = [stack.enter_context(connect(amux)) for _ in range(1024)]
        subscribe(held[0])
        assert held[0].next() is not None
        for kind in ("question", "turn"):
            late = stack.enter_context(connect(amux))
            assert late.ask(**report, kind=kind) == {"type": "ok"}
        # Whoever said nothing for the longest had to go, and was told why.
        for number in (1, 2):
            answer = held[number].next()
            assert answer is not None
            assert answer["code"] == "Busy"
            assert held[number].next() is None
        subscribe(held[3])
        assert [held[0].until(kind=kind)[-1]["sessionId"] for kind in ("question", "turn")] == [
            session.id
        ] * 2


def test_more_programs_than_it_takes_are_told_so(amux: Amux) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    with ExitStack() as stack:
        listening = [stack.enter_context(connect(amux)) for _ in range(768)]
        for one in listening:
            subscribe(one)
        with connect(amux) as late:
            assert late.ask(type="subscribe")["code"] == "Busy"
            # It is served all the same.
            assert late.ask(**report, kind="turn") == {"type": "ok"}
            listening.pop().socket.close()
            until(lambda: late.ask(type="subscribe")["type"] != "error")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is missing")
def test_a_peer_of_another_user_is_turned_away(embedded: Embedded) -> None:
    """The directory keeps others out already; here it is opened to see that the socket does too."""
    embedded.cli("ls")
    path = path_of(embedded)
    for directory in (path.parent, path.parent.parent):
        directory.chmod(0o755)
    path.chmod(0o666)
    ask = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "print(s.makefile().readline())"
    )
    stranger = ["setpriv", "--reuid=65534", "--clear-groups"]
    result = embedded.machine.run([*stranger, "/usr/bin/python3", "-c", ask, embedded.runtime / "amuxd.sock"])
    answers = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert [answer["code"] for answer in answers] == ["AccessDenied"]
