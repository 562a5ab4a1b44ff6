"""The real agents take the hooks and settings that amux gives them."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

import shlex
import shutil
from pathlib import Path

from attention_fixtures import (
    events,  # noqa: F401
)
from harness import real_agents
from harness.bus import Events
from harness.daemon import Amux
from harness.waiting import until

from amuxd import hooks


def test_the_real_claude_takes_the_hooks_and_calls_them(amux: Amux, events: Events) -> None:
    """Without a login its turn ends with a failure, and the hook given for this one run tells so."""
    claude = real_agents.directory() / "claude"
    amux_program = str(amux.bindir / "amux")
    command = shlex.join([str(claude), *hooks.arguments("claude", amux_program), "-p", "hi"])
    session = amux.create(["sh", "-c", f"{command}; cat"], env=_for_agents(amux))
    told = events.wait(
        lambda event: event.member == "AttentionChanged" and event.body[3] == "turn", timeout=60
    )
    assert told.body[1] == session.id
    assert "Please run /login" in told.body[4]
    assert not (amux.machine.home / ".claude/settings.json").exists()


def test_the_real_claude_shows_its_first_screen(amux: Amux) -> None:
    claude = real_agents.directory() / "claude"
    session = amux.create([str(claude), *hooks.arguments("claude")], env=_for_agents(amux))
    until(lambda: "Welcome" in session.log(), timeout=60)
    session.remove(force=True)


def test_the_real_codex_takes_its_settings(amux: Amux) -> None:
    codex = real_agents.directory() / "codex"
    session = amux.create([str(codex), *hooks.arguments("codex")], env=_for_agents(amux))
    until(lambda: "Sign in" in session.call("Capture", "u", 0), timeout=60)
    session.remove(force=True)


def _for_agents(amux: Amux) -> dict[str, str]:
    node = Path(shutil.which("node") or "/usr/bin/node").parent
    return {
        "PATH": f"{real_agents.PROGRAMS}:{node}:{amux.environment['PATH']}",
        "HOME": str(amux.machine.home),
        # What they would start of a desktop on the bus is not theirs to end.
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null",
    }
