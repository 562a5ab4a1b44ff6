import time
from typing import Any, cast

import pytest

from amuxd.cli import overview
from amuxd.cli.client import Client
from amuxd.cli.overview import _patience, _Watched


def session(state: str, quiet_for: float = 0, **more: Any) -> dict[str, Any]:
    now = int(time.time() * 1e6)
    times = {"StateChangedUSec": now, "CreatedUSec": now, "LastActivityUSec": now - int(quiet_for * 1e6)}
    return {"Id": "a1", "Name": "build", "State": state, "IdleAfterUSec": 60_000_000, **times, **more}


class Amuxd:
    def __init__(self, *found: dict[str, Any]) -> None:
        self.found = found
        self.asked = 0

    def sessions(self, **_: Any) -> list[tuple[str, dict[str, Any]]]:
        self.asked += 1
        return [("/", session) for session in self.found]

    def configuration_error(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("found", "asks"),
    [
        ([session("running")], 3),
        ([session("running", Parked=True), session("failed"), session("created")], 1),
        ([], 1),
    ],
)
def test_amuxd_is_asked_only_for_what_it_does_not_tell(found: list[dict[str, Any]], asks: int) -> None:
    amuxd = Amuxd(*found)
    watched = _Watched(cast(Client, amuxd), {}, as_json=False)
    for was_told in (True, False, False):
        watched.look(was_told)
    assert amuxd.asked == asks


def test_in_a_pipe_only_what_changed_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    amuxd = Amuxd(session("running", quiet_for=90))
    watched = _Watched(cast(Client, amuxd), {}, as_json=False)
    for was_told, quiet_for, is_frozen, lines in (
        (True, 90, False, 3),
        (False, 95, False, 0),
        (False, 0, False, 3),
        (False, 0, True, 3),
        (True, 0, True, 3),
    ):
        amuxd.found = (session("running", quiet_for, Frozen=is_frozen),)
        watched.look(was_told)
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_the_next_that_is_idle_is_not_shown_late() -> None:
    now = time.time()
    soon, idle, late = (session("running", quiet_for) for quiet_for in (58, 90, 0))
    assert 1.9 < _patience([late, idle, soon], now) < overview._LOOK_AGAIN
    assert _patience([late, idle], now) == overview._LOOK_AGAIN
    assert _patience([], now) == overview._LOOK_AGAIN
