"""How each agent is made to report that it needs a person: for one run, and never in the user's own files."""

import json
import re
import shlex
from collections.abc import Callable, Collection
from typing import Any

from amuxd.attention import Kind

# What is reported, by the event of the agent and its matcher.
_CLAUDE = (
    ("PermissionRequest", "", "permission"),
    ("Notification", "permission_prompt", "permission"),
    ("Notification", "elicitation_dialog", "question"),
    ("Stop", "", "turn"),
    ("StopFailure", "", "turn"),
    ("UserPromptSubmit", "", "working"),
    # Not "startup": that id is amux's own choice, and a claude that is run by claude begins so as well.
    ("SessionStart", "clear", "conversation"),
    ("SessionStart", "compact", "conversation"),
    ("SessionStart", "resume", "conversation"),
)
_GEMINI = (("Notification", "ToolPermission", "permission"), ("AfterAgent", "", "turn"))
_CODEX = (
    ("agent-turn-complete", "turn"),
    ("approval-requested", "permission"),
    ("plan-mode-prompt", "question"),
    ("user-input-requested", "question"),
    ("async-question", "question"),
)
# What a request reads like in its OSC 9: the types above are not in it.
_CODEX_SAYS = (
    (re.compile("Approval requested|Codex wants to edit "), Kind.PERMISSION),
    (re.compile(r"Plan mode prompt: |Question requested|\d+ questions requested"), Kind.QUESTION),
)
_AIDER = (("turn",),)
_SECONDS = 10

Rows = Collection[tuple[str, ...]]


def arguments(program: str, amux: str = "amux", attention: Collection[str] | None = None) -> list[str]:
    """What the agent's command line gets for one run; empty where it has no such option.

    attention: which calls for a person, each by its kind or the agent's own word for it; None for all.
    """
    if program not in _PER_RUN:
        return []
    rows, compose = _PER_RUN[program]
    return compose([row for row in rows if _is_wanted(row, attention)], amux)


def calls(program: str) -> list[str]:
    """The words for what the agent calls a person for and can be told to report for one run."""
    rows, _ = _PER_RUN.get(program, ((), None))
    return sorted({word for row in rows if _is_call(row) for word in row if word})


def meaning(program: str, says: str) -> Kind:
    """What an agent's call in its output is for, where it says so."""
    says_so = (kind for pattern, kind in _CALLS_IN_OUTPUT.get(program, ()) if pattern.match(says))
    return next(says_so, Kind.BELL)


def _is_wanted(row: tuple[str, ...], attention: Collection[str] | None) -> bool:
    return attention is None or not _is_call(row) or any(word in attention for word in row)


def _is_call(row: tuple[str, ...]) -> bool:
    """The others tell that a wait is over, or of another conversation."""
    return row[-1] in set(Kind)


def by_hand(agent: str, amux: str = "amux") -> str | None:
    """What a person puts where, for an agent that cannot be given it per run; None: nothing is known."""
    compose = _BY_HAND.get(agent)
    return compose(amux) if compose else None


def known() -> list[str]:
    return sorted({*_PER_RUN, *_BY_HAND})


def _claude(rows: Rows, amux: str) -> list[str]:
    return ["--settings", json.dumps({"hooks": _events(rows, amux)})]


def _codex(rows: Rows, amux: str) -> list[str]:
    # Hooks given here would have to be trusted by hand first. These two need no trust: a turn's end runs a
    # program, and a request for approval is an OSC 9 in the output, also while the terminal has the focus.
    # And with any setting it does its work itself: without, a server would that it shares with the codex of
    # other sessions, in the unit and with the token of whichever was first.
    settings = ['tui.notification_condition="always"']
    if any(kind == "turn" for _, kind in rows):
        settings.append(f"notify={json.dumps([amux, 'report', '--hook', 'turn'])}")
    if shown := [event for event, kind in rows if kind != "turn"]:
        settings.append(f"tui.notifications={json.dumps(shown)}")
        settings.append('tui.notification_method="osc9"')
    return [word for setting in settings for word in ("-c", setting)]


def _aider(rows: Rows, amux: str) -> list[str]:
    if not rows:
        return []
    return [
        "--notifications",
        "--notifications-command",
        f"{shlex.quote(amux)} report --hook turn </dev/null",
    ]


def _gemini(amux: str) -> str:
    settings = json.dumps({"hooks": _events(_GEMINI, amux, seconds=_SECONDS * 1000)}, indent=2)
    return f"// in ~/.gemini/settings.json, or .gemini/settings.json of a project\n{settings}\n"


def _opencode(amux: str) -> str:
    command = shlex.quote(amux)
    return f"""\
// as ~/.config/opencode/plugin/amux.js
const kinds = {{ "permission.asked": "permission", "session.idle": "turn" }}
let told = ""
export const Amux = async ({{ $ }}) => ({{
  event: async ({{ event }}) => {{
    const kind = kinds[event.type]
    if (kind) await $`{command} report --hook ${{kind}} </dev/null`.quiet().nothrow()
    // Which conversation it is in, for amux resume; one with a parent is that of a helper of its own.
    const session = /^session.(created|updated)$/.test(event.type) ? event.properties.info : undefined
    if (session && !session.parentID && session.id !== told) {{
      const {{ exitCode }} = await $`{command} report --hook conversation ${{session.id}}`.quiet().nothrow()
      if (exitCode === 0) told = session.id
    }}
  }},
}})
"""


def _events(rows: Rows, amux: str, seconds: int = _SECONDS) -> dict[str, Any]:
    events: dict[str, list[dict[str, Any]]] = {}
    for event, matcher, kind in rows:
        command = f"{shlex.quote(amux)} report --hook {kind}"
        group: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}
        events.setdefault(event, []).append({"matcher": matcher, **group} if matcher else group)
    return events


_PER_RUN: dict[str, tuple[Rows, Callable[[Rows, str], list[str]]]] = {
    "claude": (_CLAUDE, _claude),
    "codex": (_CODEX, _codex),
    "aider": (_AIDER, _aider),
}
_CALLS_IN_OUTPUT = {"codex": _CODEX_SAYS}
_BY_HAND: dict[str, Callable[[str], str]] = {"gemini": _gemini, "opencode": _opencode}
