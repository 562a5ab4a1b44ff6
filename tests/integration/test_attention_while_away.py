"""Sessions that wait, call or go on while amuxd is away."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import json
import os
import signal
import subprocess
import time

from attention_fixtures import (
    events,  # noqa: F401
    go_on,
    pass_over,
    report,
    said,
    script,
)
from harness.bus import Events
from harness.daemon import Amux
from harness.waiting import until


def test_it_goes_on_waiting_across_a_restart_unless_it_printed_meanwhile(amux: Amux) -> None:
    session = script(amux, "while read x <&3; do echo working; done")
    report(amux, session, "permission", "rm?")
    state = amux.state / "sessions" / session.id / "state.json"
    amux.restart()
    assert (session.get("Attention"), session.get("AttentionMessage")) == ("permission", "rm?")
    amux.stop()
    waits = json.loads(state.read_text())["attention_at"] / 1e6
    until(lambda: time.time() > waits + 2.2, timeout=5)
    go_on(amux)
    until(lambda: "working" in (state.parent / "runs/1/output.log").read_text())
    with amux.events() as events:
        amux.start()
        if session.get("Attention"):
            said(events, "")
    assert session.get("Attention") == ""


def test_who_called_while_amuxd_was_away_is_heard_once(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf 'Which? \033]9;come here\a'; read x <&3; cat")
    amux.stop()
    go_on(amux)
    log = amux.state / "sessions" / session.id / "runs/1/output.log"
    until(lambda: "come here" in log.read_text())
    amux.start()
    told = said(events, "bell")
    assert told.body[4] == "come here"
    session.send("this one")
    said(events, "", after=told)
    # Which was heard, and answered, is not told of again.
    amux.restart()
    amux.kill()
    until(lambda: amux.pid)
    report(amux, session, "custom")
    said(events, "custom")
    assert [event.body[3] for event in events.named("AttentionChanged")] == ["bell", "", "custom"]


def test_who_called_just_before_amuxd_was_killed_is_heard(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; cat")
    os.kill(amux.machine.outside_pid(amux.pid), signal.SIGSTOP)
    go_on(amux)
    log = amux.state / "sessions" / session.id / "runs/1/output.log"
    until(lambda: "\a" in log.read_text())
    amux.kill()
    assert said(events, "bell").body[1] == session.id


def test_who_called_while_amuxd_was_away_and_went_on_waits_for_nobody(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; read x <&3; echo on; cat")
    report(amux, session, "permission", "before")
    told = said(events, "permission")
    amux.stop()
    left = time.monotonic()
    log = amux.state / "sessions" / session.id / "runs/1/output.log"
    go_on(amux)
    until(lambda: "\a" in log.read_text())
    # The wait is older than that, and so is the moment at which amuxd listened last.
    pass_over(left)
    go_on(amux)
    until(lambda: "on" in log.read_text())
    amux.start()
    said(events, "", after=told)
    report(amux, session, "custom")
    said(events, "custom")
    assert [event.body[3] for event in events.named("AttentionChanged")] == ["permission", "", "custom"]


def test_what_happens_while_amuxd_leaves_is_for_the_next_one(amux: Amux, events: Events) -> None:
    """A session that waits does so still, whatever it prints between its suspension and the end of amuxd."""
    session = script(amux, r"while read x <&3; do printf '\a'; done")
    report(amux, session, "permission", "rm?")
    said(events, "permission")
    # What amuxd still answers keeps it for some seconds.
    stubborn = amux.create(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    until(lambda: "ready" in stubborn.log())
    stopping = amux.popen("stop", "--grace", "20", stubborn.id, stderr=subprocess.DEVNULL)
    stubborn.wait_state("stopping")
    pid = amux.pid
    os.kill(amux.machine.outside_pid(pid), signal.SIGTERM)
    state = amux.state / "sessions" / session.id / "state.json"
    until(lambda: json.loads(state.read_text())["state"] == "suspended")
    go_on(amux)
    until(lambda: "\a" in (state.parent / "runs/1/output.log").read_text())
    assert amux.pid == pid
    stopping.wait(20)
    until(lambda: amux.pid != pid)
    assert json.loads(state.read_text())["attention"] == "permission"


def test_a_machine_that_went_down_leaves_nobody_waiting(amux: Amux) -> None:
    session = amux.create(["cat"])
    report(amux, session, "permission", "rm?")
    unit = session.get("Unit")
    amux.stop()
    amux.machine.systemctl("stop", unit)
    file = amux.state / "sessions" / session.id / "state.json"
    state = json.loads(file.read_text())
    assert (state["state"], state["attention"]) == ("suspended", "permission")
    file.write_text(json.dumps({**state, "boot_id": "another"}))
    amux.start()
    assert (session.state, session.get("Attention"), amux.manager.get("Attention")) == ("suspended", "", [])
