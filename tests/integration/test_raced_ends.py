"""What is asked for just as a run ends costs that end nothing, and is not hurt by it."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.client import BUS_NAME, SESSION, Client, Session
from harness.daemon import Amux
from harness.waiting import until
from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

FAILS = ["sh", "-c", "echo line; exit 3"]
NOT_NOW = "org.amux.Amux1.Error.InvalidTransition"
AT_ONCE = 4


class Eager:
    """Asks the same again and again, also before it can be granted, and never fewer than some at once."""

    def __init__(self, amux: Client, session: Session, member: str, *body: object) -> None:
        self._connection = open_dbus_connection(amux.bus_address)
        address = DBusAddress(session.path, bus_name=BUS_NAME, interface=SESSION)
        self._call = new_method_call(address, member, "a{sv}" if body else None, body)
        self.granted = 0
        for _ in range(AT_ONCE):
            self._ask()

    def _ask(self) -> None:
        self._connection.send(self._call, serial=next(self._connection.outgoing_serial))

    def until(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            answer = self._connection.receive(timeout=60).header
            if answer.message_type is MessageType.method_return:
                self.granted += 1
            elif answer.message_type is MessageType.error:
                assert answer.fields[HeaderFields.error_name] == NOT_NOW
            else:
                continue
            self._ask()
        self._connection.close()


def runs_of(amux: Client, session: Session) -> list[Path]:
    runs = (amux.state / "sessions" / session.id / "runs").iterdir()
    return sorted(runs, key=lambda run: int(run.name))


def assert_whole(run: Path) -> None:
    certificate = json.loads((run / "exit.json").read_text())
    assert certificate["complete"], (run.name, certificate)
    assert (certificate["reason"], certificate["last_lines"]) == ("exited with code 3", ["line"]), run.name
    assert (run / "output.log").read_bytes() == b"line\r\n", run.name


def assert_no_fault(amux: Amux) -> None:
    assert [entry["MESSAGE"] for entry in amux.journal() if int(entry.get("PRIORITY", 6)) <= 4] == []


def test_it_is_begun_again(amux: Amux) -> None:
    session = amux.create(FAILS)
    deadline = time.monotonic() + 6
    eager = Eager(amux, session, "Restart")
    eager.until(lambda: eager.granted == 40 or time.monotonic() > deadline)
    until(lambda: session.state == "failed" and session.certificate()["run"] > eager.granted)
    for run in runs_of(amux, session):
        assert_whole(run)
    assert eager.granted > 5
    assert_no_fault(amux)


@pytest.mark.parametrize("member", ["Archive", "Remove"])
def test_it_is_put_away(amux: Amux, member: str) -> None:
    deadline, rounds = time.monotonic() + 3, 0
    while rounds < 20 and time.monotonic() < deadline:
        session = amux.create(FAILS)
        eager = Eager(amux, session, member, *([{"force": ("b", False)}] if member == "Remove" else []))
        eager.until(lambda eager=eager: eager.granted == 1)  # type: ignore[misc]
        rounds += 1
        assert amux.machine.systemctl("is-active", f"amux-{session.id}.service", check=False) == "inactive"
        if member == "Remove":
            assert not (amux.state / "sessions" / session.id).exists()
        else:
            assert session.state == "archived"
            assert_whole(*runs_of(amux, session))
    assert_no_fault(amux)
