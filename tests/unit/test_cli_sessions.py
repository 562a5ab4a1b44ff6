from typing import Any

import pytest

from amuxd import states
from amuxd.cli import badging, render, sessions, showing
from amuxd.cli.environment import environment
from amuxd.cli.failures import WrongUsage
from amuxd.states import State

NOW = 1_000_000.0


def session(state: str, **changes: Any) -> dict[str, Any]:
    """Its state and its start were a thousand seconds ago."""
    before = int((NOW - 1000) * 1e6)
    return {
        "Id": "a1",
        "Name": "build",
        "Directory": "/",
        "State": state,
        "Reason": "",
        "StateChangedUSec": before,
        "StartedUSec": before,
        "ExitCode": -1,
        "ExitSignal": "",
        "LastActivityUSec": int(NOW * 1e6),
        **changes,
    }


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        (session("running"), "running"),
        (session("running", LastActivityUSec=int((NOW - 135) * 1e6)), "running (idle 2m 15s)"),
        (session("running", LastActivityUSec=int((NOW - 59) * 1e6)), "running"),
        (session("running", LastActivityUSec=0), "running (idle 16m 40s)"),
        (session("running", LastActivityUSec=0, IdleAfterUSec=int(1001e6)), "running"),
        (session("running", LastActivityUSec=0, IdleAfterUSec=int(999e6), Frozen=True), "running (frozen)"),
        (session("running", LastActivityUSec=0, IdleAfterUSec=int(999e6)), "running (idle 16m 40s)"),
        (session("running", Attention="permission", LastActivityUSec=0), "running (waiting: permission)"),
        (session("running", Parked=True, ParkedUSec=int((NOW - 1000) * 1e6)), "running (parked 16m 40s)"),
        (session("running", SessionAlive="none", Parked=True, ParkedUSec=1), "running (parked 11d 13h)"),
        (
            session("running", Parked=True, ParkedUSec=int((NOW - 9) * 1e6), Attention="turn"),
            "running (parked 9s, waiting: turn)",
        ),
        (session("running", SessionAlive="alive"), "running"),
        (session("running", SessionAlive="dead", Attention="bell"), "running (ended)"),
        (session("running", SessionAlive="unknown"), "running (not known whether alive)"),
        (session("running", SessionAlive="dead", Unwritten="it is failed"), "running (ended, not written)"),
        (session("stopping", SessionAlive="dead", Unwritten="it is stopped"), "stopping (not written)"),
        (session("failed", ExitCode=1), "failed (exit 1)"),
        (session("failed", ExitSignal="SIGSEGV"), "failed (SIGSEGV)"),
        (session("failed", ExitSignal="SIGKILL", OomKilled=True), "failed (out of memory)"),
        (session("failed", HowEnded="terminal died", ExitSignal="SIGHUP"), "failed (terminal died)"),
        (session("stopped", HowEnded="SIGTERM", ExitSignal="SIGTERM"), "stopped"),
        (session("completed", ExitCode=0), "completed"),
        (session("stopped", ExitSignal="SIGTERM"), "stopped"),
        (session("suspended"), "suspended"),
    ],
)
def test_status(properties: dict[str, Any], shown: str) -> None:
    assert sessions.status(properties, NOW) == shown


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            session("failed", HowEnded="could not start", Reason="could not start: no such program"),
            "no such program",
        ),
        (session("stopped", Reason="stopped; killed by SIGTERM"), "killed by SIGTERM"),
        (session("stopped", Reason="stopped"), ""),
        (session("failed", ExitSignal="SIGSEGV", Reason="killed by SIGSEGV"), "killed by SIGSEGV"),
        (session("failed", OomKilled=True, Reason="out of memory (limit 4G)"), "out of memory (limit 4G)"),
        (
            session("failed", HowEnded="terminal died", Reason="terminal server died (SIGKILL)"),
            "terminal server died (SIGKILL)",
        ),
        (session("running", Reason="the command runs", Unwritten="it is failed"), "it is failed"),
        (
            session("running", Reason="the command runs", Parked=True),
            "its process has ended; amux attach, send and resume bring it back",
        ),
        (
            session("running", Reason="the command runs", Parked=True, Resumable=False),
            "its process has ended, and nothing brings it back as it is; amux stop ends it",
        ),
    ],
)
def test_the_reason_does_not_say_the_status_again(properties: dict[str, Any], said: str) -> None:
    assert sessions.reason(properties, NOW) == said


def test_the_states_are_those_of_the_state_machine() -> None:
    assert list(sessions.STATES) == [state.value for state in State]
    assert states.ENDED == sessions.EXITED
    assert states.ENDED | {State.ARCHIVED} == sessions.ENDED
    assert set(badging.COUNTED) == states.BADGE


# Any file that is there.
LOG = __file__


@pytest.mark.parametrize(
    ("properties", "steps"),
    [
        (session("running", SessionAlive="alive", Possible=["stop"]), "attach send stop"),
        (session("running", SessionAlive="alive", Possible=["stop"], Frozen=True), "stop"),
        (session("running", SessionAlive="unknown", Possible=["stop"]), "stop"),
        (session("running", SessionAlive="dead", Possible=["stop"], LogPath=LOG), "stop logs"),
        (
            session("running", Parked=True, Resumable=True, Possible=["stop", "resume"]),
            "attach send stop resume",
        ),
        (session("running", Parked=True, Possible=["stop"]), "stop"),
        (
            session("created", StartedUSec=0, LogPath=LOG, Possible=["start", "archive", "rm"]),
            "start archive rm",
        ),
        # It waits until the session runs.
        (session("starting", Possible=[]), "stop"),
        (session("stopping", Possible=[]), ""),
        (
            session("completed", LogPath=LOG, Possible=["restart", "archive", "rm"]),
            "logs restart archive rm",
        ),
        (
            session("completed", LogPath="/nowhere/log", Possible=["restart", "archive", "rm"]),
            "restart archive rm",
        ),
        (session("completed", ShellOpen=True, Possible=["stop", "rm"]), "attach send stop rm"),
        (session("suspended", SessionAlive="unknown", LogPath=LOG, Possible=[]), "logs"),
        (session("unknown", HostAlive="alive", LogPath=LOG, Possible=["stop"]), "stop logs"),
        (session("unknown", HostAlive="dead", Possible=[]), "rm -f"),
    ],
)
def test_the_next_steps_are_those_that_amuxd_would_grant(properties: dict[str, Any], steps: str) -> None:
    assert " ".join(showing.next_steps(properties)) == steps


def test_json_has_null_where_there_is_nothing() -> None:
    properties = session(
        "running", Workspace="/", Pid=0, SessionAlive="unknown", HostAlive="alive", Description=""
    )
    shown = sessions.as_json(properties)
    assert shown["exit_code"] is None
    assert shown["exit_signal"] is None
    assert shown["workspace"] is None
    assert shown["session_alive"] is None
    assert shown["host_alive"] is True
    assert shown["description"] == ""
    assert shown["state_changed_usec"] == properties["StateChangedUSec"]
    assert sessions.as_json(session("completed", ExitCode=0))["exit_code"] == 0


def test_a_pipe_gets_every_column_and_no_tab_in_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "is_terminal", lambda: False)
    table = render.Table(("A", "B", "C"))
    table.add("x\ty", "", "z")
    assert table.lines() == ["A\tB\tC", "x\\ty\t-\tz"]


def test_the_environment_is_the_part_that_a_person_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "LC_TIME", "NVM_DIR", "https_proxy", "SECRET", "GIVEN"):
        monkeypatch.setenv(name, f"the {name}")
    monkeypatch.setenv("EDITOR", "vi\udcff")
    chosen = environment(("GIVEN", "MORE=a=b", "EMPTY="))
    assert "SECRET" not in chosen
    assert "EDITOR" not in chosen
    assert capsys.readouterr().err == "amux: EDITOR is left out: its value is not valid UTF-8\n"
    expected = {
        "PATH": "the PATH",
        "LC_TIME": "the LC_TIME",
        "GIVEN": "the GIVEN",
        "MORE": "a=b",
        "EMPTY": "",
    }
    assert expected.items() <= chosen.items()


@pytest.mark.parametrize("assignment", ["=x", "", "NOT_SET_HERE", "A=\udcff"])
def test_a_variable_that_cannot_be_set_is_refused(assignment: str) -> None:
    with pytest.raises(WrongUsage):
        environment((assignment,))
