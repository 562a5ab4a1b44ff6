"""A session's command makes its files as open as its caller does, at each of its runs."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from harness.bus import CallFailed
from harness.client import Client, Session
from harness.daemon import Amux
from harness.waiting import until

# It cannot be told from the default by chance.
CALLERS = "051"
TELLS = ["sh", "-c", "umask; exec sleep infinity"]
AGENT = """
[agents.teller]
start = ["sh", "-c", "umask; exec sleep infinity", "{conversation}"]
resume = ["sh", "-c", "umask; exec sleep infinity", "again", "{conversation}"]
"""


def run_with(amux: Client, umask: str, *words: str) -> Session:
    """As from a person's shell that has it."""
    line = ["sh", "-c", f'umask {umask}; exec "$@"', "sh", str(amux.bindir / "amux"), "run", "-q", *words]
    said = amux.machine.run(line, env=amux.environment).stdout
    return amux.session(said.strip())


def told(session: Session) -> str:
    return until(session.log).strip()


def manages(amux: Client) -> str:
    """What the user's manager has, and so whatever it starts for nobody."""
    return amux.machine.run(["sh", "-c", "umask"]).stdout.strip()


def test_each_run_has_the_callers_umask(anywhere: Client) -> None:
    anywhere.config.parent.mkdir(parents=True, exist_ok=True)
    anywhere.config.write_text(AGENT)
    anywhere.manager.call("Reload")
    command = run_with(anywhere, CALLERS, "--", *TELLS)
    agent = run_with(anywhere, CALLERS, "-a", "teller")
    assert (told(command), told(agent)) == (f"0{CALLERS}", f"0{CALLERS}")
    for session, verb in ((command, "Restart"), (agent, "Resume")):
        session.stop()
        session.call(verb)
        assert session.get("Run") == 2
        assert told(session) == f"0{CALLERS}"


def test_one_that_nobody_named_is_that_of_the_users_manager(anywhere: Client) -> None:
    session = anywhere.create(TELLS)
    assert told(session) == manages(anywhere)


def test_it_outlives_amuxd_and_is_not_asked_of_what_an_older_one_wrote(amux: Amux) -> None:
    kept, older = run_with(amux, CALLERS, "--", *TELLS), run_with(amux, CALLERS, "--", *TELLS)
    until(kept.log)
    until(older.log)
    amux.stop()
    definition = amux.state / "sessions" / older.id / "session.json"
    known: dict[str, Any] = json.loads(definition.read_text())
    assert known.pop("umask") == int(CALLERS, 8)
    definition.write_text(json.dumps(known))
    amux.start()
    for session in (kept, older):
        session.wait_state("running")
        session.call("Stop", "a{sv}", {})
        session.call("Restart")
    assert (told(kept), told(older)) == (f"0{CALLERS}", manages(amux))


def test_a_shell_has_it_and_what_amuxd_reads_is_readable(anywhere: Client) -> None:
    session = run_with(anywhere, "777", "--shell", "-e", "SHELL=/bin/bash", "--", "umask; (exit 3)")
    session.wait_state("failed")
    assert session.get("ExitCode") == 3
    run = Path(session.get("LogPath")).parent
    assert stat.S_IMODE((run / "exit_status").stat().st_mode) == 0o600
    # The shell that stays open has it still.
    session.send("umask")
    until(lambda: session.log().count("0777") == 2)


def test_what_cannot_be_run_says_so_readably(anywhere: Client) -> None:
    script = anywhere.machine.temporary / "script"
    # Its own interpreter: that is for the kernel to refuse.
    script.write_text(f"#!{script}\n")
    script.chmod(0o755)
    session = anywhere.create([str(script)], umask=0o777)
    session.wait_state("failed")
    assert "cannot be run: Too many levels of symbolic links" in session.get("Reason")
    refusal = Path(session.get("LogPath")).with_name("not_started")
    assert stat.S_IMODE(refusal.stat().st_mode) == 0o600


@pytest.mark.parametrize("wrong", [0o1000, 2**31])
def test_what_is_no_umask_is_refused_and_leaves_nothing(amux: Amux, wrong: int) -> None:
    with pytest.raises(CallFailed, match="umask must be from 0 to 0777"):
        amux.create(["true"], umask=wrong)
    assert amux.sessions() == {}
