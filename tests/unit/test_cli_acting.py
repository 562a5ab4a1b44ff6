"""Ctrl-C at moments that nobody hits on demand."""

import signal
import threading
from typing import Any

import pytest

from amuxd.cli import acting
from amuxd.cli.failures import Interrupted


def press_ctrl_c() -> None:
    # amux has one thread. Here there are those that the tests are run through, which block no signal.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class Interrupting:
    """A client at whose work the user presses Ctrl-C, as the call has just gone out."""

    def find(self, name: str) -> str:
        return name

    def properties(self, path: str) -> dict[str, Any]:
        if path == "unasked":
            press_ctrl_c()
        return {"Name": path, "Id": f"id of {path}"}

    def begin(self, path: str, *_: Any) -> int:
        if path == "last":
            press_ctrl_c()
        return 1

    def finish(self, serial: int) -> None:
        raise AssertionError("nobody waits any more")


@pytest.fixture(autouse=True)
def interrupting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "Client", Interrupting)


@pytest.mark.parametrize("names", [["first", "last"], ["first", "last", "never"]])
def test_what_was_just_asked_for_is_said_to_go_on(names: list[str]) -> None:
    with pytest.raises(Interrupted, match=r"stop goes on for first \(id of first\), last \(id of last\)$"):
        acting.stop.callback(names, None)  # type: ignore[misc]


def test_what_was_not_asked_for_is_not() -> None:
    with pytest.raises(Interrupted, match=r"stop goes on for first \(id of first\)$"):
        acting.stop.callback(["first", "unasked", "never"], None)  # type: ignore[misc]
    with pytest.raises(KeyboardInterrupt):
        acting.stop.callback(["unasked"], None)  # type: ignore[misc]
