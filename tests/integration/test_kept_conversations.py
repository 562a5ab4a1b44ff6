"""Where an agent keeps its conversations decides whether one goes on, and with which of its options."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_fixtures import Reboots, state_file, state_on_disk
from harness import as_claude, hung_mount
from harness.as_claude import say
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.waiting import until
from test_hung_mount import hung


def claude(amux: Client, name: str = "talk") -> Session:
    return as_claude.begin(amux, name=name)


@contextmanager
def variable_of_the_manager(amux: Amux, name: str, value: str) -> Iterator[None]:
    amux.machine.systemctl("set-environment", f"{name}={value}")
    try:
        yield
    finally:
        amux.machine.systemctl("unset-environment", name)


@pytest.mark.parametrize("amuxd_has_it", [True, False])
def test_where_the_user_manager_says_that_conversations_are_kept(amux: Amux, amuxd_has_it: bool) -> None:
    """A session's unit gets the variable as well, whatever amuxd itself was started with."""
    elsewhere = amux.machine.home / "elsewhere"
    amux.start()
    with variable_of_the_manager(amux, "CLAUDE_CONFIG_DIR", str(elsewhere)):
        if amuxd_has_it:
            amux.restart()
        session = claude(amux)
        say(session, "apples")
        assert list(elsewhere.glob("projects/*/*.jsonl"))
        session.call("Park")
        say(session, "pears")
        session.stop()
        session.call("Resume")
        until(lambda: "remembering ['apples', 'pears']" in session.log())
        assert session.state == "running"


def test_what_does_not_reach_a_session_without_systemd_does_not_count(embedded: Embedded) -> None:
    embedded.cli("ls", env={"CLAUDE_CONFIG_DIR": str(embedded.machine.home / "elsewhere")})
    session = claude(embedded)
    say(session, "apples")
    session.call("Park")
    say(session, "pears")
    session.stop()
    session.call("Resume")
    until(lambda: "remembering ['apples', 'pears']" in session.log())


@contextmanager
def kept_no_more(amux: Client) -> Iterator[None]:
    """claude removes what is older than its user wants it kept."""
    place, aside = amux.machine.home / ".claude", amux.machine.home / "aside"
    place.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)


def why_lost(amux: Client, session: Session) -> str:
    conversation = state_on_disk(amux, session)["conversation_id"]
    return f"nothing is kept in {amux.machine.home}/.claude of its conversation {conversation}"


def test_what_was_said_and_is_kept_no_more_is_not_resumed_as_nothing(amux: Amux) -> None:
    session = claude(amux)
    say(session, "apples")
    session.stop()
    assert session.get("Resumable")
    with kept_no_more(amux):
        refused = amux.cli("resume", "talk", check=False)
        assert refused.returncode == 4
        possible = "possible: restart, archive, rm"
        assert refused.stderr == f"amux: talk cannot be resumed: {why_lost(amux, session)}; {possible}\n"
        assert (session.state, session.get("Run"), session.get("Resumable")) == ("stopped", 1, False)
        shown = amux.cli("show", "talk").stdout
        assert f"not possible: {why_lost(amux, session)}"[:60] in shown
        assert "resume" not in shown.split("Next:")[1]
    amux.cli("resume", "talk")
    until(lambda: "remembering ['apples']" in session.log())
    assert "not possible" not in amux.cli("show", "talk").stdout


def test_who_comes_for_a_stopped_one_that_is_kept_no_more_hears_why_it_is_not_resumed(amux: Amux) -> None:
    session = claude(amux)
    say(session, "apples")
    session.stop()
    assert "cannot be resumed" not in amux.cli("send", "talk", "pears", check=False).stderr
    with kept_no_more(amux):
        told = f"it cannot be resumed: {why_lost(amux, session)}\n"
        refused = amux.cli("send", "talk", "pears", check=False)
        assert refused.returncode == 4
        possible = "possible: restart, archive, rm"
        assert refused.stderr == f"amux: talk is stopped, send is not possible; {possible}; {told}"
        refused = amux.cli("attach", "talk", check=False)
        assert refused.returncode == 4
        assert refused.stderr.startswith(f"amux: talk ({session.id}) is stopped: exited with code 0; {told}")
        with amux.terminal("attach", "talk", columns=250) as terminal:
            terminal.expect("it cannot be resumed: nothing is kept in")
            terminal.expect("[R] Restart  [T] Teardown (archive for good)  [C] Cancel")


def test_what_is_sent_to_a_parked_one_that_is_kept_no_more_is_refused(amux: Amux) -> None:
    session = claude(amux)
    say(session, "apples")
    session.call("Park")
    with kept_no_more(amux):
        why = f"talk stays parked: {why_lost(amux, session)}; possible: stop, and then restart"
        for verb in (["send", "talk", "pears"], ["resume", "talk"]):
            refused = amux.cli(*verb, check=False)
            assert (refused.returncode, refused.stderr) == (4, f"amux: {why}\n")
        with amux.terminal("attach", "talk") as terminal:
            terminal.expect("talk stays parked: nothing is kept in")
            assert terminal.wait() == 4
        shown = amux.cli("show", "talk").stdout
        assert f"not possible: {why_lost(amux, session)}"[:60] in shown
        assert re.search(
            r"State: +running \(parked .*\): its process has ended, and nothing brings it back", shown
        )
        assert shown.count("bring") == 1
        assert (session.state, session.get("Parked")) == ("running", True)
        assert session.log().count("remembering") == 1
    say(session, "pears")
    assert "remembering ['apples']" in session.log()


def test_one_that_is_kept_no_more_is_not_parked(amux: Amux) -> None:
    """As long as its process lives, it may know what was said."""
    session = claude(amux)
    say(session, "apples")
    until(lambda: state_on_disk(amux, session)["said"])
    with kept_no_more(amux):
        refused = amux.cli("park", "talk", check=False)
        assert refused.returncode == 4
        assert f"could not be brought back: {why_lost(amux, session)}" in refused.stderr
        assert not session.get("Parked")


def test_that_something_was_said_outlives_an_amuxd_that_is_killed(amux: Amux) -> None:
    session = claude(amux)
    assert state_on_disk(amux, session)["said"] is False
    say(session, "apples")
    until(lambda: state_on_disk(amux, session)["said"])
    amux.kill()
    with kept_no_more(amux):
        amux.start()
        session.stop()
        assert amux.cli("resume", "talk", check=False).returncode == 4


def report(amux: Amux, session: Session, *words: str) -> None:
    token = amux.state / "sessions" / session.id / "runs" / str(session.get("Run")) / "token"
    environment = {
        "AMUX_SESSION_ID": session.id,
        "AMUX_TOKEN": token.read_text().strip(),
        "AMUX_SOCKET": str(amux.runtime / "amuxd.sock"),
    }
    amux.cli("report", *words, env=environment)


def test_a_hook_tells_that_something_was_said(amux: Amux) -> None:
    session = claude(amux)
    report(amux, session, "bell")
    assert state_on_disk(amux, session)["said"] is False
    report(amux, session, "turn", "done")
    assert state_on_disk(amux, session)["said"] is True
    session.stop()
    assert amux.cli("resume", "talk", check=False).returncode == 4


def test_a_conversation_to_which_nothing_was_said_begins_again(amux: Amux) -> None:
    session = claude(amux)
    conversation = state_on_disk(amux, session)["conversation_id"]
    session.stop()
    session.call("Resume")
    until(lambda: "remembering []" in session.log())
    assert state_on_disk(amux, session)["conversation_id"] == conversation
    assert state_on_disk(amux, session)["said"] is False
    # And so does another one that the agent has gone over to.
    say(session, "apples")
    until(lambda: state_on_disk(amux, session)["said"])
    report(amux, session, "conversation", "0b9bff9c-6f4e-4c0c-a3c5-31a1f6c7f6a4")
    assert state_on_disk(amux, session)["said"] is False
    report(amux, session, "conversation", conversation)
    assert state_on_disk(amux, session)["said"] is True


def without(path: Path, key: str) -> None:
    state = json.loads(path.read_text())
    del state[key]
    path.write_text(json.dumps(state))


def test_of_one_that_an_older_amuxd_kept_it_is_not_known_whether_anything_was_said(amux: Amux) -> None:
    said, silent = claude(amux, "said"), claude(amux, "silent")
    say(said, "apples")
    for session in (said, silent):
        session.stop()
    amux.stop()
    for session in (said, silent):
        without(state_file(amux, session), "said")
    amux.start()
    said.call("Resume")
    until(lambda: "remembering ['apples']" in said.log())
    refused = amux.cli("resume", "silent", check=False)
    assert refused.returncode == 4
    assert f"{why_lost(amux, silent)}, and whether anything was said in it is not known" in refused.stderr


@pytest.mark.skipif(not Path(hung_mount.DEVICE).exists(), reason="there is no /dev/fuse")
def test_what_could_not_be_looked_into_at_a_shutdown_is_looked_into_after_it(amux: Amux) -> None:
    fresh, said = claude(amux, "fresh"), claude(amux, "said")
    say(said, "apples")
    with hung(amux, amux.machine.home / ".claude"):
        amux.stop()
    # Of the other one it may have been known already.
    assert state_on_disk(amux, fresh)["said"] is None
    with kept_no_more(amux):
        # What it is kept in may be mounted later.
        Reboots(amux).reboot(fresh, said)
        refused = amux.cli("resume", "fresh", check=False)
        assert refused.returncode == 4
        assert f"{why_lost(amux, fresh)}, and whether anything was said in it is not known" in refused.stderr
        assert state_on_disk(amux, fresh)["said"] is None
    until(lambda: state_on_disk(amux, fresh)["said"] is False)
    until(lambda: state_on_disk(amux, said)["said"] is True)
    with kept_no_more(amux):
        # By then claude may have removed it.
        assert amux.cli("resume", "said", check=False).returncode == 4
        fresh.call("Resume")
        until(lambda: "remembering []" in fresh.log())
    said.call("Resume")
    until(lambda: "remembering ['apples']" in said.log())


@pytest.mark.skipif(not Path(hung_mount.DEVICE).exists(), reason="there is no /dev/fuse")
def test_what_could_not_be_looked_into_at_its_end_is_looked_into_soon(amux: Amux) -> None:
    fresh, said = claude(amux, "fresh"), claude(amux, "said")
    say(said, "apples")
    with hung(amux, amux.machine.home / ".claude"):
        fresh.stop()
        assert state_on_disk(amux, fresh)["said"] is None
    until(lambda: state_on_disk(amux, fresh)["said"] is False)
    fresh.call("Resume")
    until(lambda: "remembering []" in fresh.log())
    assert state_on_disk(amux, fresh)["said"] is False


def test_how_an_earlier_run_ended_is_shown(amux: Amux) -> None:
    session = claude(amux)
    say(session, "apples")
    conversation = state_on_disk(amux, session)["conversation_id"]
    session.stop()
    session.call("Restart")
    shown = " ".join(amux.cli("show", "--run", "1", "talk").stdout.split())
    assert shown.startswith(f"Session: talk ({session.id}) Run: 1 Ended: stopped; exited with code 0, ")
    assert f"Talked in: {conversation} Log: {amux.state}/sessions/{session.id}/runs/1/output.log" in shown
    assert "heard apples" in shown
    told = json.loads(amux.cli("show", "--run", "1", "--json", "talk").stdout)
    assert (told["id"], told["run"], told["conversation"]) == (session.id, 1, conversation)
    assert (told["exit_code"], told["signal"], told["known"]) == (0, None, True)
    for run, why in (
        ("2", "run 2 of talk has not ended"),
        ("3", "there is no run 3 of talk: the latest is run 2"),
    ):
        refused = amux.cli("show", "--run", run, "talk", check=False)
        assert refused.returncode == 2
        assert why in refused.stderr
    refused = amux.cli("logs", "--run", "3", "talk", check=False)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"amux: there is no run 3 of talk ({session.id}): the latest is run 2\n",
    )
