"""Sessions that have ended, written as amuxd would have left them, without its patience for the disk."""

import time
from pathlib import Path

from amuxd.records import Certificate, HistoryEntry, RunState, Session, to_text
from amuxd.states import End, State

LAST_LINES = [f"the {n}th of the last lines that it printed, as long as lines often are" for n in range(20)]


def completed(state_directory: Path, count: int) -> None:
    for number in range(count):
        _write(state_directory / "sessions", f"k{number:05}", f"a session of the past, number {number}")


def _write(sessions: Path, session_id: str, name: str) -> None:
    now = time.time_ns() // 1000
    session = Session(
        session_id, name, ["make", "-C", "/src", "all"], "/tmp", now, environment=_environment()
    )
    state = RunState(
        session_id=session_id,
        state=State.COMPLETED,
        state_changed_at=now,
        updated_by=1,
        run=1,
        boot_id="an earlier boot",
        reason="exited with code 0",
        previous=State.RUNNING,
        changed_for="kernel",
        started_at=now,
    )
    line = HistoryEntry(now, 1, State.RUNNING, State.COMPLETED, state.reason, "kernel")
    certificate = Certificate(session_id, 1, now, state.reason, End(code=0), LAST_LINES, complete=True)
    directory = sessions / session_id
    run = directory / "runs/1"
    run.mkdir(mode=0o700, parents=True)
    (directory / "session.json").write_text(to_text(session))
    (directory / "state.json").write_text(to_text(state))
    (directory / "history.jsonl").write_text(to_text(line))
    (run / "exit.json").write_text(to_text(certificate))
    (run / "output.log").write_text("\n".join(LAST_LINES))


def _environment() -> dict[str, str]:
    """What the CLI sends of a person's own."""
    return {
        "PATH": "/home/somebody/.local/bin:/usr/local/bin:/usr/bin:/bin",
        "LANG": "en_GB.UTF-8",
        "SSH_AUTH_SOCK": "/run/user/1000/ssh-agent.socket",
        "TERM": "xterm-256color",
        "SHELL": "/bin/bash",
    }
