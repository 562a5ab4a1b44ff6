"""Desktop notifications: the real dunst under a real X server, and servers that misbehave on demand."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_fixtures import Agents
from attention_fixtures import report
from harness.daemon import Amux
from harness.desktop import BUILD, Dunst, Server
from harness.lines import Lines
from harness.waiting import until

from amuxd.notify import PACE

needs_desktop = pytest.mark.skipif(
    not all(shutil.which(program) for program in ("Xvfb", "dunst", "dunstctl", "import")),
    reason="needs the packages xvfb, dunst and imagemagick",
)
CRASH = ["sh", "-c", "echo the last words; kill -SEGV $$"]
WAIT = ["sh", "-c", "cat >/dev/null"]


@pytest.fixture
def server(amux: Amux) -> Iterator[Server]:
    with Server(amux) as server:
        yield server


def settings(amux: Amux, text: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text("[sessions]\n" + text)
    amux.manager.call("Reload")


@needs_desktop
def test_a_crash_appears_on_a_real_desktop_and_its_restart_is_pressed(amux: Amux) -> None:
    with Dunst(amux) as dunst:
        marker = amux.machine.temporary / "once"
        marker.unlink(missing_ok=True)
        text = f"[ -e {marker} ] && exec cat; touch {marker}; echo the last words; kill -SEGV $$"
        session = amux.create(["sh", "-c", text], name="build")
        session.wait_state("failed")
        until(lambda: dunst.displayed() == 1)
        dunst.screenshot(BUILD / "notification.png")
        until(lambda: any(line.startswith("build failed|killed by SIGSEGV") for line in dunst.told))
        with amux.events() as events:
            dunst.press("Restart")
            events.wait(lambda event: event.member == "SessionStateChanged" and event.body[4] == "running")
        until(lambda: dunst.displayed() == 0)
        assert session.get("Run") == 2


@needs_desktop
def test_thirty_failures_at_once_are_one_summary(amux: Amux) -> None:
    with Dunst(amux) as dunst:
        sessions = [amux.create(["cat"], name=f"s{number}") for number in range(30)]
        amux.machine.run(["kill", "-KILL", *(str(session.get("Pid")) for session in sessions)])
        for session in sessions:
            session.wait_state("failed")
        until(lambda: any("30 failed" in line for line in dunst.told))
        until(lambda: dunst.displayed() == 1)
        dunst.screenshot(BUILD / "summary.png")
        for session in sessions:
            session.remove()
        until(lambda: dunst.displayed() == 0)


@needs_desktop
def test_a_server_that_restarts_is_told_of_the_next_failure(amux: Amux) -> None:
    with Dunst(amux) as dunst:
        amux.create(CRASH, name="first")
        until(lambda: dunst.displayed() == 1)
        dunst.stop()
        dunst.start()
        amux.create(CRASH, name="second")
        until(lambda: any(line.startswith("second failed") for line in dunst.told))
        assert dunst.displayed() == 1


def test_what_a_failure_says(amux: Amux, server: Server) -> None:
    session = amux.create(CRASH, name="a & <b>")
    server.wait(lambda s: any("the last words" in one.body for one in s.shown))
    shown = server.shown[-1]
    assert shown.title == "a & <b> failed"
    assert shown.body.startswith("killed by SIGSEGV")
    assert shown.urgency == 2
    assert shown.actions[1::2] == ["Attach", "Attach", "Restart", "Show log"]
    # One for one transition, replaced where the first came too early for the last line.
    assert len(server.standing()) == 1
    session.remove()
    server.wait(lambda s: not s.standing())


def test_markup_is_escaped_for_a_server_that_reads_it(amux: Amux) -> None:
    with Server(amux, capabilities=("body", "body-markup")) as server:
        amux.create(["sh", "-c", "echo '<b>&'; exit 3"], name="x")
        server.wait(lambda s: any("&lt;b&gt;&amp;" in one.body for one in s.shown))
        # It has no actions, and is offered none.
        assert server.shown[-1].actions == []


def test_attention_is_told_and_taken_back(amux: Amux, server: Server) -> None:
    session = amux.create(WAIT, name="agent")
    report(amux, session, "permission", "rm -rf /?")
    [shown] = server.wait(lambda s: s.shown)
    assert (shown.title, shown.body, shown.urgency) == ("agent asks for permission", "rm -rf /?", 2)
    report(amux, session, "turn")
    server.wait(lambda s: len(s.shown) == 2)
    assert (server.shown[1].replaces, server.shown[1].urgency) == (shown.number, 1)
    session.send("yes")
    server.wait(lambda s: s.withdrawn == [shown.number])


def test_a_wait_says_what_was_printed_last(amux: Amux, server: Server) -> None:
    session = amux.create(["sh", "-c", "echo first; echo 'all of it? [y/N]'; cat >/dev/null"], name="agent")
    until(lambda: "[y/N]" in session.log())
    report(amux, session, "permission", "rm -rf /?")
    [shown] = server.wait(lambda s: s.shown)
    assert shown.body == "rm -rf /?\nall of it? [y/N]"


def test_a_death_takes_the_place_of_a_wait(amux: Amux, server: Server) -> None:
    session = amux.create(["cat"], name="agent")
    report(amux, session, "permission")
    server.wait(lambda s: s.shown)
    session.call("Kill", "s", "SIGKILL")
    server.wait(lambda s: [one.title for one in s.standing().values()] == ["agent failed"])


def test_only_what_is_asked_for_is_told(amux: Amux, server: Server) -> None:
    settings(amux, 'notify = ["completed"]\n')
    amux.create(CRASH, name="crashes").wait_state("failed")
    amux.create(["true"], name="completes")
    server.wait(lambda s: s.shown)
    assert [(one.title, one.urgency) for one in server.standing().values()] == [("completes completed", 0)]
    settings(amux, "notify = []\n")
    amux.create(["true"], name="silent").wait_state("completed")
    settings(amux, 'notify = ["failed"]\n')
    amux.create(CRASH, name="loud")
    server.wait(lambda s: any(one.title == "loud failed" for one in s.shown))
    assert not any("silent" in one.title for one in server.shown)


@pytest.mark.parametrize(
    "text", ['notify = ["hunger"]', 'notify = "failed"', "notify = [1]", 'terminal = ""']
)
def test_settings_that_make_no_sense_are_refused(amux: Amux, text: str) -> None:
    with pytest.raises(Exception, match=r"sessions\.(notify|terminal)"):
        settings(amux, text + "\n")


def test_who_is_attached_is_told_nothing(amux: Amux, server: Server) -> None:
    session = amux.create(WAIT, name="agent")
    other = amux.create(WAIT, name="other")
    report(amux, session, "permission")
    server.wait(lambda s: s.shown)
    with amux.terminal("attach", session.id):
        server.wait(lambda s: not s.standing())
        until(lambda: session.get("Attached") == 1)
        report(amux, session, "question")
        report(amux, other, "turn")
        server.wait(lambda s: len(s.shown) == 2)
        session.call("Kill", "s", "SIGKILL")
        session.wait_state("failed")
    assert [one.title for one in server.shown] == ["agent asks for permission", "other is done for now"]


def test_a_restart_of_amuxd_repeats_none_and_keeps_hold_of_each(amux: Amux, server: Server) -> None:
    failed = amux.create(["sh", "-c", "exit 3"], name="failed")
    waits = amux.create(WAIT, name="waits")
    lost = amux.create(["cat"], name="lost")
    report(amux, waits, "permission")
    server.wait(lambda s: len(s.standing()) == 2)
    pid = lost.get("Pid")
    amux.stop()
    amux.machine.kill(pid)
    amux.start()
    # What happened while nobody watched is news.
    server.wait(lambda s: len(s.standing()) == 3)
    assert {one.title for one in server.shown} == {
        "failed failed",
        "waits asks for permission",
        "lost failed",
    }
    assert all(one.replaces or "lost" in one.title for one in server.shown[3:])
    failed.remove()
    waits.send("yes")
    server.wait(lambda s: [one.title for one in s.standing().values()] == ["lost failed"])


def test_what_was_kept_and_cannot_be_read_is_forgotten(amux: Amux, server: Server) -> None:
    amux.create(["sh", "-c", "exit 3"], name="first")
    server.wait(lambda s: s.shown)
    kept = amux.machine.outside(amux.runtime / "notifications.json")
    until(kept.exists)
    for text in ("nonsense", json.dumps({"owner": json.loads(kept.read_text())["owner"], "shown": 7})):
        amux.stop()
        kept.write_text(text)
        amux.start()
    amux.stop()
    kept.unlink()
    kept.mkdir()
    amux.start()
    shown = len(server.shown)
    amux.create(["sh", "-c", "exit 3"], name="second")
    server.wait(lambda s: len(s.shown) > shown)
    until(lambda: any("could not be kept" in line["MESSAGE"] for line in amux.journal()))
    assert sum("is not known" in line["MESSAGE"] for line in amux.journal()) == 3


def test_a_server_that_hangs_keeps_nobody_waiting(amux: Amux) -> None:
    with Server(amux, hangs=True) as server:
        for number in range(20):
            amux.create(CRASH, name=f"s{number}").wait_state("failed")
        until(lambda: any("does not answer" in line["MESSAGE"] for line in amux.journal()))
        asked = server.asked
        amux.create(CRASH, name="last").wait_state("failed")
        amux.create(["true"]).wait_state("completed")
        # It was asked once or twice, and is left alone now.
        assert server.asked == asked <= 3
    # The next one is asked at once.
    with Server(amux) as server:
        amux.create(CRASH, name="fresh")
        server.wait(lambda s: any(one.title == "fresh failed" for one in s.shown))


def test_a_session_that_calls_without_end_does_not_flood_the_desktop(amux: Amux, server: Server) -> None:
    session = amux.create(WAIT, name="agent")
    token = (amux.state / "sessions" / session.id / "runs/1/token").read_text().strip()
    report = {"type": "session.report", "sessionId": session.id, "token": token}
    began = time.monotonic()
    with Lines(amux.machine.outside(amux.runtime / "amuxd.sock")) as lines:
        for number in range(400):
            kind = ("turn", "working", "question")[number % 3]
            assert lines.ask(**report, kind=kind, message=str(number)) == {"type": "ok"}
        lines.ask(**report, kind="permission", message="the last")
    server.wait(lambda s: s.shown[-1].body == "the last")
    assert len(server.shown) <= (time.monotonic() - began) / PACE + 2
    assert [one.body for one in server.standing().values()] == ["the last"]


def test_without_a_server_nothing_is_lost(amux: Amux) -> None:
    session = amux.create(CRASH)
    session.wait_state("failed")
    session.call("Restart")


def test_signals_about_what_is_not_ours_are_nothing(amux: Amux, server: Server) -> None:
    session = amux.create(WAIT, name="agent")
    report(amux, session, "permission")
    [shown] = server.wait(lambda s: s.shown)
    for number in range(5_000):
        server.tell("NotificationClosed", "uu", number + 1_000, 1)
    server.tell("NotificationClosed", "s", "nonsense")
    server.tell("ActionInvoked", "uu", shown.number, 1)
    server.tell("ActionInvoked", "us", 7, "restart")
    server.tell("ActionInvoked", "us", shown.number, "no such action")
    report(amux, session, "question")
    server.wait(lambda s: len(s.shown) == 2)
    assert server.shown[1].replaces == shown.number
    # The person closed it: there is nothing to replace or to take back.
    server.tell("NotificationClosed", "uu", shown.number, 2)
    report(amux, session, "turn")
    server.wait(lambda s: len(s.shown) == 3)
    assert server.shown[2].replaces == 0
    assert server.withdrawn == []


def terminal(amux: Amux) -> Path:
    """A terminal program that writes down what it was asked to run."""
    path = amux.machine.temporary / "terminal"
    log = amux.machine.temporary / "terminal.log"
    log.unlink(missing_ok=True)
    path.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >{log}.new; mv {log}.new {log}\n')
    path.chmod(0o755)
    return log


@pytest.mark.parametrize(
    ("action", "words"), [("default", ["attach"]), ("attach", ["attach"]), ("log", ["sh", "logs"])]
)
def test_the_terminal_opens(amux: Amux, server: Server, action: str, words: list[str]) -> None:
    log = terminal(amux)
    settings(amux, f'terminal = "{log.with_suffix("")} --title x"\n')
    session = amux.create(CRASH, name="agent")
    shown = server.wait(lambda s: s.shown)[0]
    server.tell("ActionInvoked", "us", shown.number, action)
    until(log.exists)
    run = log.read_text().split()
    assert run[:2] == ["--title", "x"]
    assert session.id in run
    assert all(any(word in part for part in run) for word in words)


def test_the_summary_opens_the_list(amux: Amux, server: Server) -> None:
    log = terminal(amux)
    amux.machine.systemctl("set-environment", f"TERMINAL={log.with_suffix('')}")
    try:
        sessions = [amux.create(["cat"], name=f"s{number}") for number in range(5)]
        # At once: what comes later is no part of it.
        for session in sessions:
            session.call("Kill", "s", "SIGKILL")
        shown = server.wait(lambda s: [one for one in s.shown if "5 failed" in one.title])[0]
        server.tell("ActionInvoked", "us", shown.number, "list")
        until(log.exists)
        assert log.read_text().split()[0] == "-e"
        assert log.read_text().split()[-2:] == ["ls", "--watch"]
    finally:
        amux.machine.systemctl("unset-environment", "TERMINAL")


def test_an_agent_that_failed_is_resumed(amux: Amux, server: Server) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create(name="agent")
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    session.call("Kill", "s", "SIGKILL")
    shown = server.wait(lambda s: s.shown)[0]
    assert "Resume" in shown.actions
    assert "Restart" not in shown.actions
    server.tell("ActionInvoked", "us", shown.number, "resume")
    server.wait(lambda s: not s.standing())
    session.wait_state("running")
    until(lambda: "remembering ['apples']" in session.log())


def test_what_is_pressed_and_cannot_be_done_is_told(amux: Amux, server: Server) -> None:
    settings(amux, 'terminal = "no-such-terminal"\n')
    amux.create(CRASH, name="agent")
    shown = server.wait(lambda s: s.shown)[0]
    server.tell("ActionInvoked", "us", shown.number, "attach")
    server.wait(lambda s: any("no-such-terminal" in one.body for one in s.shown))
    # A program that cannot be started is systemd's to tell of; restart is amuxd's.
    server.tell("ActionInvoked", "us", shown.number, "restart")
    server.wait(lambda s: shown.number in s.withdrawn)
