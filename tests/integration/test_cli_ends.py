"""How amux tells that a command ended by a signal, with an amuxd that saw it."""

import subprocess
from signal import SIGRTMIN

import pytest
from harness.daemon import Amux
from harness.waiting import until

ENDLESS = ["sh", "-c", "echo ready; exec sleep infinity"]


@pytest.mark.parametrize(
    ("word", "name", "number"),
    [
        ("TERM", "SIGTERM", 15),
        ("9", "SIGKILL", 9),
        ("SIGRTMIN+3", "SIGRTMIN+3", SIGRTMIN + 3),
        ("rtmin+1", "SIGRTMIN+1", SIGRTMIN + 1),
        (str(SIGRTMIN + 2), "SIGRTMIN+2", SIGRTMIN + 2),
    ],
)
def test_a_signal_is_sent_and_is_the_exit_code(amux: Amux, word: str, name: str, number: int) -> None:
    session = amux.create(ENDLESS, name="build")
    until(lambda: "ready" in session.log())
    waiting = amux.popen("wait", "build", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert amux.cli("kill", "-s", word, "build").stdout == f"sent {name} to build ({session.id})\n"
    assert (*waiting.communicate(timeout=60), waiting.returncode) == ("", "", 128 + number)
    assert amux.cli("wait", "build", check=False).returncode == 128 + number
    assert f"killed by {name}" in amux.cli("show", "build").stdout


def test_run_and_wait_gives_a_signal_for_real_time_too(amux: Amux) -> None:
    command = ["sh", "-c", f"kill -{SIGRTMIN + 3} $$"]
    assert amux.cli("run", "--wait", *command, check=False).returncode == 128 + SIGRTMIN + 3


@pytest.mark.parametrize("word", ["NOISE", "0", "65", "RTMIN+99", ""])
def test_what_is_no_signal_is_refused_before_amuxd_is_asked(amux: Amux, word: str) -> None:
    refused = amux.cli("kill", "-s", word, "nobody", check=False)
    assert refused.returncode == 2
    assert f"{word!r} is not a signal such as TERM, SIGINT or 9" in refused.stderr


def test_what_is_archived_has_not_succeeded_by_that(amux: Amux) -> None:
    for name, command, code in (
        ("lost", ["/nonexistent"], 1),
        ("well", ["true"], 0),
        ("badly", ["sh", "-c", "exit 3"], 3),
    ):
        amux.cli("run", "--wait", "-n", name, "--", *command, check=False)
        amux.cli("archive", name)
        assert amux.cli("wait", name, check=False).returncode == code
    created = amux.create(["true"], start=False)
    created.call("Archive")
    assert amux.cli("wait", created.id, check=False).returncode == 1
