"""The events socket: what is asked of amuxd there, and who is believed."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import socket

import pytest
from agent_fixtures import Agents, state_on_disk
from events_fixtures import (
    connect,
    environment_of,
    lines,  # noqa: F401
    subscribe,
    token_of,
)
from harness.client import Session
from harness.daemon import Amux
from harness.lines import Lines
from harness.waiting import until


def test_a_report_is_believed_with_the_token_of_the_present_run(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"], name="agent")
    token = token_of(amux, session)
    given = environment_of(amux, session)
    assert (given["AMUX_SESSION_ID"], given["AMUX_TOKEN"]) == (session.id, token)
    assert given["AMUX_SOCKET"] == str(amux.runtime / "amuxd.sock")
    report = {"type": "session.report", "sessionId": session.id, "kind": "permission", "message": "rm -rf /"}
    assert lines.ask(**report, token="guessed")["code"] == "AccessDenied"
    assert lines.ask(**report, token="ü")["code"] == "AccessDenied"
    assert session.get("Attention") == ""
    with amux.events() as events:
        assert lines.ask(**report, token=token) == {"type": "ok"}
        told = events.wait(lambda event: event.member == "AttentionChanged")
    assert told.body[1:] == (session.id, "agent", "permission", "rm -rf /")
    assert session.get("AttentionMessage") == "rm -rf /"
    assert amux.manager.get("Attention") == [session.id]
    session.call("Kill", "s", "SIGKILL")
    session.wait_state("failed")
    # The dead wait for nobody, whatever they said last.
    assert session.get("Attention") == ""
    assert lines.ask(**report, token=token)["code"] == "InvalidTransition"
    session.call("Restart")
    assert lines.ask(**report, token=token)["code"] == "AccessDenied"
    assert token_of(amux, session) != token


def test_the_token_of_an_adopted_run_goes_on_to_count(amux: Amux) -> None:
    session = amux.create(["cat"])
    token = environment_of(amux, session)["AMUX_TOKEN"]
    report = {"type": "session.report", "sessionId": session.id, "token": token}
    amux.kill()
    until(lambda: amux.pid)
    with connect(amux) as lines:
        assert lines.ask(**report, kind="question", message="which?") == {"type": "ok"}
    amux.restart()
    # And what it waits for is no less true after a restart of amuxd.
    assert (session.get("Attention"), session.get("AttentionMessage")) == ("question", "which?")
    assert session.state == "running"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"type": "session.report", "sessionId": "nobody", "kind": "turn"}, "NoSuchSession"),
        ({"type": "session.report"}, "InvalidArgument"),
        ({"type": "session.report", "sessionId": 7}, "InvalidArgument"),
        ({"type": "session.resume", "sessionId": "nobody"}, "NoSuchSession"),
        ({"type": "sing"}, "InvalidArgument"),
        ({"type": ["subscribe"]}, "InvalidArgument"),
        ({}, "InvalidArgument"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_and_the_next_one_served(
    lines: Lines, request_: dict[str, object], code: str
) -> None:
    answer = lines.ask(**request_)
    assert (answer["type"], answer["code"]) == ("error", code)
    subscribe(lines)


def test_what_cannot_be_reported_or_resumed(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    assert lines.ask(**report, kind="hunger")["code"] == "InvalidArgument"
    assert lines.ask(**report, kind="turn", message=7)["code"] == "InvalidArgument"
    ended = amux.create(["true"])
    ended.wait_state("completed")
    assert lines.ask(type="session.resume", sessionId=ended.id)["code"] == "NotResumable"
    # Half a character, a control character and far too much: it is kept as a line that can be shown.
    assert lines.ask(**report, kind="custom", message="a\ud800\x1b[31m\n" + "x" * 5000) == {"type": "ok"}
    message = session.get("AttentionMessage")
    assert message.startswith("a? [31m xxx")
    assert len(message) == 500


def test_only_what_may_be_an_id_becomes_the_conversation_of_an_agent(amux: Amux, lines: Lines) -> None:
    agents = Agents(amux)
    agents.configure()
    plain, agent = amux.create(["cat"]), agents.create()

    def tell(session: Session, message: str) -> dict[str, object]:
        report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
        return lines.ask(**report, kind="conversation", message=message)

    assert "has no conversation: it is no agent" in str(tell(plain, "abc")["message"])
    before = state_on_disk(amux, agent)["conversation_id"]
    for nonsense in ("", "--dangerous", "a b", "a\n", "x" * 129):
        assert tell(agent, nonsense)["code"] == "InvalidArgument"
    assert state_on_disk(amux, agent)["conversation_id"] == before
    assert tell(agent, "abc") == {"type": "ok"}
    assert state_on_disk(amux, agent)["conversation_id"] == "abc"
    assert agent.get("Attention") == ""


def test_a_conversation_is_resumed_over_the_socket(amux: Amux, lines: Lines) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create()
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    session.stop()
    assert lines.ask(type="session.resume", sessionId=session.id) == {"type": "ok"}
    assert (session.state, session.get("Run")) == ("running", 2)
    until(lambda: "remembering ['apples']" in session.log())
    assert lines.ask(type="session.resume", sessionId=session.id)["code"] == "InvalidTransition"


def test_what_a_front_end_that_leaves_has_asked_for_is_done(amux: Amux) -> None:
    agents = Agents(amux)
    agents.configure()
    session = agents.create()
    session.send("apples")
    until(lambda: "heard 1: apples" in session.log())
    session.stop()
    with connect(amux) as lines, amux.events() as events:
        # What it is told, and does not read, tells amuxd that it left.
        subscribe(lines)
        lines.send(type="session.resume", sessionId=session.id)
        events.wait(lambda event: event.member == "SessionStateChanged" and event.body[4] == "starting")
    session.wait_state("running")
    until(lambda: "remembering ['apples']" in session.log())


def test_several_requests_at_once_are_answered_in_their_order(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    kinds = ["turn", "nonsense", "question", "working"] * 25
    requests = [json.dumps({**report, "kind": kind}) for kind in kinds]
    lines.socket.sendall("".join(request + "\n" for request in requests).encode())
    lines.socket.shutdown(socket.SHUT_WR)
    answers = [lines.next() for _ in requests]
    assert [a and a["type"] == "ok" for a in answers] == [kind != "nonsense" for kind in kinds]
    assert lines.next() is None
    assert session.get("Attention") == ""


def test_requests_are_heard_wherever_their_bytes_are_cut(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    texts = ["ü 🎉 — \u2028", 'a "quoted" \\ one', "x"]
    wanted = [{**report, "kind": "custom", "message": text} for text in texts]
    data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in wanted).encode()
    for byte in data:
        lines.socket.sendall(bytes([byte]))
    assert [lines.next() for _ in texts] == [{"type": "ok"}] * 3
    # Two and a half at once, and then the rest.
    middle = data.rindex(b"custom")
    lines.socket.sendall(data[:middle])
    assert [lines.next() for _ in texts[1:]] == [{"type": "ok"}] * 2
    lines.socket.sendall(data[middle:])
    assert lines.next() == {"type": "ok"}
    assert session.get("AttentionMessage") == "x"


def test_who_does_not_wait_for_the_answer_is_heard(amux: Amux) -> None:
    session = amux.create(["cat"])
    with amux.events() as events, connect(amux) as lines:
        token = token_of(amux, session)
        lines.send(type="session.report", sessionId=session.id, token=token, kind="turn", message="bye")
        lines.socket.close()
        events.wait(lambda event: event.member == "AttentionChanged" and event.body[4] == "bye")
