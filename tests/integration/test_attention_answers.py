"""What is an answer to a session that waits, printed or not, and what only looks like one."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import time
from pathlib import Path

import pytest
from attention_fixtures import (
    events,  # noqa: F401
    go_on,
    pass_over,
    report,
    said,
    script,
)
from harness.bus import Events
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until


def test_a_title_that_blinks_is_no_answer(amux: Amux, events: Events) -> None:
    session = script(amux, r"while read x <&3; do printf '\033]0;[ ! ] Action Required\a\033[?25h'; done")
    report(amux, session, "permission", "rm?")
    told = said(events, "permission")
    pass_over(told.received)
    log = Path(session.get("LogPath"))
    before = log.stat().st_size
    go_on(amux)
    until(lambda: log.stat().st_size > before)
    until(lambda: int(log.with_name("heard").read_text().split()[0]) == log.stat().st_size)
    assert session.get("Attention") == "permission"
    amux.stop()
    size = log.stat().st_size
    go_on(amux)
    until(lambda: log.stat().st_size > size)
    amux.start()
    until(lambda: int(log.with_name("heard").read_text().split()[0]) == log.stat().st_size)
    assert session.get("Attention") == "permission"


def test_an_answer_that_is_sent_ends_the_wait(amux: Amux, events: Events) -> None:
    session = amux.create(["sh", "-c", "stty -echo; cat >/dev/null"])
    report(amux, session, "question", "which?")
    assert "waiting: question" in amux.cli("ls").stdout
    session.send("this one")
    said(events, "")
    assert session.get("AttentionMessage") == ""


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
        until(lambda: int(heard.read_text().split()[0]) > before)
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
            until(lambda before=before: int(heard.read_text().split()[0]) > before)
            assert session.get("Attention") == "permission"
        moment = time.monotonic()
        until(lambda: time.monotonic() > moment + 2.2, timeout=5)
        terminal.type("yes")
        said(events, "", after=told)


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
