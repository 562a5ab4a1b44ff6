"""What takes longer than amux would wait without a word from amuxd."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import
import re
import signal
import subprocess
import sys

import pytest
from cli_fixtures import (
    Background,
    Stand,
    build,  # noqa: F401
    bus,  # noqa: F401
    stand,  # noqa: F401
    wait_for,
)

IMPATIENT = """
from amuxd.cli import client, main
client.LONG = 0.3
client.Client.__init__.__defaults__ = (True, 1.0)
main()
"""
COMMANDS = [
    pytest.param("Stop", ["stop", "build"], "stopped build (s001)\n", id="stop"),
    pytest.param("Remove", ["rm", "-f", "build"], "removed build (s001)\n", id="rm"),
    pytest.param("Restart", ["restart", "build"], "restarted build (s001)\n", id="restart"),
    pytest.param("Send", ["send", "build", "text"], "", id="send"),
    pytest.param("CreateSession", ["run", "-n", "next", "make"], "started next (s002)\n", id="run"),
]


def begin(stand: Stand, member: str, command: list[str]) -> Background:
    """An amux of little patience, whose call amuxd has and does not answer."""
    before = calls(stand).count(member)
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *command],
        env=stand.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stand.running.append(process)
    wait_for(lambda: calls(stand).count(member) > before)
    return Background(process)


def calls(stand: Stand) -> list[str]:
    return list(stand.tell("Calls")[0])


@pytest.mark.parametrize(("member", "command", "said"), COMMANDS)
def test_as_long_as_amuxd_answers_it_is_waited_for(
    build: Stand, member: str, command: list[str], said: str
) -> None:
    build.tell("Behave", "s", f'{{"held": ["{member}"]}}')
    asking = begin(build, member, command)
    at_first = calls(build).count("Ping")
    # Each of them is asked only after all the time that amux has without a reply.
    wait_for(lambda: calls(build).count("Ping") >= at_first + 3)
    build.tell("Release")
    assert asking.ends() == (0, said, "")


@pytest.mark.parametrize(("member", "command", "said"), COMMANDS)
def test_an_amuxd_that_hangs_meanwhile_does_not_answer(
    build: Stand, member: str, command: list[str], said: str
) -> None:
    build.tell("Behave", "s", f'{{"held": ["{member}"]}}')
    asking = begin(build, member, command)
    assert build.standin is not None
    build.standin.send_signal(signal.SIGSTOP)
    code, out, err = asking.ends()
    assert (code, out) == (5, "")
    may = "; next may have been started" if command[0] == "run" else ""
    assert re.match(rf"amux: amuxd does not answer \(waited \d+ s\){may}\n", err), err


def test_an_amuxd_that_goes_away_meanwhile_is_said_to(build: Stand) -> None:
    build.tell("Behave", "s", '{"held": ["Stop"]}')
    asking = begin(build, "Stop", ["stop", "build"])
    at_first = calls(build).count("Ping")
    wait_for(lambda: calls(build).count("Ping") > at_first)
    build.stop()
    code, out, err = asking.ends()
    assert (code, out) == (5, "")
    assert err.startswith("amux: amuxd went away before it answered\n")
