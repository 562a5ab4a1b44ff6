"""Agents: what is started with which conversation, and how its own choice is found out."""

import json
import os
import pty
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd import config, conversations, hooks
from amuxd.agents import BUILT_IN, CONVERSATION, PLACEHOLDERS, Agent, Filling, OnExit, fill
from amuxd.hosts import LaunchRefused
from amuxd.paths import amux_program
from amuxd.records import RunState, Session
from amuxd.registry import Entry
from amuxd.states import State

ID = "0b9bff9c-6f4e-4c0c-a3c5-31a1f6c7f6a4"
FILLING = Filling(ID, "k3x9qa", "a name", "/work", "/bin/zsh")


def entry(
    agent: Agent | None, conversation: str = "", state: State = State.RUNNING, **known: object
) -> Entry:
    session = Session(
        "k3x9qa", "a name", ["--model", "x"], "/no/such/directory", 1, agent=agent.name if agent else ""
    )
    standing = RunState("k3x9qa", state, 1, 1, 1, "boot", "", conversation_id=conversation)
    return Entry(session, replace(standing, **known), agent=agent)  # type: ignore[arg-type]


def command(subject: Entry, resuming: bool) -> list[str]:
    """Without what makes it report, which is the same for every run of the agent."""
    words = conversations.plan(subject, resuming).session.command
    assert subject.agent is not None
    reporting = hooks.arguments(subject.agent.name, amux_program()) if subject.agent.attention else []
    assert words[1 : len(reporting) + 1] == reporting
    return [words[0], *words[len(reporting) + 1 :]]


@pytest.mark.parametrize(
    ("name", "started", "resumed"),
    [
        ("claude", ["claude", "--session-id", ID], ["claude", "--session-id", ID]),
        ("codex", ["codex"], ["codex", "resume", ID]),
        ("gemini", ["gemini", "--session-id", ID], ["gemini", "--session-id", ID]),
        ("opencode", ["opencode"], ["opencode", "--session", ID]),
        (
            "aider",
            ["aider", "--chat-history-file", f".aider.chat.history.{ID}.md"],
            ["aider", "--chat-history-file", f".aider.chat.history.{ID}.md", "--restore-chat-history"],
        ),
    ],
)
def test_what_is_built_in(
    name: str, started: list[str], resumed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: ID)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command(entry(BUILT_IN[name]), False) == [*started, "--model", "x"]
    assert command(entry(BUILT_IN[name], ID, said=False), True) == [*resumed, "--model", "x"]


@pytest.mark.parametrize(
    ("name", "variable", "value", "file", "message"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", "config", f"config/projects/-work/{ID}.jsonl", '"uuid":"1"'),
        ("claude", "", "", f".claude/projects/-work/{ID}.jsonl", '"uuid":"1"'),
        (
            "gemini",
            "GEMINI_CLI_HOME",
            "of",
            f"of/.gemini/tmp/work/chats/session-2026-01-02T03-04-{ID[:8]}.jsonl",
            '"type":"gemini"',
        ),
        (
            *("gemini", "", "", f".gemini/tmp/work/chats/session-2026-01-02T03-04-{ID[:8]}.json"),
            # Earlier ones write it for people.
            '"type": "gemini"',
        ),
    ],
)
def test_a_conversation_that_has_begun_goes_on(
    tmp_path: Path, name: str, variable: str, value: str, file: str, message: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f'{{"type":"mode"}}\n{{"parentUuid":null,{message},"message":{{}}}}\n')
    environment = {"HOME": str(tmp_path)} | ({variable: str(tmp_path / value)} if variable else {})
    subject = entry(BUILT_IN[name], ID)
    subject.session = replace(subject.session, environment=environment)
    assert command(subject, True)[:3] == [name, "--resume", ID]
    subject.state = replace(subject.state, conversation_id=str(uuid.uuid4()), said=False)
    assert command(subject, True)[:2] == [name, "--session-id"]


def of_claude(home: Path, text: str) -> tuple[Entry, Path]:
    """With this in the file of its conversation."""
    file = home / f".claude/projects/-work/{ID}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    subject = entry(BUILT_IN["claude"], ID)
    subject.session = replace(subject.session, environment={"HOME": str(home)})
    return subject, file


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (True, ""),
        # It was begun by an amuxd that did not look.
        (None, ", and whether anything was said in it is not known"),
    ],
)
@pytest.mark.parametrize("name", ["claude", "gemini"])
def test_what_was_said_and_is_kept_no_more_is_not_begun_anew(
    tmp_path: Path, name: str, said: bool | None, why: str
) -> None:
    subject = entry(BUILT_IN[name], ID, said=said)
    subject.session = replace(subject.session, environment={"HOME": str(tmp_path)})
    with pytest.raises(
        LaunchRefused, match=f"^nothing is kept in {tmp_path}.* of its conversation {ID}{why}$"
    ):
        conversations.plan(subject, True)


def test_a_file_in_which_no_word_is_found_though_some_were_said_is_left_to_the_agent(tmp_path: Path) -> None:
    subject, _ = of_claude(tmp_path, "what a later claude writes\n")
    subject.state = replace(subject.state, said=True)
    plan = conversations.plan(subject, True)
    assert (plan.conversation, plan.said) == (ID, True)
    assert command(subject, True)[:3] == ["claude", "--resume", ID]


@pytest.mark.parametrize("text", ["", f'{{"type":"mode","mode":"normal","sessionId":"{ID}"}}\n'])
def test_a_conversation_in_whose_file_nothing_was_said_is_begun_as_another(tmp_path: Path, text: str) -> None:
    """claude continues no such file, and begins no conversation whose file is there."""
    subject, file = of_claude(tmp_path, text)
    plan = conversations.plan(subject, True)
    assert plan.conversation != ID
    assert plan.session.command[-4:] == ["--session-id", plan.conversation, "--model", "x"]
    assert file.read_text() == text


def of_gemini(home: Path, *asked: str) -> Entry:
    """With these words of its user in the file of its conversation, and no answer."""
    file = home / f".gemini/tmp/work/chats/session-2026-01-02T03-04-{ID[:8]}.jsonl"
    file.parent.mkdir(parents=True)
    context = '<session_context>\n"type":"gemini" "type":"user","content":[{"text":"plums"}]'
    messages = [{"id": "1", "type": "user", "content": [{"text": text}]} for text in (context, *asked)]
    lines = [{"sessionId": ID}, {"$set": {"messages": messages[:1]}}, *messages[1:], {"$set": {}}]
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    subject = entry(BUILT_IN["gemini"], ID, said=False)
    subject.session = replace(subject.session, environment={"HOME": str(home)})
    return subject


@pytest.mark.parametrize("asked", [(), ("/help",), ("  \n?",), ("",), ("<hook_context>x</hook_context>",)])
def test_a_conversation_in_which_gemini_was_asked_nothing_is_begun_as_another(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """Its first line is a user's, and nobody's question."""
    subject = of_gemini(tmp_path, *asked)
    assert conversations.was_said(subject, ID) is False
    plan = conversations.plan(subject, True)
    assert (plan.conversation != ID, plan.said) == (True, False)
    assert plan.session.command[-4:] == ["--session-id", plan.conversation, "--model", "x"]


@pytest.mark.parametrize("asked", [("plums",), ("/help", "\nplums")])
def test_what_gemini_has_not_answered_goes_on_where_it_is_kept(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """After a power cut, say. It is not known to be kept at its next end, and so not said for good."""
    subject = of_gemini(tmp_path, *asked)
    assert conversations.was_said(subject, ID) is False
    plan = conversations.plan(subject, True)
    assert (plan.conversation, plan.said) == (ID, False)
    assert plan.session.command[-4:] == ["--resume", ID, "--model", "x"]


def test_a_first_question_that_gemini_has_not_answered_is_asked_again(tmp_path: Path) -> None:
    subject = of_gemini(tmp_path, "plums")
    subject.session = replace(subject.session, command=["-i", "plums"])
    plan = conversations.plan(subject, True)
    assert (plan.conversation != ID, plan.said) == (True, False)
    assert plan.session.command[-4:] == ["--session-id", plan.conversation, "-i", "plums"]


def test_what_is_said_in_a_file_that_cannot_be_read_is_not_given_up(tmp_path: Path) -> None:
    subject, file = of_claude(tmp_path, "")
    file.unlink()
    file.mkdir()
    assert command(subject, True)[:3] == ["claude", "--resume", ID]


def test_a_wrapper_is_not_given_what_only_the_agent_understands() -> None:
    wrapped = replace(BUILT_IN["claude"], start=("/opt/wrap", "claude"))
    assert command_as_given(entry(wrapped)) == ["/opt/wrap", "claude", "--model", "x"]


def test_a_profile_that_runs_claude_reports_as_claude_does(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    start = ["/opt/bin/claude", "--model", "opus", "--session-id", CONVERSATION]
    file.write_text(f'[agents.reviewer]\nstart = {start}\nresume = ["claude", "--resume", "{CONVERSATION}"]')
    reviewer = config.load(file).agents["reviewer"]
    words = conversations.plan(entry(reviewer, ID), False).session.command
    assert words[1:3] == hooks.arguments("claude", amux_program())
    assert words[3:6] == ["--model", "opus", "--session-id"]
    # Nothing was said yet, and there is nothing of it to be continued.
    nowhere = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    subject = entry(reviewer, ID, said=False)
    subject.session = replace(subject.session, environment=nowhere)
    assert conversations.plan(subject, True).session.command[-3:] == [ID, "--model", "x"]


def test_only_what_the_profile_names_is_reported() -> None:
    named = replace(BUILT_IN["claude"], attention=("elicitation_dialog",))
    words = conversations.plan(entry(named), False).session.command
    assert words[1:3] == hooks.arguments("claude", amux_program(), ["elicitation_dialog"])
    silent = replace(BUILT_IN["claude"], attention=())
    words = conversations.plan(entry(silent), False).session.command
    # Which conversation it is in is told all the same.
    assert words[1:3] == hooks.arguments("claude", amux_program(), [])


def command_as_given(subject: Entry) -> list[str]:
    return conversations.plan(subject, False).session.command


def test_each_new_conversation_has_an_id_of_its_own() -> None:
    plans = [conversations.plan(entry(BUILT_IN["gemini"], ID), False) for _ in range(2)]
    assert len({ID, *(plan.conversation for plan in plans)}) == 3
    assert all(uuid.UUID(plan.conversation).version == 4 for plan in plans)
    assert conversations.plan(entry(BUILT_IN["codex"], ID), False).conversation == ""
    assert conversations.plan(entry(None), False).conversation == ""


def test_a_shell_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = entry(BUILT_IN["shell"])
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert command(subject, False)[0] == "/bin/dash"
    subject.session = replace(subject.session, environment={"SHELL": "/bin/fish"})
    assert command(subject, False)[0] == "/bin/fish"


def test_the_users_own_variables_come_before_the_profiles() -> None:
    agent = Agent("x", ("x",), environment={"A": "profile", "B": "profile"})
    subject = entry(agent)
    subject.session = replace(subject.session, environment={"A": "user"})
    assert conversations.plan(subject, False).session.environment == {"A": "user", "B": "profile"}


def test_an_agent_that_is_no_more_is_not_started() -> None:
    subject = entry(None)
    subject.session = replace(subject.session, agent="gone")
    with pytest.raises(LaunchRefused, match="there is no agent 'gone' any more"):
        conversations.plan(subject, False)
    assert conversations.command(subject) == ["gone", "--model", "x"]


def test_the_command_that_is_shown_is_the_one_of_this_run() -> None:
    claude = BUILT_IN["claude"]
    assert conversations.command(entry(claude))[:3] == ["claude", "--session-id", CONVERSATION]
    assert conversations.command(entry(claude, ID))[:3] == ["claude", "--session-id", ID]
    assert conversations.command(entry(claude, ID, resuming=True))[:3] == ["claude", "--resume", ID]


@given(st.lists(st.text()), st.sampled_from(PLACEHOLDERS))
def test_filling_replaces_placeholders_once_and_nothing_else(words: list[str], placeholder: str) -> None:
    without = [word for word in words if "{" not in word]
    filled = fill([*without, f"<{placeholder}>", '{"a":{}}'], FILLING)
    value = {name: getattr(FILLING, name[1:-1]) for name in PLACEHOLDERS}[placeholder]
    assert filled == [*without, f"<{value}>", '{"a":{}}']
    nested = replace(FILLING, name="{directory}")
    assert fill(["{name}"], nested) == ["{directory}"]


def test_why_it_is_not_resumable() -> None:
    assert entry(BUILT_IN["claude"], ID).why_not_resumable == ""
    assert "has not told yet" in entry(BUILT_IN["codex"]).why_not_resumable
    assert "no way" in entry(BUILT_IN["shell"]).why_not_resumable
    assert "no agent" in entry(None).why_not_resumable
    fixed = Agent("own", ("own",), resume=("own", "--again"))
    assert entry(fixed).why_not_resumable == ""
    assert entry(replace(fixed, on_exit=OnExit.STAY)).situation.stays_after_success
    assert not entry(replace(BUILT_IN["codex"], on_exit=OnExit.STAY)).situation.stays_after_success
    states = {s for s in State if entry(fixed, state=s).resumable}
    assert states == {State.STALE, State.SUSPENDED, State.STOPPED, State.COMPLETED, State.FAILED}
    assert entry(fixed, state=State.RUNNING, parked=True).resumable


def test_from_orphaned_only_once_the_directory_is_back() -> None:
    subject = entry(Agent("own", ("own",), resume=("own",)), state=State.ORPHANED)
    assert not subject.resumable
    subject.workspace_exists = False
    assert not subject.resumable
    subject.workspace_exists = True
    assert subject.resumable


WRITER = """
import sys, time
files = [open(path, mode) for path, mode in zip(sys.argv[1::2], sys.argv[2::2])]
print("ready", flush=True)
sys.stdin.read()
"""


def found_of(*files: tuple[Path, str]) -> str:
    kept = BUILT_IN["codex"].kept
    assert kept is not None
    arguments = [str(word) for file in files for word in file]
    # A child writes, as codex does: its launcher is another program.
    shell = ["sh", "-c", '"$@"; :', "sh", sys.executable, "-c", WRITER, *arguments]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            return conversations.find(process.pid, kept)
        finally:
            process.communicate()


def rollout(directory: Path, written_at: int, begins: str = '{"type":"session_meta"}') -> tuple[str, Path]:
    conversation = str(uuid.uuid4())
    path = directory / f"rollout-2026-01-02T03-04-05-{conversation}.jsonl"
    path.write_text(begins + "\n" if begins else "")
    os.utime(path, (written_at, written_at))
    return conversation, path


def test_the_conversation_is_the_one_that_the_process_writes(tmp_path: Path) -> None:
    conversation, mine = rollout(tmp_path, 100)
    _, other = rollout(tmp_path, 200)
    assert found_of((mine, "a"), (tmp_path / "log", "w")) == conversation
    assert found_of((mine, "a"), (other, "r")) == conversation
    assert found_of((mine, "r")) == ""


def test_of_two_that_the_process_writes_it_is_the_one_that_it_wrote_to_last(tmp_path: Path) -> None:
    (_, earlier), (conversation, later) = rollout(tmp_path, 100), rollout(tmp_path, 200)
    assert found_of((later, "a"), (earlier, "a")) == found_of((earlier, "a"), (later, "a")) == conversation
    _, as_late = rollout(tmp_path, 200)
    assert found_of((later, "a"), (as_late, "a")) == ""
    assert found_of((later, "a"), (later, "a")) == conversation


# Holds two conversations, the later one behind what it opens and closes again and again.
RESTLESS = """
import os, sys
earlier, later, other, how = sys.argv[1:]
first = open(earlier, "a")
between = os.open("/dev/null", os.O_RDONLY)
last = open(later, "a")
os.close(between)
print("ready", flush=True)
while True:
    closed = os.open(other, os.O_WRONLY if how == "another" else os.O_RDONLY)
    os.close(closed)
"""


@pytest.mark.parametrize("how", ["unrelated", "another"])
def test_what_is_closed_meanwhile_makes_no_earlier_conversation_the_last(tmp_path: Path, how: str) -> None:
    kept = BUILT_IN["codex"].kept
    assert kept is not None
    (_, earlier), (conversation, later) = rollout(tmp_path, 100), rollout(tmp_path, 200)
    another, newest = rollout(tmp_path, 300)
    other = newest if how == "another" else tmp_path / "unrelated"
    other.touch()
    os.utime(other, (300, 300))
    words = [sys.executable, "-c", RESTLESS, str(earlier), str(later), str(other), how]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            found = {conversations.find(process.pid, kept) for _ in range(300)}
        finally:
            process.kill()
    if how == "another":
        # Nothing is learnt where one closes while it is looked at.
        assert found <= {conversation, another, ""}
    else:
        assert found == {conversation}


@pytest.mark.parametrize(
    "begins",
    [
        '{"type":"session_meta","payload":{"source":{"subagent":"review"}}}',
        '{"type":"session_meta","payload":{"source":"cli","thread_source":"subagent"}}',
        # Not yet told.
        "",
    ],
)
def test_the_conversation_of_a_helper_is_not_the_one(tmp_path: Path, begins: str) -> None:
    conversation, mine = rollout(tmp_path, 100, '{"payload":{"source":"cli","thread_source":"user"}}')
    _, helpers = rollout(tmp_path, 200, begins)
    assert found_of((mine, "a"), (helpers, "a")) == conversation
    assert found_of((helpers, "a")) == ""


def test_what_its_children_write_is_another_agents(tmp_path: Path) -> None:
    """One that it runs itself, or one that has left its terminal and serves others too."""
    kept = BUILT_IN["codex"].kept
    assert kept is not None
    (conversation, mine), (_, other) = rollout(tmp_path, 100), rollout(tmp_path, 200)
    nested = f"""
import pty, subprocess, sys
own = open({str(mine)!r}, "a") if {{own}} else None
subprocess.run([sys.executable, "-c", {WRITER!r}, {str(other)!r}, "a"], start_new_session={{leaves}})
"""
    for own, leaves, found in ((True, False, conversation), (False, True, "")):
        program = nested.format(own=own, leaves=leaves)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", program])
        assert b"ready" in os.read(terminal, 100)
        try:
            assert conversations.find(pid, kept) == found
        finally:
            os.write(terminal, b"\x04")
            os.close(terminal)
            os.waitpid(pid, 0)


def test_of_a_process_that_is_gone_nothing_is_found() -> None:
    kept = BUILT_IN["codex"].kept
    assert kept is not None
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert conversations.find(ended.pid, kept) == ""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert conversations.find(zombie.pid, kept) == ""
    zombie.wait()
