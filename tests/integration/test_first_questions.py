"""A first question is asked once; and where nobody knows whether there is one, only a person has it go on."""

from agent_fixtures import Agents, Reboots, state_on_disk
from harness import as_claude
from harness.as_claude import say
from harness.daemon import Amux
from harness.waiting import until

WHY = "'drop it', which it was given, may be a question, and would be asked again"


def test_what_goes_on_is_not_asked_its_first_question_again(amux: Amux) -> None:
    session = as_claude.begin(amux, "drop it", "--model", "opus", name="talk")
    until(lambda: "heard drop it" in session.log())
    assert session.get("Command")[-3:] == ["drop it", "--model", "opus"]
    session.call("Park")
    say(session, "pears")
    assert "remembering ['drop it']" in session.log()
    session.stop()
    session.call("Resume")
    until(lambda: "remembering ['drop it', 'pears']" in session.log())
    conversation = state_on_disk(amux, session)["conversation_id"]
    assert session.get("Command") == ["claude", "--resume", conversation, "--model", "opus"]
    assert "By itself" not in amux.cli("show", "talk").stdout
    # Another conversation is asked it.
    session.stop()
    session.call("Restart")
    until(lambda: "heard drop it" in session.log())


def test_where_a_word_may_be_a_question_only_a_person_has_it_go_on(amux: Amux) -> None:
    amux.start()
    agents = Agents(amux)
    session = as_claude.begin(amux, "--verbose", "drop it", name="talk")
    other = as_claude.create(amux, as_claude.program(amux), name="other")
    until(lambda: "heard drop it" in session.log())
    agents.write("[agents.claude]\npark_after = 0.2\n")
    until(lambda: other.get("Parked"))
    assert not session.get("Parked")
    agents.write()
    shown = " ".join(amux.cli("show", "talk").stdout.split())
    assert f"By itself: neither parked nor resumed: {WHY}" in shown
    session.call("Park")
    refused = amux.cli("send", "talk", "pears", check=False)
    assert refused.returncode == 4
    told = f"talk stays parked: {WHY}; amux resume {session.id} brings it back all the same"
    assert refused.stderr == f"amux: {told}\n"
    assert "attach" not in amux.cli("show", "talk").stdout.split("Next:")[1]
    amux.cli("resume", "talk")
    until(lambda: "remembering ['drop it']" in session.log())


def test_where_a_word_may_be_a_question_it_does_not_come_back_after_a_reboot(amux: Amux) -> None:
    session = as_claude.begin(amux, "--verbose", "drop it", name="talk", resume="auto")
    other = as_claude.create(
        amux, as_claude.program(amux), "drop it", "--verbose", name="other", resume="auto"
    )
    for one in (session, other):
        until(lambda: "heard drop it" in one.log())  # noqa: B023
    Reboots(amux).reboot(session, other)
    until(lambda: other.get("Run") == 2 and other.state == "running")
    until(lambda: "remembering ['drop it']" in other.log())
    until(lambda: f"not resumed by itself: {WHY}" in session.get("Reason"))
    assert (session.state, session.get("Run")) == ("suspended", 1)
    session.call("Resume")
    until(lambda: session.log().count("heard drop it") == 1 and "remembering ['drop it']" in session.log())
