"""How each agent is made to report that it needs a person: for one run, and never in the user's own files."""

import json
import shlex
from collections.abc import Callable
from typing import Any

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
_SECONDS = 10


def arguments(agent: str, amux: str = "amux") -> list[str]:
    """What the agent's command line gets for one run; empty where it has no such option."""
    compose = _PER_RUN.get(agent)
    return compose(amux) if compose else []


def by_hand(agent: str, amux: str = "amux") -> str | None:
    """What a person puts where, for an agent that cannot be given it per run; None: nothing is known."""
    compose = _BY_HAND.get(agent)
    return compose(amux) if compose else None


def known() -> list[str]:
    return sorted({*_PER_RUN, *_BY_HAND})


def _claude(amux: str) -> list[str]:
    return ["--settings", json.dumps({"hooks": _events(_CLAUDE, amux)})]


def _codex(amux: str) -> list[str]:
    # Hooks given here would have to be trusted by hand first. These two need no trust: a turn's end runs a
    # program, and a request for approval is an OSC 9 in the output, also while the terminal has the focus.
    return [
        *("-c", f"notify={json.dumps([amux, 'report', '--hook', 'turn'])}"),
        *("-c", 'tui.notifications=["approval-requested", "plan-mode-prompt", "user-input-requested"]'),
        *("-c", 'tui.notification_method="osc9"'),
        *("-c", 'tui.notification_condition="always"'),
    ]


def _aider(amux: str) -> list[str]:
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


def _events(rows: tuple[tuple[str, str, str], ...], amux: str, seconds: int = _SECONDS) -> dict[str, Any]:
    events: dict[str, list[dict[str, Any]]] = {}
    for event, matcher, kind in rows:
        command = f"{shlex.quote(amux)} report --hook {kind}"
        group: dict[str, Any] = {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}
        events.setdefault(event, []).append({"matcher": matcher, **group} if matcher else group)
    return events


_PER_RUN: dict[str, Callable[[str], list[str]]] = {"claude": _claude, "codex": _codex, "aider": _aider}
_BY_HAND: dict[str, Callable[[str], str]] = {"gemini": _gemini, "opencode": _opencode}
