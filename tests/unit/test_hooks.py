import json
import tomllib

import pytest

from amuxd import hooks
from amuxd.attention import Kind


def test_claude_gets_settings_for_one_run() -> None:
    option, settings = hooks.arguments("claude", "/opt/a b/amux")
    assert option == "--settings"
    events = json.loads(settings)["hooks"]
    assert events["Notification"][0]["matcher"] == "permission_prompt"
    # Waiting at an idle prompt is not being blocked.
    assert "idle_prompt" not in settings
    assert events["Stop"][0]["hooks"][0]["command"] == "'/opt/a b/amux' report --hook turn"


def test_claude_tells_of_another_conversation_but_not_of_its_first() -> None:
    """That one is amux's own choice, and a claude that is run by a claude begins one as well."""
    started = json.loads(hooks.arguments("claude", "amux")[1])["hooks"]["SessionStart"]
    assert [group["matcher"] for group in started] == ["clear", "compact", "resume"]
    assert {group["hooks"][0]["command"] for group in started} == {"amux report --hook conversation"}


def test_codex_gets_settings_that_are_toml() -> None:
    words = hooks.arguments("codex", "/opt/a b/amux")
    assert words[::2] == ["-c"] * 4
    settings = tomllib.loads("\n".join(words[1::2]))
    assert settings["notify"] == ["/opt/a b/amux", "report", "--hook", "turn"]
    assert settings["tui"]["notification_method"] == "osc9"


@pytest.mark.parametrize(
    ("attention", "calls"),
    [
        (["elicitation_dialog"], {"elicitation_dialog"}),
        (["permission"], {"PermissionRequest", "permission_prompt"}),
        (["Stop", "question"], {"Stop", "elicitation_dialog"}),
        ([], set()),
    ],
)
def test_claude_reports_the_calls_that_are_wanted_and_always_what_is_none(
    attention: list[str], calls: set[str]
) -> None:
    events = json.loads(hooks.arguments("claude", "amux", attention)[1])["hooks"]
    told = {group.get("matcher", event) for event, groups in events.items() for group in groups}
    assert told == {*calls, "UserPromptSubmit", "clear", "compact", "resume"}


@pytest.mark.parametrize(
    ("attention", "keys", "shown"),
    [
        ([], ["tui"], []),
        (["turn"], ["notify", "tui"], []),
        (["question"], ["tui"], ["plan-mode-prompt", "user-input-requested", "async-question"]),
        (["approval-requested", "turn"], ["notify", "tui"], ["approval-requested"]),
    ],
)
def test_codex_tells_of_what_is_wanted(attention: list[str], keys: list[str], shown: list[str]) -> None:
    settings = tomllib.loads("\n".join(hooks.arguments("codex", "amux", attention)[1::2]))
    assert (sorted(settings), settings.get("tui", {}).get("notifications", [])) == (keys, shown)


@pytest.mark.parametrize(
    ("program", "says", "kind"),
    [
        ("codex", "Approval requested: rm -rf /", Kind.PERMISSION),
        ("codex", "Approval requested by a server", Kind.PERMISSION),
        ("codex", "Codex wants to edit 3 files", Kind.PERMISSION),
        ("codex", "Plan mode prompt: Which", Kind.QUESTION),
        ("codex", "2 questions requested", Kind.QUESTION),
        ("codex", "I wrote: Approval requested: rm", Kind.BELL),
        ("codex", "", Kind.BELL),
        ("make", "Approval requested: rm -rf /", Kind.BELL),
    ],
)
def test_what_an_agents_own_notification_is_for(program: str, says: str, kind: Kind) -> None:
    assert hooks.meaning(program, says) is kind


@pytest.mark.parametrize("agent", ["gemini", "opencode"])
def test_what_a_person_puts_somewhere_names_the_place(agent: str) -> None:
    assert hooks.arguments(agent) == []
    text = hooks.by_hand(agent, "/opt/amux")
    assert text is not None
    assert text.startswith("// ")
    assert "/opt/amux report --hook" in text


def test_an_agent_that_nobody_knows() -> None:
    assert hooks.arguments("nobody") == hooks.calls("nobody") == []
    assert hooks.by_hand("nobody") is None
    assert hooks.known() == ["aider", "claude", "codex", "gemini", "opencode"]
