"""From nothing to a running session, and from an ended one to a running one."""

import itertools
import shutil
import time

from harness.client import Session
from harness.daemon import Amux
from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, message_bus, new_method_call
from jeepney.io.blocking import open_dbus_connection

from bench import ground
from bench.samples import interleaved, p50, p99
from bench.stopwatch import Stopwatch
from bench.table import Floor, Row, against, within

ROUNDS = 40
MOST_TIMES = 2.0
LONGEST_RESTART = 0.150
SYSTEMD_RUN = "systemd-run --user --quiet --collect --service-type=forking"
SYSTEMD = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
DEADLINE = 30.0


def measure() -> list[Row]:
    with ground.amux() as amux:
        return [*_creation(amux), *_restart(amux)]


def _creation(amux: Amux) -> list[Row]:
    with Stopwatch(amux) as stopwatch:
        plain, unit, called, product, whole = interleaved(
            Plain(amux, stopwatch).measure,
            Unit(amux, stopwatch).measure,
            CalledUnit(amux, stopwatch).measure,
            lambda: _created(amux),
            lambda: _run(amux, stopwatch),
            rounds=ROUNDS,
        )
    run, create = "amux run → running, a whole process", "CreateSession → running, a call"
    systemd_run, call = "systemd-run of tmux, a whole process", "StartTransientUnit of tmux, a call"
    return [
        # Python alone takes longer to start than systemd-run takes to end.
        against(f"{run}: p50", Floor(systemd_run, p50(unit)), p50(whole)),
        against(f"{run}: p99", Floor(systemd_run, p99(unit)), p99(whole)),
        against(f"{create}: p50", Floor(call, p50(called)), p50(product)),
        against(f"{create}: p99", Floor(call, p99(called)), p99(product)),
        against(f"{create}: p50", Floor(systemd_run, p50(unit)), p50(product), MOST_TIMES),
        against(f"{create}: p50", Floor("tmux alone, a whole process", p50(plain)), p50(product)),
    ]


class Plain:
    """The same tmux, by hand."""

    def __init__(self, amux: Amux, stopwatch: Stopwatch) -> None:
        self._machine = amux.machine
        self._stopwatch = stopwatch
        self._numbers = itertools.count()

    def measure(self) -> float:
        name = f"{type(self).__name__}{next(self._numbers)}"
        tmux = (shutil.which("tmux") or "tmux", "-S", str(self._machine.temporary / name), "-f", "/dev/null")
        took = self._start(name, *tmux, "new-session", "-d", *ground.QUIET)
        self._stopwatch.time(*tmux, "kill-server")
        return took

    def _start(self, _name: str, *tmux: str) -> float:
        return self._stopwatch.time(*tmux)


class Unit(Plain):
    """The same tmux, in a unit as a session's."""

    def _start(self, name: str, *tmux: str) -> float:
        return self._stopwatch.time(*SYSTEMD_RUN.split(), f"--unit={name}", "--", *tmux)


class CalledUnit(Plain):
    """The same, asked of systemd on a connection that stands, as amuxd does."""

    def __init__(self, amux: Amux, stopwatch: Stopwatch) -> None:
        super().__init__(amux, stopwatch)
        self._connection = open_dbus_connection(amux.bus_address)
        rule = MatchRule(type="signal", interface=SYSTEMD.interface, member="JobRemoved")
        for call in (message_bus.AddMatch(rule), new_method_call(SYSTEMD, "Subscribe")):
            self._connection.send_and_get_reply(call, timeout=DEADLINE)

    def _start(self, name: str, *tmux: str) -> float:
        properties = [
            ("Type", ("s", "forking")),
            ("ExecStart", ("a(sasb)", [(tmux[0], list(tmux), False)])),
            ("CollectMode", ("s", "inactive-or-failed")),
        ]
        arguments: tuple[object, ...] = (f"{name}.service", "fail", properties, [])
        call = new_method_call(SYSTEMD, "StartTransientUnit", "ssa(sv)a(sa(sv))", arguments)
        began = time.perf_counter()
        result = self._result_of(next(self._connection.outgoing_serial), call)
        took = time.perf_counter() - began
        if result != "done":
            raise RuntimeError(f"{name} did not start: {result}")
        return took

    def _result_of(self, serial: int, call: Message) -> str:
        self._connection.send(call, serial=serial)
        job = None
        while True:
            message = self._connection.receive(timeout=DEADLINE)
            if message.header.fields.get(HeaderFields.reply_serial) == serial:
                if message.header.message_type is MessageType.error:
                    return str(message.body[0])
                [job] = message.body
            elif message.header.fields.get(HeaderFields.member) == "JobRemoved" and message.body[1] == job:
                return str(message.body[3])


def _created(amux: Amux) -> float:
    began = time.perf_counter()
    session = amux.create(ground.QUIET)
    took = time.perf_counter() - began
    _check_running(session)
    session.remove(force=True)
    return took


def _run(amux: Amux, stopwatch: Stopwatch) -> float:
    took = stopwatch.time(amux.bindir / "amux", "run", "-n", "whole", "--", *ground.QUIET)
    amux.session("whole").remove(force=True)
    return took


def _restart(amux: Amux) -> list[Row]:
    session = amux.create(ground.QUIET)
    created, at_rest, at_once = interleaved(
        lambda: _created(amux),
        lambda: _restarted(amux, session, rest=True),
        lambda: _restarted(amux, session, rest=False),
        rounds=ROUNDS,
    )
    half, most = (Floor("CreateSession", quantile(created)) for quantile in (p50, p99))
    return [
        within("Restart → running, p50", half, p50(at_rest), LONGEST_RESTART),
        within("Restart → running, at once after the end, p50", half, p50(at_once), LONGEST_RESTART),
        against("Restart → running, p99", most, p99(at_rest)),
    ]


def _restarted(amux: Amux, session: Session, rest: bool) -> float:
    session.call("Kill", "s", "SIGKILL")
    session.wait_state("failed")
    if rest:
        # Answered when all that belongs to the end is done.
        session.certificate()
    began = time.perf_counter()
    session.call("Restart")
    took = time.perf_counter() - began
    _check_running(session)
    return took


def _check_running(session: Session) -> None:
    if session.state != "running":
        raise RuntimeError(f"{session.id} is {session.state} and not running: {session.get('Reason')}")
