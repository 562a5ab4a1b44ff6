"""Resume and restart: each session gets its own conversation back, with the same flags, in the same place."""

import re

import pytest
from agent_fixtures import Agents, state_on_disk
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


def say(session: Session, text: str) -> None:
    session.send(text)
    until(lambda: re.search(rf"heard \d+: {text}", session.log()))


def test_two_sessions_in_one_directory_each_get_their_own_conversation_back(
    amux: Amux, agents: Agents
) -> None:
    one, two = agents.create(name="one"), agents.create(name="two")
    for session, text in ((one, "apples"), (two, "pears")):
        say(session, text)
        session.stop()
        assert session.get("Resumable")
    for session, text in ((two, "pears"), (one, "apples")):
        session.call("Resume")
        assert session.state == "running"
        assert session.get("Run") == 2
        until(lambda: f"remembering ['{text}']" in session.log())  # noqa: B023


def test_flags_environment_and_directory_are_given_again(amux: Amux, agents: Agents) -> None:
    agents.configure(env={"FROM_PROFILE": "1"})
    session = agents.create("standin", "--model", "large", env={"FROM_USER": "2"})
    until(lambda: re.search(r"model large\s+remembering \[\]", session.log()))
    session.stop()
    session.call("Resume")
    until(lambda: re.search(r"model large\s+remembering \[\]", session.log()))
    process = amux.machine.outside(f"/proc/{session.get('Pid')}")
    environment = (process / "environ").read_bytes().split(b"\0")
    assert {b"FROM_PROFILE=1", b"FROM_USER=2"} <= set(environment)
    assert (process / "cwd").readlink() == amux.machine.home
    conversation = state_on_disk(amux, session)["conversation_id"]
    assert session.get("Command")[-4:] == ["--resume", conversation, "--model", "large"]


def test_a_restart_begins_another_conversation_and_keeps_the_earlier_run(amux: Amux, agents: Agents) -> None:
    session = agents.create()
    say(session, "first")
    before = state_on_disk(amux, session)["conversation_id"]
    session.stop()
    assert f"Talked in:   {before}\n" in amux.cli("show", session.id).stdout
    session.call("Restart")
    until(lambda: "remembering []" in session.log())
    assert state_on_disk(amux, session)["conversation_id"] != before
    assert session.certificate(1)["conversation"] == before
    assert "heard 1: first" in amux.cli("logs", "--run", "1", session.id).stdout
    assert session.certificate(1)["reason"].startswith("stopped")
    assert "restart was asked for" in amux.cli("history", session.id).stdout


@pytest.mark.parametrize("ending", ["stop", "/exit", "/crash", "daemon"])
def test_restart_and_resume_from_every_rest(amux: Amux, agents: Agents, ending: str) -> None:
    session = agents.create()
    say(session, "first")
    if ending == "stop":
        session.stop()
    elif ending == "daemon":
        amux.stop()
        amux.machine.systemctl("stop", f"amux-{session.id}.service")
        amux.start()
        assert session.state == "suspended"
    else:
        session.send(ending)
        session.wait_state("completed", "failed")
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())
    session.stop()
    session.call("Restart")
    until(lambda: "remembering []" in session.log())
    assert [
        line for line in amux.cli("logs", "--run", "1", session.id).stdout.splitlines() if "heard" in line
    ]


def test_a_failed_resume_keeps_the_conversation(amux: Amux, agents: Agents) -> None:
    session = agents.create()
    say(session, "first")
    session.stop()
    agents.configure(extra=("--refuse",))
    session.call("Resume")
    session.wait_state("failed")
    assert session.get("Resumable")
    agents.configure()
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())


def test_a_resume_that_cannot_start_keeps_the_conversation(amux: Amux, agents: Agents) -> None:
    session = agents.create()
    say(session, "first")
    conversation = state_on_disk(amux, session)["conversation_id"]
    session.stop()
    agents.configure(
        start=["no-such-program", "{conversation}"], resume=["no-such-program", "{conversation}"]
    )
    for verb in ("Resume", "Restart"):
        with pytest.raises(CallFailed, match="could not start: no such program: no-such-program") as refused:
            session.call(verb)
        assert refused.value.name == "org.amux.Amux1.Error.LaunchFailed"
        assert session.state == "failed"
        assert session.get("Reason") == "could not start: no such program: no-such-program"
    assert state_on_disk(amux, session)["conversation_id"] == conversation
    agents.configure()
    session.call("Resume")
    until(lambda: "remembering ['first']" in session.log())


def test_what_cannot_be_resumed_says_why_and_what_can_be_done(amux: Amux, agents: Agents) -> None:
    plain = amux.create(["true"])
    plain.wait_state("completed")
    assert not plain.get("Resumable")
    refused = amux.cli("resume", plain.id, check=False)
    assert refused.returncode == 4
    assert refused.stderr == (
        "amux: true cannot be resumed: it is no agent, and so has no conversation; "
        "possible: restart, archive, rm\n"
    )
    agents.configure("mute", resume=[])
    mute = agents.create("mute")
    mute.stop()
    with pytest.raises(CallFailed, match="mute has no way to continue a conversation") as error:
        mute.call("Resume")
    assert error.value.name == "org.amux.Amux1.Error.NotResumable"
    running = agents.create()
    with pytest.raises(CallFailed, match="resume is not possible") as error:
        running.call("Resume")
    assert error.value.name == "org.amux.Amux1.Error.InvalidTransition"


def test_a_profile_that_went_away_leaves_its_sessions(amux: Amux, agents: Agents) -> None:
    session = agents.create("standin", "--model", "x")
    begun = session.get("Command")
    assert begun[-2:] == ["--model", "x"]
    session.stop()
    reason = session.get("Reason")
    assert {"restart", "resume"} <= set(session.get("Possible"))
    amux.config.unlink()
    amux.manager.call("Reload")
    # What was run was run.
    assert session.get("Command") == begun
    with pytest.raises(CallFailed, match="there is no agent 'standin' any more") as refused:
        session.call("Resume")
    assert refused.value.name == "org.amux.Amux1.Error.NotResumable"
    refusal = amux.cli("restart", session.id, check=False)
    assert refusal.returncode == 4
    assert "restart is not possible: there is no agent 'standin' any more" in refusal.stderr
    # It ended well, and has not failed for that.
    assert (session.state, session.get("Reason"), session.get("Run")) == ("stopped", reason, 1)
    assert f"Next:        amux logs|archive|rm {session.id}" in amux.cli("show", session.id).stdout


def test_an_agent_that_chooses_its_conversation_is_found_out(amux: Amux, agents: Agents) -> None:
    """codex does: the file that its own process writes names it, and no other session's does."""
    agents.configure("codex", own=True)
    one, two = agents.create("codex", name="one"), agents.create("codex", name="two")
    assert not one.get("Resumable")
    for session, text in ((one, "apples"), (two, "pears")):
        say(session, text)
        until(lambda: state_on_disk(amux, session)["conversation_id"])  # noqa: B023
        session.stop()
    one.call("Resume")
    until(lambda: "remembering ['apples']" in one.log())
    one.stop()
    one.call("Restart")
    until(lambda: "remembering []" in one.log())
    before = state_on_disk(amux, two)["conversation_id"]
    say(one, "plums")
    found = until(lambda: state_on_disk(amux, one)["conversation_id"])
    assert re.fullmatch(r"[0-9a-f-]{36}", found)
    assert found != before


def test_one_that_chooses_its_conversation_is_followed_to_the_next(amux: Amux, agents: Agents) -> None:
    """codex does with /new, and nobody tells; what another session in that directory writes is not its."""
    agents.configure("codex", own=True)
    one, two = agents.create("codex", name="one"), agents.create("codex", name="two")
    for session, text in ((one, "apples"), (two, "pears")):
        say(session, text)
        until(lambda: state_on_disk(amux, session)["conversation_id"])  # noqa: B023
    first = state_on_disk(amux, one)["conversation_id"]
    one.send("/new")
    until(lambda: one.log().count("remembering []") == 2)
    say(one, "plums")
    say(two, "grapes")
    until(lambda: state_on_disk(amux, one)["conversation_id"] != first, timeout=60)
    for session in (one, two):
        session.stop()
        session.call("Resume")
    until(lambda: "remembering ['plums']" in one.log())
    until(lambda: "remembering ['pears', 'grapes']" in two.log())
    # And at its end, however soon that comes.
    two.send("/new")
    until(lambda: "remembering []" in two.log())
    say(two, "figs")
    two.stop()
    two.call("Resume")
    until(lambda: "remembering ['figs']" in two.log())


def test_an_agent_that_goes_over_to_another_conversation_is_followed(amux: Amux, agents: Agents) -> None:
    """claude does with /clear, and its hook says so: the last one that it was in is resumed."""
    agents.configure(extra=("--hook", f"{amux.bindir}/amux report --hook conversation"))
    one, two = agents.create(name="one"), agents.create(name="two")
    first = state_on_disk(amux, one)["conversation_id"]
    say(one, "apples")
    say(two, "plums")
    one.send("/clear")
    until(lambda: "cleared, and its hook said 0" in one.log())
    second = state_on_disk(amux, one)["conversation_id"]
    assert second != first
    say(one, "pears")
    one.stop()
    two.stop()
    for session in (one, two):
        session.call("Resume")
    until(lambda: "remembering ['pears']" in one.log())
    until(lambda: "remembering ['plums']" in two.log())
    assert state_on_disk(amux, one)["conversation_id"] == second


def test_the_cli_starts_agents(amux: Amux, agents: Agents) -> None:
    home = amux.machine.home
    amux.cli("run", "-a", "standin", "-n", "talk", "-C", str(home), "--", "--model", "cli")
    session = amux.session("talk")
    until(lambda: "model cli" in session.log())
    assert session.get("Agent") == "standin"
    assert amux.cli("run", "-a", "nobody", check=False).returncode == 2
    for given in ([], ["--", "x"]):
        refused = amux.cli("run", "-a", "standin", "--shell", *given, check=False)
        assert refused.stderr == "amux: an agent is not started in a shell\n"
    amux.cli("stop", "talk")
    assert "resume" in amux.cli("show", "talk").stdout.split("Next:")[1]
    with amux.terminal("attach", "talk") as terminal:
        terminal.expect("[C] Cancel ")
        until(terminal.takes_keys)
        terminal.type("s")
        terminal.expect("remembering []")
    session.stop()
    assert amux.cli("resume", "talk").stdout == f"resumed talk ({session.id})\n"
