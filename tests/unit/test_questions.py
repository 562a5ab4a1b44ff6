"""What is asked once among what an agent is given, and what only may be."""

import pytest

from amuxd.agents import BUILT_IN


@pytest.mark.parametrize(
    ("agent", "given", "left"),
    [
        ("claude", ["why?"], []),
        ("claude", ["why?", "--model", "opus", "--add-dir", "/a"], ["--model", "opus", "--add-dir", "/a"]),
        ("codex", ["drop it", "-m", "o3"], ["-m", "o3"]),
        ("codex", ["exec", "hi"], []),
        ("gemini", ["why?", "-y"], ["-y"]),
        ("gemini", ["-y", "-i", "why?", "-m", "pro"], ["-y", "-m", "pro"]),
        ("gemini", ["--prompt-interactive=why?"], []),
        ("opencode", ["/work", "--prompt", "why?", "--auto"], ["/work", "--auto"]),
        ("claude", ["why?", "--allowedTools", "Bash(git log:*)", "Edit", "--add-dir", "a", "b"], None),
        ("codex", ["why?", "-i", "one.png", "two.png", "-mo3", "--model=o3"], None),
        ("gemini", ["why?", "--include-directories", "a", "b"], None),
        ("claude", [], []),
    ],
)
def test_what_certainly_asks_is_left_out(agent: str, given: list[str], left: list[str] | None) -> None:
    questions = BUILT_IN[agent].questions
    assert questions is not None
    assert questions.left_out_of(given) == (given[1:] if left is None else left)
    if given[:1] != ["exec"]:
        assert questions.why_not_by_itself(given) == ""


@pytest.mark.parametrize(
    ("agent", "given", "word"),
    [
        ("claude", ["-p", "hi"], "hi"),
        ("claude", ["--model", "opus", "hi"], "hi"),
        ("claude", ["--model=opus", "hi"], "hi"),
        ("claude", ["hi", "--dangerously-skip-permissions", "there"], "there"),
        ("claude", ["--", "hi"], "hi"),
        ("codex", ["-c", "model=x", "exec", "hi"], "exec"),
        ("codex", ["exec", "hi"], "exec"),
        # Options that the programs take and do not name, or that another version has.
        ("codex", ["--yolo", "hi"], "hi"),
        ("claude", ["--init", "hi"], "hi"),
        ("claude", ["-c", "hi"], "hi"),
        ("gemini", ["-p", "hi"], "hi"),
        ("gemini", ["--prompt=hi"], "--prompt=hi"),
        ("gemini", ["-ihi"], "-ihi"),
        ("gemini", ["-yi", "hi"], "-yi"),
        ("claude", ["--allowedTools", "Bash", "--verbose", "hi"], "hi"),
        ("opencode", ["run", "hi"], "run"),
        ("claude", ["-p", "why? " * 100], ("why? " * 100)[:39] + "…"),
    ],
)
def test_what_may_ask_is_named(agent: str, given: list[str], word: str) -> None:
    questions = BUILT_IN[agent].questions
    assert questions is not None
    assert questions.why_not_by_itself(given) == (
        f"{word!r}, which it was given, may be a question, and would be asked again"
    )


def test_a_directory_is_no_question() -> None:
    questions = BUILT_IN["opencode"].questions
    assert questions is not None
    assert questions.why_not_by_itself(["/work", "--auto", "/other"]) == ""
