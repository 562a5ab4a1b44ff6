import json
import tomllib

import pytest

from amuxd import hooks


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


@pytest.mark.parametrize("agent", ["gemini", "opencode"])
def test_what_a_person_puts_somewhere_names_the_place(agent: str) -> None:
    assert hooks.arguments(agent) == []
    text = hooks.by_hand(agent, "/opt/amux")
    assert text is not None
    assert text.startswith("// ")
    assert "/opt/amux report --hook" in text


def test_an_agent_that_nobody_knows() -> None:
    assert hooks.arguments("nobody") == []
    assert hooks.by_hand("nobody") is None
    assert hooks.known() == ["aider", "claude", "codex", "gemini", "opencode"]
