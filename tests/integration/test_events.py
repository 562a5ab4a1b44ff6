"""The events socket of the real daemon, activated by systemd and made by itself."""

import json
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from agent_fixtures import Agents, state_on_disk
from harness.bus import Signal
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.lines import Lines
from harness.waiting import until


def path_of(amux: Client) -> Path:
    return amux.machine.outside(amux.runtime / "amuxd.sock")


def connect(amux: Client) -> Lines:
    return Lines(path_of(amux))


@pytest.fixture
def lines(amux: Amux) -> Iterator[Lines]:
    with connect(amux) as lines:
        yield lines


def subscribe(lines: Lines) -> None:
    assert lines.ask(type="subscribe") == {"type": "ok"}


def token_of(amux: Client, session: Session) -> str:
    run = session.get("Run")
    return (amux.state / "sessions" / session.id / "runs" / str(run) / "token").read_text().strip()


def environment_of(amux: Client, session: Session) -> dict[str, str]:
    process = psutil.Process(amux.machine.outside_pid(session.get("Pid")))
    # Until it has become the command, it has only what its terminal server has.
    until(lambda: "AMUX_TOKEN" in process.environ())
    return process.environ()


def test_a_subscriber_gets_the_present_and_then_every_change(amux: Amux, lines: Lines) -> None:
    first = amux.create(["cat"], name="first")
    subscribe(lines)
    present = lines.next()
    assert present == {
        "type": "session.status",
        "sessionId": first.id,
        "name": "first",
        "status": "running",
        "reason": "the command runs",
        "run": 1,
    }
    second = amux.create(["sh", "-c", "exit 3"], name="second")
    seen = lines.until(type="terminal.exit")
    assert [message["status"] for message in seen[:-1]] == ["created", "starting", "running", "failed"]
    assert seen[-1] == {"type": "terminal.exit", "sessionId": second.id, "exitCode": 3, "signal": None}
    first.call("Kill", "s", "SIGKILL")
    assert lines.until(type="terminal.exit")[-1]["signal"] == "SIGKILL"
    second.remove()
    assert lines.until(type="session.removed")[-1]["sessionId"] == second.id


def test_a_connection_starts_amuxd_and_the_socket_is_its_owners_alone(amux: Amux) -> None:
    amux.stop()
    assert amux.pid == 0
    path = path_of(amux)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with connect(amux) as lines:
        subscribe(lines)
    assert amux.pid
    # Another user does not get through the directory.
    argv = ["setpriv", "--reuid=65534", "--clear-groups", "test", "-e", str(amux.runtime / "amuxd.sock")]
    assert amux.machine.run(argv, check=False).returncode == 1


def test_the_socket_outlives_a_restart_and_subscribers_are_told_that_it_ends(
    amux: Amux, lines: Lines
) -> None:
    session = amux.create(["cat"])
    subscribe(lines)
    amux.restart()
    assert lines.until(status="suspended")[-1]["sessionId"] == session.id
    assert lines.next() is None
    with connect(amux) as again:
        subscribe(again)
        assert again.next()["status"] == "running"


def test_without_systemd_amuxd_makes_the_socket(embedded: Embedded) -> None:
    embedded.cli("run", "-n", "one", "cat")
    path = path_of(embedded)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with connect(embedded) as lines:
        subscribe(lines)
        assert lines.next()["name"] == "one"


def test_a_leftover_of_an_amuxd_that_was_killed_is_no_obstacle(embedded: Embedded) -> None:
    embedded.cli("ls")
    path = path_of(embedded)
    daemon = next(p for p in embedded.machine.processes() if "amuxd" in p.cmdline()[-1])
    daemon.kill()
    daemon.wait(10)
    assert path.exists()
    embedded.cli("ls")
    with connect(embedded) as lines:
        subscribe(lines)


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


def test_what_was_asked_for_is_not_quoted_at_any_length(amux: Amux, lines: Lines) -> None:
    assert len(lines.ask(type="x" * 60_000)["message"]) == 1024
    subscribe(lines)
    amux.cli("run", "--", "x" * 100_000, check=False)
    failed = lines.until(status="failed")[-1]
    (session,) = amux.sessions().values()
    assert len(failed["reason"]) == len(session["Reason"]) == 1024
    assert failed["reason"].startswith("could not start: ")
    history = amux.state / "sessions" / failed["sessionId"] / "history.jsonl"
    before = history.read_text()
    assert max(map(len, before.splitlines())) < 2048
    amux.restart()
    assert history.read_text() == before


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


GARBAGE = [
    b"hello\n",
    b"[]\n",
    b"\xff\xfe\n",
    b"{" * 30_000 + b"\n",
    b"[" * 60_000 + b"\n",
    b"x" * 70_000,
    b"\n",
    b'{"type":"subscribe"',
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_gets_an_error_and_is_left(amux: Amux, lines: Lines, garbage: bytes) -> None:
    lines.socket.sendall(garbage)
    lines.socket.shutdown(socket.SHUT_WR)
    answer = lines.next()
    assert answer is not None
    assert (answer["type"], answer["code"]) == ("error", "InvalidArgument")
    assert lines.next() is None
    with connect(amux) as other:
        subscribe(other)


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


def memory_of(amux: Amux) -> int:
    return int(psutil.Process(amux.machine.outside_pid(amux.pid)).memory_info().rss)


def test_ten_thousand_wrong_messages_leave_amuxd_as_it_was(amux: Amux) -> None:
    path = path_of(amux)

    def send(number: int) -> None:
        with Lines(path) as lines:
            lines.socket.sendall(GARBAGE[number % len(GARBAGE)])
            if number % 3:
                lines.socket.shutdown(socket.SHUT_WR)
                while lines.next():
                    pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(2_000)))
        before = memory_of(amux)
        list(pool.map(send, range(8_000)))
    with connect(amux) as lines:
        subscribe(lines)
    assert memory_of(amux) - before < 4 * 1024 * 1024


def test_a_reader_that_does_not_read_is_dropped_and_keeps_nobody_waiting(amux: Amux, lines: Lines) -> None:
    session = amux.create(["cat"])
    token = token_of(amux, session)
    subscribe(lines)
    before = memory_of(amux)
    message = "x" * 480
    with connect(amux) as reporter, connect(amux) as reader:
        subscribe(reader)
        for number in range(4_000):
            kind = ("turn", "question")[number % 2]
            report = {"type": "session.report", "sessionId": session.id, "token": token, "kind": kind}
            assert reporter.ask(**report, message=f"{number} {message}") == {"type": "ok"}
            reader.until(type="session.attention", message=f"{number} {message}")
    assert memory_of(amux) - before < 16 * 1024 * 1024
    # What it had not taken was at most a megabyte, and then the connection was gone.
    taken = 0
    while data := lines.socket.recv(1 << 20):
        taken += len(data)
    assert taken < 4_000 * 480


def test_programs_that_only_hold_connections_keep_nobody_from_reporting(amux: Amux) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    with ExitStack() as stack:
        held = [stack.enter_context(connect(amux)) for _ in range(1024)]
        subscribe(held[0])
        assert held[0].next() is not None
        for kind in ("question", "turn"):
            late = stack.enter_context(connect(amux))
            assert late.ask(**report, kind=kind) == {"type": "ok"}
        # Whoever said nothing for the longest had to go, and was told why.
        for number in (1, 2):
            answer = held[number].next()
            assert answer is not None
            assert answer["code"] == "Busy"
            assert held[number].next() is None
        subscribe(held[3])
        assert [held[0].until(kind=kind)[-1]["sessionId"] for kind in ("question", "turn")] == [
            session.id
        ] * 2


def test_more_programs_than_it_takes_are_told_so(amux: Amux) -> None:
    session = amux.create(["cat"])
    report = {"type": "session.report", "sessionId": session.id, "token": token_of(amux, session)}
    with ExitStack() as stack:
        listening = [stack.enter_context(connect(amux)) for _ in range(768)]
        for one in listening:
            subscribe(one)
        with connect(amux) as late:
            assert late.ask(type="subscribe")["code"] == "Busy"
            # It is served all the same.
            assert late.ask(**report, kind="turn") == {"type": "ok"}
            listening.pop().socket.close()
            until(lambda: late.ask(type="subscribe")["type"] != "error")


def test_the_socket_and_the_bus_tell_the_same_in_the_same_order(amux: Amux) -> None:
    """Four front ends at once: two of the socket, two of the bus."""
    with amux.events() as bus, amux.events() as other, connect(amux) as lines, connect(amux) as more:
        subscribe(lines)
        subscribe(more)
        sessions = [amux.create(["sh", "-c", "exit $((RANDOM % 2))"], name=f"s{n}") for n in range(12)]
        agent = amux.create(["cat"], name="agent")
        amux.cli("report", "turn", "done", env=environment_of(amux, agent))
        for session in sessions:
            session.wait_state("completed", "failed")
        agent.stop()
        last = {"type": "terminal.exit", "sessionId": agent.id}
        told = [lines.until(**last), more.until(**last)]
        for events in (bus, other):
            events.wait(lambda event: event.member == "SessionExited" and event.body[1] == agent.id)
            told.append([message for event in events.all if (message := _as_message(event))])
    # That a session is there is told on the bus by its object.
    told = [[m for m in one if m.get("status") != "created"] for one in told]
    assert told[0] == told[1] == told[2] == told[3]
    assert len([m for m in told[0] if m["type"] == "terminal.exit"]) == 13


def _as_message(event: Signal) -> dict[str, object] | None:
    if event.member == "SessionStateChanged":
        _, key, name, _, new, reason, run = event.body
        return {
            "type": "session.status",
            "sessionId": key,
            "name": name,
            "status": new,
            "reason": reason,
            "run": run,
        }
    if event.member == "SessionExited":
        _, key, _, code, signal, _ = event.body
        return {
            "type": "terminal.exit",
            "sessionId": key,
            "exitCode": None if code < 0 else code,
            "signal": signal or None,
        }
    if event.member == "AttentionChanged":
        return {
            "type": "session.attention",
            "sessionId": event.body[1],
            "kind": event.body[3],
            "message": event.body[4],
        }
    return None


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is missing")
def test_a_peer_of_another_user_is_turned_away(embedded: Embedded) -> None:
    """The directory keeps others out already; here it is opened to see that the socket does too."""
    embedded.cli("ls")
    path = path_of(embedded)
    for directory in (path.parent, path.parent.parent):
        directory.chmod(0o755)
    path.chmod(0o666)
    ask = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "print(s.makefile().readline())"
    )
    stranger = ["setpriv", "--reuid=65534", "--clear-groups"]
    result = embedded.machine.run([*stranger, "/usr/bin/python3", "-c", ask, embedded.runtime / "amuxd.sock"])
    answers = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert [answer["code"] for answer in answers] == ["AccessDenied"]


def test_report_in_a_session_takes_what_the_session_has(amux_everywhere: Amux) -> None:
    """As a hook of an agent would call it: from within, with nothing but its environment."""
    amux = amux_everywhere
    program = amux.bindir / "amux"
    session = amux.create(["sh", "-c", f"{program} report permission 'may I?'; echo said $?; cat"])
    with amux.events() as events:
        if not session.get("Attention"):
            events.wait(lambda event: event.member == "AttentionChanged")
    assert (session.get("Attention"), session.get("AttentionMessage")) == ("permission", "may I?")
    until(lambda: "said 0" in session.log())


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "says"),
    [
        ([], {}, 2, "usage: amux report"),
        (["a", "b", "c"], {}, 2, "usage: amux report"),
        (["hunger"], {}, 2, "there is no kind 'hunger'"),
        (["turn"], {"AMUX_TOKEN": "x"}, 1, "is not that of"),
        (["turn"], {"AMUX_SESSION_ID": "nobody"}, 3, "there is no session 'nobody'"),
        (["turn"], {"AMUX_SOCKET": "/nowhere/amuxd.sock"}, 5, "cannot be reached at /nowhere/amuxd.sock"),
        (["turn"], {"AMUX_SESSION_ID": ""}, 1, "this is no session of amux"),
        (["--hook", "hunger"], {}, 1, "there is no kind"),
        (["--hook", "turn"], {"AMUX_SESSION_ID": ""}, 0, ""),
    ],
)
def test_report_says_what_is_wrong(
    amux: Amux, arguments: list[str], changes: dict[str, str], code: int, says: str
) -> None:
    session = amux.create(["cat"], name="agent")
    result = amux.cli(
        "report", *arguments, check=False, env=environment_of(amux, session) | changes, input=""
    )
    assert result.returncode == code, result.stderr
    assert says in result.stderr
    assert result.stderr.count("\n") <= 1


@pytest.mark.parametrize(
    ("arguments", "standard_input", "message"),
    [
        (["permission"], '{"tool_name":"Bash","tool_input":{"command":"make"}}', "Bash: make"),
        (["question"], '{"message":"which one? — ü 🎉"}', "which one? — ü 🎉"),
        (["turn", '{"last-assistant-message":"done \\"so\\""}'], "", 'done "so"'),
        (["turn"], '{"last_assistant_message":"done"}', "done"),
        (["custom"], "no JSON", "no JSON"),
        (["custom"], "[1]", ""),
        (["bell"], "", ""),
    ],
)
def test_report_understands_what_agents_tell_their_hooks(
    amux: Amux, arguments: list[str], standard_input: str, message: str
) -> None:
    session = amux.create(["cat"])
    amux.cli("report", "--hook", *arguments, env=environment_of(amux, session), input=standard_input)
    assert (session.get("Attention"), session.get("AttentionMessage")) == (arguments[0], message)


def test_report_without_amux_socket_finds_it(amux: Amux) -> None:
    session = amux.create(["cat"])
    environment = environment_of(amux, session)
    environment["AMUX_SOCKET"] = ""
    amux.cli("report", "turn", env=environment)
    assert session.get("Attention") == "turn"


def test_report_imports_next_to_nothing(amux: Amux) -> None:
    session = amux.create(["cat"])
    code = (
        "import sys; from amuxd.cli import main; sys.argv[1:] = ['report', 'turn']\n"
        "try: main()\n"
        "except SystemExit: print(sorted(sys.modules))"
    )
    result = amux.machine.run(
        [sys.executable, "-S", "-c", code], env={**environment_of(amux, session), **_path()}
    )
    for heavy in ("click", "jeepney", "asyncio", "json", "socket", "typing", "pathlib", "amuxd.paths"):
        assert f"'{heavy}'" not in result.stdout
    assert session.get("Attention") == "turn"


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2])}


def test_the_hooks_of_each_agent_are_printed(amux: Amux) -> None:
    assert amux.cli("hooks", "claude").stdout.startswith("--settings '{")
    assert "ToolPermission" in amux.cli("hooks", "gemini").stdout
    unknown = amux.cli("hooks", "nobody", check=False)
    assert unknown.returncode == 2
    assert "aider, claude, codex, gemini, opencode" in unknown.stderr
