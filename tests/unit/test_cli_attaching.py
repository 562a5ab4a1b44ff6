"""What is told of a session whose terminal was lost, and how long that is waited for."""

from typing import Any, cast

import pytest

from amuxd.cli import attaching
from amuxd.cli.client import Client, Properties
from amuxd.cli.failures import RemoteError

RUNS = {"Id": "s001", "Name": "build", "State": "running", "HostAlive": "alive"}
ENDED = RUNS | {"State": "failed", "HostAlive": "dead", "ExitCode": 3, "Reason": "exited with code 3"}


class Told:
    """A client that knows how a session stands now, and after the next signal."""

    def __init__(self, *stands: Properties, answers: bool = True) -> None:
        self.stands = list(stands)
        self.answers = answers

    def subscribe(self) -> None: ...

    def properties(self, path: str) -> Properties:
        return self.stands[0]

    def session(self, path: str, member: str, *_: object, **__: object) -> tuple[Any, ...]:
        assert member == "Capture"
        if not self.answers:
            raise RemoteError("org.amux.Amux1.Error.Internal", "no server running")
        return ("a screen",)

    def certificate(self, path: str, run: int) -> Properties:
        return {"last_lines": ["the last line"]}

    def next_signal(self, timeout: float) -> object:
        assert len(self.stands) > 1, "it was waited for, though nothing is to come"
        del self.stands[0]
        return "a signal"


def lost(monkeypatch: pytest.MonkeyPatch, told: Told, was_taken: bool, complaints: str = "") -> int | None:
    monkeypatch.setattr(attaching, "Client", lambda: cast(Client, told))
    return attaching._after_loss("/s001", was_taken, complaints)


def test_a_client_that_fails_alone_is_told_of_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lost(monkeypatch, Told(RUNS), was_taken=False, complaints="terminal is nonsense\n") == 1
    assert capsys.readouterr() == ("build (s001) is running\n", "terminal is nonsense\n")


@pytest.mark.parametrize("was_taken", [True, False])
def test_a_terminal_that_is_gone_is_waited_for_until_amuxd_sees_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], was_taken: bool
) -> None:
    told = Told(RUNS, ENDED | {"Run": 1}, answers=False)
    code = lost(monkeypatch, told, was_taken, "no server running\n" if not was_taken else "")
    standing = "the last line\nbuild (s001) is failed (exit 3): exited with code 3\n"
    assert code == (1 if was_taken else None)
    # Who never had it is told by whoever looks next, and hears nothing of tmux.
    assert capsys.readouterr() == (standing if was_taken else "", "")


def test_what_tmux_complains_of_is_not_lost_with_amuxd(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(Told):
        def properties(self, path: str) -> Properties:
            raise RemoteError("org.freedesktop.DBus.Error.NoReply", "gone")

    with pytest.raises(RemoteError):
        lost(monkeypatch, Gone(RUNS), was_taken=False, complaints="terminal is nonsense\n")
    assert capsys.readouterr().err == "terminal is nonsense\n"
