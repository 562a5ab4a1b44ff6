"""amux stop, kill, restart, archive, rm and send, against a stand-in for amuxd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import json
import signal

import pytest
from cli_fixtures import (
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)


def test_several_go_on_after_a_failure_and_the_first_failure_counts(build: Stand) -> None:
    build.amux("run", "nope")
    code, out, err = build.amux("stop", "nobody", "nope", "build")
    assert code == 3
    assert out == "stopped build (s001)\n"
    assert "no session 'nobody': did you mean 'build'?" in err
    assert "a failed session cannot be stopped" in err
    assert build.amux("stop", "nope", "nobody")[0] == 4


def test_the_other_verbs(build: Stand) -> None:
    assert build.amux("stop", "--grace", "2s", "build")[:2] == (0, "stopped build (s001)\n")
    assert build.amux("restart", "build")[:2] == (0, "restarted build (s001)\n")
    assert build.amux("kill", "build", "-s", "9")[:2] == (0, "sent SIGKILL to build (s001)\n")
    assert build.amux("kill", "build", "-s", "int")[1] == "sent SIGINT to build (s001)\n"
    assert build.amux("kill", "build", "-s", "NOISE")[0] == 2
    assert build.amux("rm", "build")[0] == 4
    assert build.amux("rm", "-f", "build")[:2] == (0, "removed build (s001)\n")
    assert build.amux("show", "build")[0] == 3


@pytest.mark.parametrize(("verb", "member"), [("stop", "Stop"), ("restart", "Restart")])
def test_ctrl_c_says_what_goes_on(build: Stand, verb: str, member: str) -> None:
    build.amux("run", "-n", "other", "make")
    build.tell("Behave", "s", json.dumps({"silent": [member]}))
    acting = build.begin(verb, "nobody", "build", "other")
    wait_for(lambda: build.tell("Calls")[0].count(member) == 2)
    acting.process.send_signal(signal.SIGINT)
    code, out, err = acting.ends()
    assert (code, out.strip()) == (130, "")
    assert f"amux: {verb} goes on for build (s001), other (s002)\n" in err


def test_send(build: Stand) -> None:
    assert build.amux("send", "build", "ls -l") == (0, "", "")
    build.amux("send", "--no-enter", "build", "y")
    build.amux("send", "build", "-", text="one\ntwo\n")
    typed = [call[2:] for call in build.sent() if call[0] == "Send"]
    assert typed == [["ls -l", True], ["y", False], ["one\ntwo", True]]
    assert build.amux("send", "build", "-", text="a\0b")[0] == 2
