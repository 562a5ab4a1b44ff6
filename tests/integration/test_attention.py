"""What a session waits for, told by its hooks and its output, and when it no longer does."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from pathlib import Path

import pytest
from agent_fixtures import Agents
from attention_fixtures import (
    events,  # noqa: F401
    go_on,
    hear,
    pass_over,
    report,
    said,
    script,
)
from harness.bus import Events
from harness.daemon import Amux
from harness.waiting import until


def test_a_bell_calls_and_output_after_it_ends_the_call(amux: Amux, events: Events) -> None:
    session = script(amux, r"read x <&3; printf '\a'; read x <&3; echo on; cat")
    go_on(amux)
    rang = said(events, "bell")
    assert rang.body[1:] == (session.id, "agent", "bell", "")
    assert (session.get("Attention"), amux.manager.get("Attention")) == ("bell", [session.id])
    assert "running (waiting: bell)" in amux.cli("ls").stdout
    # The drawing of the question is over by then.
    pass_over(rang.received)
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


def test_a_hook_that_never_comes_back_holds_nothing_for_ever(amux: Amux, events: Events) -> None:
    """Esc at a permission prompt fires no hook; that the agent prints again is what tells."""
    session = script(amux, "while read x <&3; do echo working; done")
    report(amux, session, "permission", "rm?")
    told = said(events, "permission")
    pass_over(told.received)
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
    hear(session)
    pass_over(told.received)
    go_on(amux)
    until(lambda: "done" in session.log())
    hear(session)
    report(amux, session, "custom", "the last")
    said(events, "custom")
    assert [event.body[3] for event in events.named("AttentionChanged")] == ["turn", "custom"]


def test_one_whose_process_was_parked_asks_for_nothing(amux: Amux) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create()
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    report(amux, session, "permission")
    session.call("Park")
    until(lambda: session.get("Attention") == "")
    assert (session.state, session.get("Parked")) == ("running", True)
    with pytest.raises(Exception, match="is parked: nothing of it runs that could report"):
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
