"""What a session waits for, told by its hooks and its output, and when it no longer does."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_fixtures import Agents
from harness import real_agents
from harness.bus import Events, Signal
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

from amuxd import hooks


@pytest.fixture
def events(amux: Amux) -> Iterator[Events]:
    with amux.events() as events:
        yield events


def said(events: Events, kind: str, after: Signal | None = None) -> Signal:
    def is_it(event: Signal) -> bool:
        return event.member == "AttentionChanged" and event.body[3] == kind

    return events.wait(is_it, after=after)


def script(amux: Amux, text: str) -> Session:
    """Goes on, step by step, with each line that it is sent on its pipe, which draws nothing."""
    path = amux.machine.temporary / "go-on"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    prelude = f"exec 3<>{path}; "
    return amux.create(["sh", "-c", prelude + text], name="agent")


def go_on(amux: Amux) -> None:
    with (amux.machine.temporary / "go-on").open("w") as pipe:
        pipe.write("\n")


def report(amux: Amux, session: Session, kind: str, message: str = "") -> None:
    token = amux.state / "sessions" / session.id / "runs" / str(session.get("Run")) / "token"
    environment = {
        "AMUX_SESSION_ID": session.id,
        "AMUX_TOKEN": token.read_text().strip(),
        "AMUX_SOCKET": str(amux.runtime / "amuxd.sock"),
    }
    amux.cli("report", kind, message, env=environment)


def test_a_bell_calls_and_output_after_it_ends_the_call(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; read x <&3; echo on; cat")
    go_on(amux)
    rang = said(events, "bell")
    assert rang.body[1:] == (session.id, "agent", "bell", "")
    assert (session.get("Attention"), amux.manager.get("Attention")) == ("bell", [session.id])
    assert "running (waiting: bell)" in amux.cli("ls").stdout
    # The drawing of the question is over by then.
    moment = rang.received
    until(lambda: time.monotonic() > moment + 2.2, timeout=5)
    go_on(amux)
    said(events, "", after=rang)
    assert (session.get("Attention"), amux.manager.get("Attention")) == ("", [])
    assert len(events.named("AttentionChanged")) == 2


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (r"\033]9;come here\a", "come here"),
        (r"\033]777;notify;Build;it failed\033\\", "Build: it failed"),
        (r"\033]0;a title\a\033]9;4;1;50\a\a", ""),
    ],
)
def test_what_the_output_says_is_the_message(amux: Amux, events: Events, output: str, message: str) -> None:
    session = script(amux, f"printf '{output}'; cat")
    said(events, "bell")
    assert session.get("AttentionMessage") == message


def test_titles_and_progress_call_nobody(amux: Amux, events: Events) -> None:
    session = script(amux, r"printf '\033]0;a title\a\033]9;4;1;50\a'; read x <&3; printf '\a'; cat")
    until(lambda: "50" in session.log())
    go_on(amux)
    said(events, "bell")
    assert len(events.named("AttentionChanged")) == 1


def test_a_title_that_blinks_is_no_answer(amux: Amux, events: Events) -> None:
    session = script(amux, r"while read x <&3; do printf '\033]0;[ ! ] Action Required\a\033[?25h'; done")
    report(amux, session, "permission", "rm?")
    told = said(events, "permission")
    pass_over(told.received)
    log = Path(session.get("LogPath"))
    before = log.stat().st_size
    go_on(amux)
    until(lambda: log.stat().st_size > before)
    until(lambda: int(log.with_name("heard").read_text()) == log.stat().st_size)
    assert session.get("Attention") == "permission"
    amux.stop()
    size = log.stat().st_size
    go_on(amux)
    until(lambda: log.stat().st_size > size)
    amux.start()
    until(lambda: int(log.with_name("heard").read_text()) == log.stat().st_size)
    assert session.get("Attention") == "permission"


def test_an_answer_that_is_sent_ends_the_wait(amux: Amux, events: Events) -> None:
    session = amux.create(["sh", "-c", "stty -echo; cat >/dev/null"])
    report(amux, session, "question", "which?")
    assert "waiting: question" in amux.cli("ls").stdout
    session.send("this one")
    said(events, "")
    assert session.get("AttentionMessage") == ""


def test_a_hook_that_never_comes_back_holds_nothing_for_ever(amux: Amux, events: Events) -> None:
    """Esc at a permission prompt fires no hook; that the agent prints again is what tells."""
    session = script(amux, "while read x <&3; do echo working; done")
    report(amux, session, "permission", "rm?")
    told = said(events, "permission")
    until(lambda: time.monotonic() > told.received + 2.2, timeout=5)
    go_on(amux)
    said(events, "", after=told)
    report(amux, session, "permission", "again")
    report(amux, session, "working")
    assert session.get("Attention") == ""


def test_a_bell_does_not_replace_what_the_agent_said(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; read x <&3; printf '\a\033]9;done\a'; cat")
    report(amux, session, "turn", "finished")
    told = said(events, "turn")
    go_on(amux)
    until(lambda: "\a" in session.log())
    until(lambda: time.monotonic() > told.received + 2.2, timeout=5)
    go_on(amux)
    until(lambda: "done" in session.log())
    report(amux, session, "custom", "the last")
    said(events, "custom")
    assert [event.body[3] for event in events.named("AttentionChanged")] == ["turn", "custom"]


def test_who_comes_to_look_has_not_answered(amux: Amux, events: Events) -> None:
    """A program that draws its screen anew for another size has not gone on."""
    session = script(amux, "trap 'echo drawn anew' WINCH; echo ready; while :; do read x <&3; done")
    until(lambda: "ready" in session.log())
    report(amux, session, "permission", "rm?")
    told = said(events, "permission")
    until(lambda: time.monotonic() > told.received + 2.2, timeout=5)
    with amux.terminal("attach", session.id) as terminal:
        terminal.expect("drawn anew")
        until(lambda: session.get("Attached") == 1)
        assert session.get("Attention") == "permission"
        terminal.type("\x02d")
        terminal.wait()
    until(lambda: session.get("Attached") == 0)
    assert session.get("Attention") == "permission"


@pytest.mark.parametrize(("columns", "keys"), [(120, ""), (80, "\x02%")], ids=["resized", "split"])
def test_who_arranges_their_windows_has_not_answered(
    amux: Amux, events: Events, columns: int, keys: str
) -> None:
    session = script(amux, "trap 'echo drawn anew' WINCH; echo ready; while :; do read x <&3; done")
    until(lambda: "ready" in session.log())
    log = Path(session.get("LogPath"))
    heard = log.with_name("heard")
    with amux.terminal("attach", session.id) as terminal:
        terminal.expect("drawn anew")
        until(lambda: session.get("Attached") == 1)
        report(amux, session, "permission", "rm?")
        told = said(events, "permission")
        until(lambda: time.monotonic() > told.received + 2.2, timeout=5)
        before = log.stat().st_size
        terminal.resize(columns, 24)
        terminal.type(keys)
        until(lambda: log.stat().st_size > before)
        # It marks what it has come to a decision about.
        until(lambda: int(heard.read_text()) > before)
        assert session.get("Attention") == "permission"


# Draws itself anew each time that it is told whether somebody looks at it, or is typed three letters.
LOOKED_AT = r"""stty -icanon -echo; printf '\033[?1004h'
while [ "$(dd bs=3 count=1 2>/dev/null)" ]; do echo drawn anew; done"""


def test_who_changes_to_another_window_has_not_answered(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    session = script(amux, LOOKED_AT)
    log = Path(session.get("LogPath"))
    heard = log.with_name("heard")
    with amux.events() as events, amux.terminal("attach", session.id) as terminal:
        until(lambda: session.get("Attached") == 1)
        report(amux, session, "permission", "rm?")
        told = said(events, "permission")
        for report_of_focus in ("\x1b[O", "\x1b[I"):
            moment = time.monotonic()
            until(lambda moment=moment: time.monotonic() > moment + 2.2, timeout=5)
            before = log.stat().st_size
            terminal.type(report_of_focus)
            until(lambda before=before: log.stat().st_size > before)
            until(lambda before=before: int(heard.read_text()) > before)
            assert session.get("Attention") == "permission"
        moment = time.monotonic()
        until(lambda: time.monotonic() > moment + 2.2, timeout=5)
        terminal.type("yes")
        said(events, "", after=told)


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
    log = amux.state / "sessions" / session.id / "runs/1/output.log"
    go_on(amux)
    until(lambda: "\a" in log.read_text())
    until(lambda: time.monotonic() > told.received + 2.5, timeout=5)
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


def test_an_answer_of_which_nothing_is_printed_ends_the_wait(amux: Amux, events: Events) -> None:
    session = script(amux, r"stty -echo; read x <&3; printf 'Password: \a'; read y; cat")
    go_on(amux)
    with amux.terminal("attach", session.id) as terminal:
        terminal.expect("Password")
        rang = said(events, "bell")
        amux.restart()
        assert session.get("Attention") == "bell"
        size = len(session.log())
        terminal.type("secret\r")
        said(events, "", after=rang)
    assert len(session.log()) == size


def pass_over(told: float) -> None:
    """What comes sooner after it counts as a part of it."""
    until(lambda: time.monotonic() > told + 2.2, timeout=5)


def test_a_key_of_which_nothing_is_printed_ends_the_wait(amux_everywhere: Amux) -> None:
    amux = amux_everywhere
    keys = amux.machine.temporary / "keys"
    keys.unlink(missing_ok=True)
    with amux.events() as events:
        session = script(amux, rf"stty -echo -icanon; printf '\033[?1004h\a'; exec cat >{keys}")
        rang = said(events, "bell")
        with amux.terminal("attach", session.id) as terminal:
            until(lambda: session.get("Attached") == 1)
            terminal.expect("detaches")
            pass_over(time.monotonic())
            # That somebody looks away and comes back is read as well, and is no answer.
            terminal.type("\x1b[O")
            pass_over(time.monotonic())
            assert session.get("Attention") == "bell"
            size = len(session.log())
            terminal.type("x")
            said(events, "", after=rang)
        assert len(session.log()) == size
        assert keys.read_text().endswith("x")


@pytest.mark.parametrize(
    ("asks_for", "typed"),
    [("1000h\\033[?1006h", "\x1b[<0;5;5M\x1b[<0;5;5m"), ("1004h", "x")],
    ids=["mouse", "older"],
)
def test_what_may_be_no_key_is_no_answer(amux: Amux, events: Events, asks_for: str, typed: str) -> None:
    """The mouse that passes over it; or that somebody looks, in a terminal which does not tell of that."""
    keys = amux.machine.temporary / "keys"
    keys.unlink(missing_ok=True)
    session = script(amux, rf"stty -echo -icanon; printf '\033[?{asks_for}\a'; exec cat >{keys}")
    rang = said(events, "bell")
    if typed == "x":
        _as_if_opened_by_an_older_amuxd(amux, session)
    with amux.terminal("attach", session.id) as terminal:
        until(lambda: session.get("Attached") == 1)
        terminal.expect("detaches")
        pass_over(time.monotonic())
        terminal.type(typed)
        until(lambda: keys.exists() and keys.read_text().endswith(typed[-1]))
        pass_over(time.monotonic())
        assert session.get("Attention") == "bell"
        session.send("an answer")
        said(events, "", after=rang)


def test_a_terminal_of_an_older_amuxd_is_heard_and_watched(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; read x <&3; echo on; read x")
    _as_if_opened_by_an_older_amuxd(amux, session)
    amux.restart()
    with amux.terminal("attach", session.id) as terminal:
        until(lambda: session.get("Attached") == 1)
        terminal.expect("detaches")
        pass_over(time.monotonic())
        go_on(amux)
        rang = said(events, "bell")
        pass_over(rang.received)
        go_on(amux)
        over = said(events, "", after=rang)
        report(amux, session, "question")
        said(events, "question", after=over)
        terminal.type("a line\r")
        session.wait_state("completed")
        assert session.get("Attention") == ""


def _as_if_opened_by_an_older_amuxd(amux: Amux, session: Session) -> None:
    """It told of who attaches and leaves, and of nothing else."""
    socket = str(amux.runtime / "tmux" / f"{session.id}.sock")
    for what in (
        "set-hook -gu pane-focus-in",
        "set-hook -gu pane-focus-out",
        "set-hook -gu window-layout-changed",
    ):
        amux.machine.run(["tmux", "-S", socket, *what.split()])
    amux.machine.run(["tmux", "-S", socket, "set", "-gu", "@amux-focus-is-told"])


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


def test_one_whose_process_was_parked_waits_for_nobody(amux: Amux) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create()
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    report(amux, session, "turn")
    session.call("Park")
    until(lambda: session.get("Attention") == "")
    assert (session.state, session.get("Parked")) == ("running", True)
    with pytest.raises(Exception, match="is parked, and waits for nobody"):
        report(amux, session, "permission")
    assert session.get("Attention") == ""


def test_what_cannot_be_written_is_refused_and_logged(amux: Amux) -> None:
    session = script(amux, r"read x <&3; printf '\a'; cat")
    file = amux.state / "sessions" / session.id / "state.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(Exception, match="could not be written"):
        report(amux, session, "turn")
    go_on(amux)
    until(lambda: any("cannot be written" in line["MESSAGE"] for line in amux.journal()))
    assert session.get("Attention") == ""


def test_a_flood_is_heard_at_its_end(amux: Amux, events: Events) -> None:
    session = script(
        amux, r"printf 'x\a'; head -c 3000000 /dev/zero | tr '\0' x; printf '\033]9;after the flood\a'; cat"
    )
    until(lambda: session.get("AttentionMessage") == "after the flood", timeout=60)


def test_a_log_that_was_put_aside_is_heard_to_its_end(amux: Amux) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text('[sessions]\nlog_cap = "4M"\n')
    amux.manager.call("Reload")
    session = script(
        amux, r"head -c 6000000 /dev/zero | tr '\0' x; read x <&3; printf '\033]9;in the new one\a'; cat"
    )
    log = Path(session.get("LogPath"))
    # Six megabytes through a terminal, on a machine that may have other things to do.
    until(lambda: log.with_name("output.log.1").exists(), timeout=60)
    go_on(amux)
    until(lambda: session.get("AttentionMessage") == "in the new one")


def test_the_real_claude_takes_the_hooks_and_calls_them(amux: Amux, events: Events) -> None:
    """Without a login its turn ends with a failure, and the hook given for this one run tells so."""
    claude = real_agents.directory() / "claude"
    amux_program = str(amux.bindir / "amux")
    command = shlex.join([str(claude), *hooks.arguments("claude", amux_program), "-p", "hi"])
    session = amux.create(["sh", "-c", f"{command}; cat"], env=_for_agents(amux))
    told = events.wait(
        lambda event: event.member == "AttentionChanged" and event.body[3] == "turn", timeout=60
    )
    assert told.body[1] == session.id
    assert "Please run /login" in told.body[4]
    assert not (amux.machine.home / ".claude/settings.json").exists()


def test_the_real_claude_shows_its_first_screen(amux: Amux) -> None:
    claude = real_agents.directory() / "claude"
    session = amux.create([str(claude), *hooks.arguments("claude")], env=_for_agents(amux))
    until(lambda: "Welcome" in session.log(), timeout=60)
    session.remove(force=True)


def test_the_real_codex_takes_its_settings(amux: Amux) -> None:
    codex = real_agents.directory() / "codex"
    session = amux.create([str(codex), *hooks.arguments("codex")], env=_for_agents(amux))
    until(lambda: "Sign in" in session.call("Capture", "u", 0), timeout=60)
    session.remove(force=True)


def _for_agents(amux: Amux) -> dict[str, str]:
    node = Path(shutil.which("node") or "/usr/bin/node").parent
    return {
        "PATH": f"{node}:{amux.environment['PATH']}",
        "HOME": str(amux.machine.home),
        # What they would start of a desktop on the bus is not theirs to end.
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null",
    }
