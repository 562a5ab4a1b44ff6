"""Sessions that wait for a slot of their workspace go in their turn, also by the next amuxd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from pathlib import Path

from harness.daemon import Amux
from harness.waiting import until
from workspace_fixtures import (
    repo,  # noqa: F401
    run_in,
)


def test_the_next_in_the_queue(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    first = run_in(amux, "one", name="first")
    refused = amux.cli("run", "-w", "one", "--", "sleep", "1", check=False)
    assert refused.returncode == 4
    assert refused.stderr == f"amux: one has 1 slot, held by first ({first.id})\n"
    assert len(amux.sessions()) == 1
    second = run_in(amux, "one", name="second", queue=True)
    third = run_in(amux, "one", name="third", queue=True)
    assert second.get("Reason") == "waiting for a slot in one (1st)"
    assert third.get("Reason") == "waiting for a slot in one (2nd)"
    assert amux.cli("ls").stdout.count("created (waiting for a slot)") == 2
    assert "waiting for a slot in one (2nd)" in amux.cli("show", "third").stdout
    amux.restart()
    assert first.wait_state("running") == "running"
    assert (second.state, third.state) == ("created", "created")
    first.stop()
    second.wait_state("running")
    second.call("Kill", "s", "SIGKILL")
    third.wait_state("running")


def test_a_restart_waits_in_the_queue_or_is_refused(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    patient = run_in(amux, "one", "true", name="patient", queue=True)
    patient.wait_state("completed")
    hasty = run_in(amux, "one", "true", name="hasty")
    hasty.wait_state("completed")
    holder = run_in(amux, "one", name="holder")
    refused = amux.cli("restart", "hasty", check=False)
    assert (refused.returncode, hasty.state) == (4, "completed")
    amux.cli("restart", "patient")
    assert (patient.state, patient.get("Reason")) == ("created", "waiting for a slot in one (1st)")
    refused = amux.cli("run", "-w", "one", "--", "true", check=False)
    assert f"held by holder ({holder.id}); waiting before you: patient ({patient.id})" in refused.stderr
    said = amux.cli("run", "-w", "one", "--queue", "-n", "last", "--", "true").stdout
    assert said.endswith("waiting for a slot in one (2nd)\n")
    patient.remove()
    amux.session("last").wait_state("created")
    until(lambda: amux.session("last").get("Reason") == "waiting for a slot in one (1st)")
    assert "1/1 (+1)" in amux.cli("ws", "ls").stdout
    amux.kill()
    amux.start()
    assert holder.wait_state("running") == "running"
    holder.stop()
    amux.session("last").wait_state("completed")
    assert hasty.state == "completed"


def test_many_sessions_for_two_slots_with_kills_in_between(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "two", "--slots", "2", cwd=repo)
    with amux.events() as events:
        waiting = [run_in(amux, "two", "sleep", "0.2", queue=True, name=f"s{n}") for n in range(10)]
        events.wait(lambda e: e.member == "SessionExited")
        amux.kill()
        amux.start()
        for session in waiting:
            session.wait_state("completed", timeout=60)
    moments: list[tuple[int, int, str]] = []
    for number, session in enumerate(waiting):
        for at, _, _, new, _, _ in session.call("History"):
            if new in ("starting", "completed"):
                moments.append((at, number, new))
    live = 0
    for _, _, new in sorted(moments):
        live += 1 if new == "starting" else -1
        assert live <= 2
    begun = [number for _, number, new in sorted(moments) if new == "starting"]
    assert begun == list(range(10))
    assert "0/2" in amux.cli("ws", "ls").stdout


def test_a_restart_that_waits_goes_on_waiting_under_the_next_amuxd(amux: Amux, repo: Path) -> None:
    amux.cli("ws", "add", "one", "--slots", "1", cwd=repo)
    again = run_in(amux, "one", "sh", "-c", "sleep 0.2", name="again", queue=True)
    again.wait_state("completed")
    holder = run_in(amux, "one", name="holder")
    amux.cli("restart", "again")
    assert (again.state, again.get("Run")) == ("created", 2)
    amux.stop()
    (file,) = (amux.state / "workspaces").glob("*.json")
    text = file.read_text()
    # Nobody can say whose its slot is, so nobody gets it.
    for written in (text.replace('"schema":1', '"schema":99'), text):
        file.write_text(written)
        amux.start()
        assert holder.wait_state("running") == "running"
        assert (again.state, again.get("Run")) == ("created", 2)
        amux.stop()
    amux.start()
    amux.cli("stop", "holder")
    again.wait_state("completed")
    assert again.get("Run") == 2
