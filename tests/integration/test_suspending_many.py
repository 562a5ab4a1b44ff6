"""Many sessions at a logout or a shutdown: who is not done when systemd's patience is over is killed."""

from agent_fixtures import state_on_disk
from harness.daemon import Amux

MANY = 50


def test_many_are_suspended_before_amuxd_is_killed_for_taking_too_long(amux: Amux) -> None:
    sessions = [amux.create(["sleep", "1000"]) for _ in range(MANY)]
    pids = {session.id: session.get("Pid") for session in sessions}
    amux.stop()
    # Else it would be: timeout.
    assert amux.machine.systemctl("show", "--property=Result", "--value", "amuxd.service") == "success"
    on_disk = [state_on_disk(amux, session) for session in sessions]
    assert {(state["state"], state["reason"]) for state in on_disk} == {("suspended", "amuxd was stopped")}
    assert {state["session_id"]: state["command"]["pid"] for state in on_disk} == pids
    amux.start()
    assert {session.id: session.get("Pid") for session in sessions} == pids
    assert {told["State"] for told in amux.sessions().values()} == {"running"}
