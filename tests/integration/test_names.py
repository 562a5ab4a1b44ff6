"""Whatever a session is called, amux finds it by that, and says what was perhaps meant."""

import pytest
from harness.daemon import Amux
from harness.waiting import until

NAMES = {"blanks": "my long build", "emoji": "✨ über 👩‍💻", "longest": "x" * 200, "dash": "-fast"}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_every_verb_finds_it(amux: Amux, name: str) -> None:
    key = amux.cli("run", "-q", "-n", name, "sh", "-c", "echo ready; exec cat").stdout.strip()
    label = f"{name} ({key})"
    assert f"Session:     {label}\n" in amux.cli("show", "--", name).stdout
    assert f"\t{name}\t" in amux.cli("ls").stdout
    until(lambda: "ready" in amux.cli("logs", "--", name).stdout)
    with amux.terminal("attach", "--", name, columns=250) as terminal:
        terminal.expect("ready")
        terminal.expect(name[:38])
    amux.cli("send", "--", name, "typed")
    until(lambda: "typed" in amux.cli("logs", "-n", "2", "--", name).stdout)
    assert amux.cli("stop", "--", name).stdout == f"stopped {label}\n"
    assert amux.cli("rm", "--", name).stdout == f"removed {label}\n"
    assert amux.cli("show", "--", name, check=False).returncode == 3


@pytest.mark.parametrize("meant", ["webap", "WEBAPP", "wepapp", "Webapp"])
def test_what_was_perhaps_meant(amux: Amux, meant: str) -> None:
    amux.create(["sleep", "infinity"], name="webapp")
    amux.create(["sleep", "infinity"], name="other")
    refused = amux.cli("show", meant, check=False)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert (
        refused.stderr == f"amux: there is no session {meant!r}; did you mean 'webapp'?\n      amux ls -a\n"
    )


def test_where_nothing_is_near_nothing_is_suggested(amux: Amux) -> None:
    amux.create(["sleep", "infinity"], name="webapp")
    refused = amux.cli("show", "zzz", check=False)
    assert refused.stderr == "amux: there is no session 'zzz'\n      amux ls -a\n"


@pytest.mark.parametrize("typed", ["my", r"my\ lo"])
def test_bash_completes_a_name_as_one_word(amux: Amux, typed: str) -> None:
    amux.create(["sleep", "infinity"], name="my long build")
    script = """
        eval "$(amux completion bash)"
        COMP_WORDS=(amux show "$1") COMP_CWORD=2
        _amux_completion amux
        eval "printf '<%s>' ${COMPREPLY[*]}"
    """
    completed = amux.machine.run(["bash", "-c", script, "bash", typed], env=amux.environment)
    assert completed.stdout == "<my long build>"


def test_the_log_of_one_that_has_not_begun(amux: Amux) -> None:
    session = amux.create(["true"], name="later", start=False)
    for options in ([], ["-f"]):
        refused = amux.cli("logs", *options, "later", check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        told, hint = refused.stderr.splitlines()
        assert told == f"amux: later ({session.id}) has not begun, and printed nothing yet"
        assert hint.strip() == f"amux show {session.id}"


TOO_LONG = "x" * 300


@pytest.mark.parametrize(
    ("options", "about"),
    [([f"/{TOO_LONG}/prog"], f"/{TOO_LONG}/prog"), ([TOO_LONG], TOO_LONG)],
)
def test_a_path_that_no_file_can_have(amux: Amux, options: list[str], about: str) -> None:
    refused = amux.cli("run", "-n", "odd", *options, check=False)
    assert refused.returncode == 1
    reason = amux.session("odd").get("Reason")
    assert "Errno" not in reason
    assert reason.startswith("could not start: ")
    assert about in reason
