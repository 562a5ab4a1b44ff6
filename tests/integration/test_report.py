"""amux report and amux hooks: how a session says over the events socket that it needs a person."""

import sys
from pathlib import Path

import pytest
from events_fixtures import environment_of
from harness.daemon import Amux
from harness.waiting import until


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
    heavy_ones = (
        "click",
        "jeepney",
        "asyncio",
        "json",
        "socket",
        "typing",
        "pathlib",
        "contextlib",
        "amuxd.paths",
    )
    for heavy in heavy_ones:
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
