"""An amuxd that comes back and may open too few files for what it has to look at."""

import signal

import pytest
from away_fixtures import DOWN, settings, stays_down
from ends_fixtures import ENDLESS, on_disk, ready
from harness.daemon import Amux
from harness.waiting import until

# From too few to begin with to enough for some of the sessions.
LIMITS = range(16, 56, 4)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_session_is_taken_for_dead(amux: Amux, number: int) -> None:
    sessions = [amux.create(ENDLESS) for _ in range(8)]
    for session in sessions:
        ready(session)
    pids = [session.get("Pid") for session in sessions]
    histories = [len(session.call("History")) for session in sessions]
    with stays_down(amux, number):
        seen: set[str] = set()
        for limit in LIMITS:
            with settings(amux, f"[Service]\nLimitNOFILE={limit}\nTimeoutStartSec=5\n"):
                amux.machine.systemctl("start", "amuxd.service", check=False)
                seen |= {on_disk(amux, session, "state.json")["state"] for session in sessions}
                amux.machine.systemctl("kill", "--signal=SIGKILL", "amuxd.service", check=False)
                until(lambda: amux.machine.systemctl("is-active", "amuxd", check=False) in DOWN)
                amux.machine.systemctl("reset-failed", "amuxd.service", check=False)
        assert seen <= {"running", "suspended"}
    amux.start()
    for session, pid, history in zip(sessions, pids, histories, strict=True):
        session.wait_state("running")
        until(lambda session=session, pid=pid: session.get("Pid") == pid)
        told = {entry[3] for entry in session.call("History")[history:]}
        assert told <= {"running", "suspended"}
        assert "ready" in session.log()
