"""How each agent is started, continued and ended: data alone, built in and from the configuration."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from amuxd.questions import Questions

CONVERSATION = "{conversation}"
PLACEHOLDERS = (CONVERSATION, "{session}", "{name}", "{directory}")
SHELL = "{shell}"

IDLE_AFTER = 60.0
PARK_AFTER = 30 * 60.0


class OnExit(StrEnum):
    COMPLETE = "complete"
    STAY = "stay"


@dataclass(frozen=True)
class Kept:
    """Where the agent keeps a conversation, once there is something to keep.

    Below what the variable names or, where it is not set, the directory in the user's home.
    message: what is in each line that holds one, where the agent may make the file before anything was said.
    once_answered: what was asked and has no answer yet may be removed as the agent ends.
    question: what is in each line that holds what was asked so, which goes on where it was not removed.
    """

    variable: str
    directory: str
    pattern: str
    message: re.Pattern[bytes] = re.compile(b"")
    once_answered: bool = False
    question: re.Pattern[bytes] | None = None

    def written_for(self, conversation: str) -> str:
        return self.pattern.format(conversation=conversation)

    def written_as(self, path: str) -> str | None:
        """The conversation that the file at this path holds, if it is one of the agent's."""
        name = self.pattern.rpartition("/")[2]
        pattern = re.escape(name).replace(r"\*", "[^/]*").replace(re.escape(CONVERSATION), _CONVERSATION_ID)
        found = re.fullmatch(pattern, path.rpartition("/")[2])
        return found[1] if found else None


_CONVERSATION_ID = "([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"


@dataclass(frozen=True)
class Agent:
    name: str
    start: tuple[str, ...]
    resume: tuple[str, ...] = ()
    on_exit: OnExit = OnExit.COMPLETE
    idle_after: float | None = None
    park_after: float | None = PARK_AFTER
    stop_signal: str = "SIGTERM"
    stop_children: bool = False
    stop_grace: float | None = None
    attention: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kept: Kept | None = None
    # None: of what it is given nothing is known.
    questions: Questions | None = None
    # In seconds: what comes sooner after a text it takes for a part of what is pasted.
    pause_before_enter: float = 0.0

    @property
    def takes_our_id(self) -> bool:
        """amux chooses the conversation's id, so that it is known before the agent has begun."""
        return CONVERSATION in " ".join(self.start)

    def why_not_resumable(self, conversation: str) -> str:
        if not self.resume:
            return f"{self.name} has no way to continue a conversation"
        if not conversation and CONVERSATION in " ".join(self.resume):
            return f"{self.name} has not told yet which conversation is this session's"
        return ""


def why_unknown(name: str, configuration_error: str) -> str:
    if configuration_error:
        return f"agent {name!r} is not known while the configuration is wrong: {configuration_error}"
    return f"there is no agent {name!r} any more"


def program_of(word: str) -> str:
    """What a command runs, wherever that lies: hooks and files are of it, however the profile is called."""
    return word.rpartition("/")[2]


@dataclass(frozen=True)
class Filling:
    """What stands for the placeholders."""

    conversation: str
    session: str
    name: str
    directory: str
    shell: str


def fill(template: Sequence[str], filling: Filling) -> list[str]:
    """Braces that are no placeholder stay: an argument may be JSON."""
    values = {name: getattr(filling, name[1:-1]) for name in (*PLACEHOLDERS, SHELL)}
    pattern = re.compile("|".join(map(re.escape, values)))
    return [pattern.sub(lambda found: values[found[0]], word) for word in template]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILT_IN: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            "claude",
            start=("claude", "--session-id", CONVERSATION),
            # Not --continue: with two sessions in a directory that is the other one's conversation.
            resume=("claude", "--resume", CONVERSATION),
            attention=("permission", "question", "turn"),
            kept=Kept(
                "CLAUDE_CONFIG_DIR", ".claude", f"projects/*/{CONVERSATION}.jsonl", re.compile(b'"uuid":"')
            ),
            questions=Questions(
                values=_words(
                    "--agent --agents --append-system-prompt --append-system-prompt-file -d --debug "
                    "--debug-file --effort --fallback-model --from-pr --input-format --json-schema "
                    "--max-budget-usd --model -n --name --output-format --permission-mode --plugin-dir "
                    "--plugin-url --prompt-suggestions --remote-control "
                    "--remote-control-session-name-prefix --setting-sources --settings --system-prompt "
                    "--system-prompt-file -w --worktree"
                ),
                lists=_words(
                    "--add-dir --allowedTools --allowed-tools --betas --disallowedTools --disallowed-tools "
                    "--file --mcp-config --tools"
                ),
            ),
        ),
        Agent(
            "codex",
            start=("codex",),
            resume=("codex", "resume", CONVERSATION),
            attention=("permission", "question", "turn"),
            kept=Kept("CODEX_HOME", ".codex", f"sessions/*/*/*/rollout-*-{CONVERSATION}.jsonl"),
            questions=Questions(
                values=_words(
                    "-c --config --enable --disable --remote --remote-auth-token-env -m --model "
                    "--local-provider -p --profile -s --sandbox -C --cd --add-dir -a --ask-for-approval"
                ),
                lists=_words("-i --image"),
                commands=_words("exec e review resume fork apply a cloud mcp sandbox debug"),
            ),
        ),
        Agent(
            "gemini",
            start=("gemini", "--session-id", CONVERSATION),
            resume=("gemini", "--resume", CONVERSATION),
            # Its first process runs it again as a child, and of what is killed nothing may be kept.
            stop_children=True,
            stop_grace=30.0,
            attention=("ToolPermission",),
            pause_before_enter=0.1,
            kept=Kept(
                *("GEMINI_CLI_HOME", "", ".gemini/tmp/*/chats/session-*-{conversation:.8}.json*"),
                # Its first line is a user's, and tells of the directory before anybody has asked anything.
                re.compile(rb'"type": ?"gemini"'),
                once_answered=True,
                # What begins so is no question to gemini either, and that alone it does not continue.
                question=re.compile(
                    rb'"type": ?"user", ?"content": ?\[\{"text": ?"'
                    rb'(?!(?:\s|\\[nrt])*(?:["/?]|<session_context>|<hook_context>))'
                ),
            ),
            questions=Questions(
                options=_words("-i --prompt-interactive"),
                values=_words("-m --model -w --worktree --approval-mode -o --output-format --session-file"),
                lists=_words(
                    "--policy --admin-policy --allowed-mcp-server-names --allowed-tools -e --extensions "
                    "--include-directories"
                ),
            ),
        ),
        Agent(
            "opencode",
            start=("opencode",),
            resume=("opencode", "--session", CONVERSATION),
            attention=("permission.asked",),
            questions=Questions(as_words=False, options=_words("--prompt"), commands=_words("run")),
        ),
        Agent(
            "aider",
            # One history a directory is its default: two sessions there would continue each other.
            start=("aider", "--chat-history-file", f".aider.chat.history.{CONVERSATION}.md"),
            resume=(
                *("aider", "--chat-history-file", f".aider.chat.history.{CONVERSATION}.md"),
                "--restore-chat-history",
            ),
        ),
        Agent("shell", start=(SHELL,)),
    )
}
