"""The real agents, without a login: amux gives them what they document, and shows what they say."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest
from agent_fixtures import Agents, Reboots, state_on_disk
from harness import model, real_agents
from harness.bus import Signal
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

from amuxd import hooks
from amuxd.agents import BUILT_IN

# It has much to do: half a minute was seen on a machine that had ten times as much to do as it can.
START_OF_OPENCODE = 180


@pytest.fixture(scope="session")
def bin_directory() -> Path:
    return real_agents.directory()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test's own: the machine's, which tests share, has what the same agent kept for another."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def environment(home: Path, bin_directory: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "PATH": f"{bin_directory}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        # What they would wake on the desktop's bus is no part of the session.
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    }


@pytest.fixture
def repository(tmp_path: Path) -> str:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return str(tmp_path)


def command_line(amux: Amux, session: Session) -> list[str]:
    words = amux.machine.outside(f"/proc/{session.get('Pid')}/cmdline").read_bytes().split(b"\0")
    return [word.decode() for word in words[:-1]]


@pytest.mark.parametrize(
    ("agent", "help_of"), [("claude", []), ("codex", ["resume"]), ("gemini", []), ("opencode", [])]
)
def test_the_flags_are_those_of_their_own_help(
    amux: Amux, environment: dict[str, str], agent: str, help_of: list[str]
) -> None:
    profile = BUILT_IN[agent]
    helped = amux.machine.run([agent, *help_of, "--help"], env=environment, timeout=START_OF_OPENCODE)
    said = helped.stdout + helped.stderr
    assert profile.start[0] == profile.resume[0] == agent
    flags = {word for word in (*profile.start, *profile.resume) if word.startswith("-")}
    for flag in flags:
        assert re.search(rf"(^|\s){flag}[\s=,]", said), flag
    if agent == "codex":
        assert re.search(r"codex resume .*\[SESSION_ID\]", said)


@pytest.mark.parametrize(
    ("agent", "greeting"),
    [
        ("claude", r"Welcome|theme|Claude Code|Select login"),
        ("codex", r"Codex|Sign in|trust"),
        ("gemini", r"Gemini|auth|trust|Sign in"),
    ],
)
def test_they_start_and_show_that_nobody_is_logged_in(
    amux: Amux, environment: dict[str, str], repository: str, agent: str, greeting: str
) -> None:
    session = amux.create([], agent=agent, env=environment, cwd=repository)
    until(lambda: re.search(greeting, session.call("Capture", "u", 0)), timeout=60)
    assert session.state == "running"
    given = command_line(amux, session)
    conversation = state_on_disk(amux, session)["conversation_id"]
    if BUILT_IN[agent].takes_our_id:
        assert given[-2:] == ["--session-id", conversation]
        assert re.fullmatch(r"[0-9a-f-]{36}", conversation)
    else:
        assert conversation == ""
    session.stop(timeout=60)
    assert session.state == "stopped"


def kept_by_claude(home: Path, repository: str, conversation: str) -> Path:
    return home / ".claude/projects" / re.sub("[^0-9A-Za-z]", "-", repository) / f"{conversation}.jsonl"


def settle_claude(home: Path, environment: dict[str, str], repository: str) -> None:
    """It asks for nothing more before it begins, and nobody answers what it is asked."""
    settled = {"hasCompletedOnboarding": True, "theme": "dark"}
    settled |= {"customApiKeyResponses": {"approved": ["none"], "rejected": []}}
    settled |= {"projects": {repository: {"hasTrustDialogAccepted": True}}}
    (home / ".claude.json").write_text(json.dumps(settled))
    environment |= {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    environment |= {"CLAUDE_CODE_MAX_RETRIES": "0", "DISABLE_AUTOUPDATER": "1"}


@pytest.mark.parametrize("has_file", [False, True])
def test_claude_to_whom_nothing_was_said_is_begun_again(
    amux: Amux, home: Path, environment: dict[str, str], repository: str, has_file: bool
) -> None:
    """With its id; or with another, where it has made a file already: that it neither takes up nor begins."""
    greeting = r"Welcome|theme|Claude Code"
    session = amux.create([], agent="claude", env=environment, cwd=repository)
    until(lambda: session.call("Capture", "u", 0), timeout=60)
    before = state_on_disk(amux, session)["conversation_id"]
    session.call("Park", timeout=60)
    if has_file:
        file = kept_by_claude(home, repository, before)
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"type": "mode", "mode": "normal", "sessionId": before}) + "\n")
    session.call("AttachCommand", timeout=60)
    now = state_on_disk(amux, session)["conversation_id"]
    assert (now == before) == (not has_file)
    # Its process is a launcher first.
    until(lambda: command_line(amux, session)[-2:] == ["--session-id", now])
    until(lambda: re.search(greeting, session.call("Capture", "u", 0)), timeout=60)
    assert session.state == "running"


def gemini(amux: Amux, home: Path, environment: dict[str, str], repository: str, address: str) -> Session:
    """Ready for its first question, with a model that is played."""
    (home / ".gemini").mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False},
        "model": {"name": "gemini-2.5-pro"},
    }
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    environment = environment | {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": address}
    session = amux.create([], agent="gemini", env=environment, cwd=repository)
    until(lambda: "Type your message" in session.call("Capture", "u", 0), timeout=120)
    return session


def test_what_is_sent_to_gemini_is_submitted(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    """It takes an Enter that comes with the text for one that was pasted with it."""
    with model.gemini() as address:
        session = gemini(amux, home, environment, repository, address)
        session.send("plums")
        until(lambda: model.DONE in session.call("Capture", "u", 0), timeout=60)
        session.stop(timeout=60)


def test_gemini_to_whom_nothing_was_said_is_begun_again(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    """It has made a file by then, which tells of the directory, and takes it away as it ends."""
    with model.gemini() as address:
        session = gemini(amux, home, environment, repository, address)
        chats = home / ".gemini/tmp"
        until(lambda: list(chats.glob("*/chats/session-*.jsonl")), timeout=60)
        session.stop(timeout=60)
        assert state_on_disk(amux, session)["said"] is False
        session.call("Resume", timeout=60)
        conversation = state_on_disk(amux, session)["conversation_id"]
        assert session.get("Command")[-2:] == ["--session-id", conversation]
        until(lambda: "Type your message" in session.call("Capture", "u", 0), timeout=120)
        session.stop(timeout=60)


def kept_by_gemini(home: Path, text: str) -> bool:
    return any(text in file.read_text() for file in home.glob(".gemini/tmp/*/chats/session-*"))


def test_gemini_is_parked_once_it_has_answered(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    """What it was asked before that it may not keep."""
    may_answer = threading.Event()
    with model.gemini(may_answer) as address:
        try:
            session = gemini(amux, home, environment, repository, address)
            session.send("plums")
            until(lambda: kept_by_gemini(home, "plums"), timeout=60)
            refused = amux.cli("park", session.id, check=False)
            assert refused.returncode == 4
            assert "gemini may keep nothing of a conversation before it has answered in it" in refused.stderr
            assert session.get("SessionAlive") == "alive"
        finally:
            may_answer.set()
        until(lambda: kept_by_gemini(home, model.DONE), timeout=60)
        session.call("Park", timeout=60)
        session.call("AttachCommand", timeout=60)
        conversation = state_on_disk(amux, session)["conversation_id"]
        assert session.get("Command")[-2:] == ["--resume", conversation]
        until(lambda: "plums" in session.call("Capture", "u", 0), timeout=120)
        session.stop(timeout=60)


def test_what_gemini_has_not_answered_goes_on_after_a_power_cut(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    may_answer = threading.Event()
    with model.gemini(may_answer) as address:
        try:
            session = gemini(amux, home, environment, repository, address)
            session.send("plums")
            until(lambda: kept_by_gemini(home, "plums"), timeout=60)
            conversation = state_on_disk(amux, session)["conversation_id"]
            amux.kill()
            amux.machine.systemctl("kill", "--signal=SIGKILL", "amux-*.service")
            Reboots(amux).reboot(session, in_order=False)
        finally:
            may_answer.set()
        session.call("Resume", timeout=60)
        assert session.get("Command")[-2:] == ["--resume", conversation]
        until(lambda: "plums" in session.call("Capture", "u", 0), timeout=120)
        session.stop(timeout=60)


def test_codex_is_known_by_the_file_that_it_writes(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    nowhere = '{name="nowhere",base_url="http://127.0.0.1:9",wire_api="responses",requires_openai_auth=false}'
    provider = ["-c", 'model_provider="nowhere"', "-c", f"model_providers.nowhere={nowhere}"]
    sessions = [
        amux.create([*provider, "exec", "hi"], agent="codex", env=environment, cwd=repository) for _ in "12"
    ]
    found = [until(lambda: state_on_disk(amux, s)["conversation_id"]) for s in sessions]  # noqa: B023
    written = (home / ".codex/sessions").glob("*/*/*/rollout-*.jsonl")
    assert {path.stem[-36:] for path in written} == set(found)
    assert len(set(found)) == 2


def test_codex_asks_for_permission_until_it_is_answered(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    """The model is a stand-in; what codex makes of it is real, and that its title blinks while it waits."""
    (home / ".codex").mkdir()
    trusted = f'[projects."{repository}"]\ntrust_level = "trusted"\n'
    (home / ".codex/config.toml").write_text(trusted)
    wish = {"cmd": "echo h''ello", "sandbox_permissions": "require_escalated", "justification": "may I?"}
    with model.openai("exec_command", wish) as address, amux.events() as events:
        provider = f'{{name="stand-in",base_url="{address}",wire_api="responses"}}'
        arguments = ["-c", "model_provider=standin", "-c", f"model_providers.standin={provider}"]
        arguments += ["-c", "approval_policy=on-request", "-c", "check_for_update_on_startup=false"]
        session = amux.create([*arguments, "say it"], agent="codex", env=environment, cwd=repository)

        def said(kind: str, after: Signal | None = None) -> Signal:
            return events.wait(
                lambda event: event.member == "AttentionChanged" and event.body[3] == kind,
                timeout=60,
                after=after,
            )

        asked = said("permission")
        assert asked.body[4] == "Approval requested: echo h''ello"
        # One look at what is printed after it is later than what counts as the drawing of the question.
        printed = session.log().count("Action Required")
        until(lambda: session.log().count("Action Required") > printed + 4, timeout=60)
        assert session.get("Attention") == "permission"
        session.send("y", enter=False)
        assert said("turn", after=said("", after=asked)).body[4] == model.DONE
        session.stop(timeout=60)


@pytest.mark.parametrize("attention", [None, []])
def test_codex_is_followed_into_a_new_conversation(
    amux: Amux, home: Path, environment: dict[str, str], repository: str, attention: list[str] | None
) -> None:
    """And to nobody else's in the same directory: each does its own work, in its own session."""
    settings = home / ".codex/config.toml"
    settings.parent.mkdir()
    if attention is not None:
        agents = Agents(amux)
        agents.write(f"[agents.codex]\nattention = {attention}\n")

    def asks(session: Session, text: str) -> None:
        session.send(text, enter=False)
        until(lambda: text in session.call("Capture", "u", 0), timeout=60)
        session.send("")

    def learnt(session: Session) -> str:
        return str(state_on_disk(amux, session)["conversation_id"])

    def written(text: str) -> str:
        """The conversation in which that was said."""
        kept = settings.parent.glob("sessions/*/*/*/rollout-*.jsonl")
        return next((path.stem[-36:] for path in kept if f"about {text}" in path.read_text()), "")

    with model.openai() as address:
        provider = {"name": "near", "base_url": address, "wire_api": "responses"}
        settings.write_text(
            'model_provider = "near"\ncheck_for_update_on_startup = false\n[model_providers.near]\n'
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in provider.items())
            + f'requires_openai_auth = false\n[projects."{repository}"]\ntrust_level = "trusted"\n'
        )
        one, two = (
            amux.create([], agent="codex", env=environment, cwd=repository, name=name) for name in ("a", "b")
        )
        for session in (one, two):
            until(lambda: "? for shortcuts" in session.call("Capture", "u", 0), timeout=60)  # noqa: B023
        # The first that was begun says nothing yet: what the other writes is not its own.
        asks(two, "about pears")
        until(lambda: written("pears") and learnt(two) == written("pears"), timeout=60)
        assert learnt(one) == ""
        asks(one, "about apples")
        until(lambda: written("apples") and learnt(one) == written("apples"), timeout=60)
        asks(one, "/new")
        until(lambda: "Use current" in one.call("Capture", "u", 0), timeout=60)
        one.send("")
        until(lambda: "apples" not in one.call("Capture", "u", 0), timeout=60)
        asks(one, "about plums")
        until(lambda: written("plums") and learnt(one) == written("plums"), timeout=60)
        assert learnt(two) == written("pears") != written("plums")
        assert not [line for line in amux.machine.command_lines().values() if "app-server" in line]
        for session, text in ((one, "plums"), (two, "pears")):
            session.stop(timeout=60)
            session.call("Resume", timeout=60)
            assert session.get("Command")[-1] == written(text)
            until(lambda: f"about {text}" in session.call("Capture", "u", 0), timeout=60)  # noqa: B023
            session.stop(timeout=60)


def test_claude_goes_on_with_what_it_has_kept(
    amux: Amux, environment: dict[str, str], repository: str
) -> None:
    """Its question is kept although nobody answers it; restart does not begin that conversation again."""
    environment |= {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    environment |= {"CLAUDE_CODE_MAX_RETRIES": "0"}
    session = amux.create(["-p", "hi"], agent="claude", env=environment, cwd=repository)
    session.wait_state("failed", timeout=60)
    for verb, flag in (("Resume", "--resume"), ("Restart", "--session-id")):
        session.call(verb)
        conversation = state_on_disk(amux, session)["conversation_id"]
        assert session.get("Command") == ["claude", flag, conversation, "-p", "hi"]
        session.wait_state("failed", timeout=60)
        assert "API Error" in " ".join(session.certificate()["last_lines"])
    assert session.get("WhyNotByItself")


def test_claude_is_asked_its_first_question_once(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    settle_claude(home, environment, repository)
    session = amux.create(["about apples"], agent="claude", env=environment, cwd=repository)
    kept = kept_by_claude(home, repository, state_on_disk(amux, session)["conversation_id"])
    until(lambda: kept.exists() and "about apples" in kept.read_text(), timeout=60)
    until(lambda: state_on_disk(amux, session)["said"], timeout=60)
    session.call("Park", timeout=60)
    session.send("about pears")
    until(lambda: "about pears" in kept.read_text(), timeout=60)
    asked = [json.loads(line) for line in kept.read_text().splitlines()]
    told = [line["message"]["content"] for line in asked if line["type"] == "user"]
    assert [text for text in told if "about" in text] == ["about apples", "about pears"]
    session.stop(timeout=60)


def test_claude_is_followed_into_the_conversation_that_clear_begins(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    """Nobody answers, for there is no login; but its hooks and the files that it keeps are the real ones."""
    settle_claude(home, environment, repository)
    session = amux.create([], agent="claude", env=environment, cwd=repository)
    first = state_on_disk(amux, session)["conversation_id"]
    until(lambda: "for shortcuts" in session.call("Capture", "u", 0), timeout=60)
    session.send("/clear", enter=False)
    until(lambda: "/clear" in session.call("Capture", "u", 0), timeout=60)
    session.send("")
    until(lambda: state_on_disk(amux, session)["conversation_id"] != first, timeout=60)
    second = state_on_disk(amux, session)["conversation_id"]
    session.send("about apples", enter=False)
    until(lambda: "about apples" in session.call("Capture", "u", 0), timeout=60)
    session.send("")
    kept = kept_by_claude(home, repository, second)
    until(lambda: kept.exists() and "about apples" in kept.read_text(), timeout=60)
    session.stop(timeout=60)
    session.call("Resume")
    assert session.get("Command")[-1] == second
    until(lambda: "about apples" in session.call("Capture", "u", 0), timeout=60)
    assert command_line(amux, session)[-2:] == ["--resume", second]


def test_opencode_with_the_plugin_is_resumed(
    amux: Amux, home: Path, environment: dict[str, str], repository: str
) -> None:
    nowhere = {"npm": "@ai-sdk/openai-compatible", "models": {"m": {}}}
    nowhere["options"] = {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "none"}
    settings = {"provider": {"nowhere": nowhere}, "model": "nowhere/m", "autoupdate": False}
    configuration = home / ".config/opencode"
    (configuration / "plugin").mkdir(parents=True)
    (configuration / "opencode.json").write_text(json.dumps(settings))
    plugin = hooks.by_hand("opencode", str(amux.bindir / "amux"))
    assert plugin is not None
    (configuration / "plugin/amux.js").write_text(plugin)
    session = amux.create([], agent="opencode", env=environment, cwd=repository)
    assert not session.get("Resumable")
    until(lambda: "Ask anything" in session.call("Capture", "u", 0), timeout=START_OF_OPENCODE)
    session.send("apples")
    conversation = until(lambda: state_on_disk(amux, session)["conversation_id"], timeout=START_OF_OPENCODE)
    assert conversation.startswith("ses_")
    session.stop(timeout=60)
    assert session.get("Resumable")
    session.call("Resume")
    until(lambda: "apples" in session.call("Capture", "u", 0), timeout=START_OF_OPENCODE)
    assert command_line(amux, session)[-2:] == ["--session", conversation]


@pytest.mark.parametrize(
    ("agent", "arguments", "code", "says"),
    [
        ("claude", ["-p", "hi"], 1, "login"),
        ("codex", ["exec", "hi"], 1, "trusted directory"),
        ("gemini", ["-p", "hi"], 41, "auth"),
    ],
)
def test_their_failure_without_a_login_is_told_as_it_is(
    amux: Amux,
    home: Path,
    environment: dict[str, str],
    agent: str,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    session = amux.create(arguments, agent=agent, env=environment, cwd=str(home))
    session.wait_state("failed", timeout=60)
    assert session.get("ExitCode") == code
    assert says in " ".join(session.certificate()["last_lines"]).lower()
