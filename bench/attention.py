"""What a person is told, and how soon: notifications, reports, and many who listen."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle

import psutil
from harness.client import Session
from harness.daemon import Amux
from harness.desktop import Server
from harness.lines import Lines
from harness.waiting import until
from jeepney import DBusAddress, Message, MessageFlag, new_method_call
from jeepney.io.blocking import open_dbus_connection

from bench import ground
from bench.samples import interleaved, p50
from bench.stopwatch import Stopwatch
from bench.subscriber import Subscriber
from bench.table import Floor, Row, against, ms, within

ENDS, REPORTS, STARTS = 40, 200, 40
SUBSCRIBERS, TRANSITIONS, A_SECOND = 100, 1000, 100
MOST_NOTIFY, MOST_REPORT, MOST_STARTS, MOST_SHARE = 0.030, 0.010, 2.5, 0.25
DEADLINE = 30.0
# Notifications that stand alone: further apart than those that become a summary.
APART = 0.7


def measure() -> list[Row]:
    with ground.amux() as amux:
        agent = amux.create(["cat"])
        return [_notify(amux), _start(amux, agent), _report(amux, agent), *_many(amux)]


def _shows_more_than(count: int) -> Callable[[Server], bool]:
    return lambda server: len(server.shown) > count


def _notify(amux: Amux) -> Row:
    took = []
    with Server(amux) as server:
        for _ in range(ENDS):
            time.sleep(APART)
            session = amux.create(ground.QUIET)
            pid = amux.machine.outside_pid(session.get("Pid"))
            count = len(server.shown)
            with _pidfd(pid) as process:
                os.kill(pid, signal.SIGKILL)
                select.select([process], [], [], DEADLINE)
                ended = time.perf_counter()
            server.wait(_shows_more_than(count))
            took.append(max(0.0, server.shown[count].received - ended))
            session.wait_state("failed")
            session.remove()
    return Row(
        "process ends → Notify arrives: p50",
        ms(p50(took)),
        goal=f"≤ {ms(MOST_NOTIFY)}",
        met=p50(took) <= MOST_NOTIFY,
    )


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _start(amux: Amux, agent: Session) -> Row:
    settings = [
        f"AMUX_SESSION_ID={agent.id}",
        f"AMUX_TOKEN={_token(amux, agent)}",
        f"AMUX_SOCKET={amux.runtime / 'amuxd.sock'}",
    ]
    with Stopwatch(amux) as stopwatch:
        floor, report = interleaved(
            lambda: stopwatch.time("env", *settings, sys.executable, "-c", "pass"),
            lambda: stopwatch.time("env", *settings, amux.bindir / "amux", "report", "turn"),
            rounds=STARTS,
        )
    return against("amux report", Floor("python -c pass", p50(floor)), p50(report), MOST_STARTS)


def _report(amux: Amux, agent: Session) -> Row:
    token = _token(amux, agent)
    subscriber = Subscriber(amux.bus_address, {"AttentionChanged": 1})
    floor, took = [], []
    with Lines(amux.machine.outside(amux.runtime / "amuxd.sock")) as lines:
        for _, kind in zip(range(REPORTS), cycle(("question", "turn")), strict=False):
            began = time.perf_counter()
            lines.ask(type="nothing")
            floor.append(time.perf_counter() - began)
            began = time.perf_counter()
            lines.send(type="session.report", sessionId=agent.id, token=token, kind=kind)
            took.append(_moment(subscriber) - began)
            assert lines.next() == {"type": "ok"}
    subscriber.close()
    name = Floor("a line there and back", p50(floor))
    return within("report → AttentionChanged: p50", name, p50(took), MOST_REPORT)


def _moment(subscriber: Subscriber) -> float:
    while select.select([subscriber], [], [], DEADLINE)[0]:
        if told := subscriber.read():
            return told[0].moment
    raise TimeoutError("nobody told of the report")


def _token(amux: Amux, session: Session) -> str:
    return (amux.state / "sessions" / session.id / "runs/1/token").read_text().strip()


def _many(amux: Amux) -> list[Row]:
    sessions = [amux.create(ground.QUIET, start=False) for _ in range(TRANSITIONS)]
    with ExitStack() as stack:
        path = amux.machine.outside(amux.runtime / "amuxd.sock")
        readers = [stack.enter_context(Lines(path)) for _ in range(SUBSCRIBERS)]
        for reader in readers:
            reader.ask(type="subscribe")
        counts = [0] * SUBSCRIBERS
        threading.Thread(target=_count, args=(readers, counts), daemon=True).start()
        daemon = psutil.Process(amux.machine.outside_pid(amux.pid))
        before, began = sum(daemon.cpu_times()[:2]), time.perf_counter()
        caller = open_dbus_connection(amux.bus_address)
        for number, session in enumerate(sessions):
            time.sleep(max(0.0, began + number / A_SECOND - time.perf_counter()))
            caller.send(_archive(session))
        took = time.perf_counter() - began
        with suppress(TimeoutError):
            until(lambda: min(counts) == TRANSITIONS, timeout=DEADLINE)
        caller.close()
        lost = SUBSCRIBERS * TRANSITIONS - sum(counts)
        share = (sum(daemon.cpu_times()[:2]) - before) / took
    what = f"{SUBSCRIBERS} subscribers, {TRANSITIONS / took:.0f} transitions a second"
    goal = f"≤ {MOST_SHARE:.0%} of a core"
    return [
        Row(f"{what}: lost", str(lost), goal="0", met=lost == 0),
        Row(f"{what}: amuxd", f"{share:.0%} of a core", goal=goal, met=share <= MOST_SHARE),
    ]


def _archive(session: Session) -> Message:
    """Without a reply to wait for, so that the pace is kept."""
    address = DBusAddress(session.path, session.destination, session.interface)
    message = new_method_call(address, "Archive")
    message.header.flags |= MessageFlag.no_reply_expected
    return message


def _count(readers: list[Lines], counts: list[int]) -> None:
    """As cheap as can be: it shares the machine with what it measures."""
    poll = select.poll()
    numbers = {}
    for number, reader in enumerate(readers):
        poll.register(reader.socket, select.POLLIN)
        numbers[reader.socket.fileno()] = number
    while min(counts) < TRANSITIONS:
        for descriptor, _ in poll.poll():
            number = numbers[descriptor]
            counts[number] += readers[number].socket.recv(1 << 16).count(b'"status":"archived"')
