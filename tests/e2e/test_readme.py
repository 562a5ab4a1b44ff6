"""The README's path, walked in a terminal; at each step all that tells of the session says the same."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.machine import REPOSITORY
from harness.terminal import Terminal
from harness.waiting import until
from harness.witnesses import Witnesses

from amuxd import config
from amuxd.cli import app

README = (REPOSITORY / "README.md").read_text()


def blocks(language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for named, text in found if named == language]


def shown(program: str) -> list[list[str]]:
    """The words of each command of the program that is in a code block, without the comment."""
    found = []
    for block in blocks():
        for line in block.replace("\\\n", " ").splitlines():
            if (line := line.removeprefix("$ ")).startswith(f"{program} "):
                words = shlex.split(line, comments=True)
                found.append(words[1 : words.index("&&") if "&&" in words else None])
    return found


def keys(pattern: str) -> str:
    """What the README says to press, as a terminal sends it."""
    named = re.search(pattern, README)
    assert named, pattern
    return "".join(
        chr(ord(key[-1].upper()) - 64) if key.startswith("Ctrl-") else key for key in named[1].split()
    )


DETACH = keys(r"(Ctrl-\w \w) leaves a session; it goes on")
RESTART = keys(r"the terminal says how, and (\w) starts it")


# What it shows is there.


@pytest.mark.parametrize("words", shown("amux"), ids=shlex.join)
def test_command_exists(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda _self, _context: None)
    app.amux.main(words, prog_name="amux", standalone_mode=False)


def test_every_option_named_is_one_of_a_command() -> None:
    text = "\n".join(line for line in README.splitlines() if "busctl" not in line)
    spans = [span for span in re.findall(r"`([^`\n]+)`", text) if span.startswith(("amux ", "-"))]
    named = {word for span in spans for word in re.findall(r"(?<!\S)--?[A-Za-z][a-z-]*", span)}
    context = click.Context(app.amux)
    commands = [app.amux.get_command(context, name) for name in app.COMMANDS]
    commands += [
        one for group in commands if isinstance(group, click.Group) for one in group.commands.values()
    ]
    options = {"--help", "--version"} | {
        option
        for command in commands
        if command
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {"--memory-max", "-C"} <= named
    assert named - options == set()


def test_make_knows_its_targets() -> None:
    targets = {words[0] for words in shown("make")}
    assert {"run", "test", "install"} <= targets
    makefile = (REPOSITORY / "Makefile").read_text()
    assert targets - set(re.findall(r"^(\w+):.*##", makefile, re.MULTILINE)) == set()


@pytest.mark.parametrize("text", blocks("toml"))
def test_settings_are_understood(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert config.load(file) != config.Settings()


def test_what_it_says_of_the_bus_works(amux: Amux) -> None:
    environment = amux.environment | {"PWD": str(amux.machine.home)}
    said = {}
    for words in shown("busctl"):
        if "monitor" not in words:
            command = [word.replace("$PWD", environment["PWD"]) for word in words]
            said[command[-1]] = amux.machine.run(["busctl", *command], env=environment).stdout
    assert amux.session("test").get("Command") == ["make", "test"]
    path = f"/org/amux/Amux1/sessions/{amux.session('test').id}"
    assert said["test"].strip() == f'o "{path}"'


def test_what_is_not_there_yet_is_refused(amux: Amux) -> None:
    section = README.partition("## Not yet")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert "`image`" in section
    assert "`host`" in section
    refused: list[dict[str, Any]] = [{"image": "debian"}, {"host": "container"}]
    for options in refused:
        with pytest.raises(CallFailed, match=r"there is no (option 'image'|host but local)"):
            amux.create(["true"], **options)
    assert amux.sessions() == {}


def test_settings_are_described_alike() -> None:
    """What a log does at its cap was told in one way here, and in another in the man page."""
    manual = (REPOSITORY / "man/amuxd.8").read_text()
    for text in (manual, README):
        told = " ".join(re.sub(r"\n\s*#", "", text[text.index("log_cap = ") :][:300]).split())
        assert "becomes output.log.1, in the place of an earlier one" in told


# The walk.


class Person:
    """In front of a terminal, with one session."""

    def __init__(self, amux: Amux) -> None:
        self.amux = amux
        self.witnesses = Witnesses(amux.machine, amux.bindir / "amux", amux.environment)

    @property
    def session(self) -> Session:
        return self.amux.session("build")

    def attach(self) -> Terminal:
        terminal = self.amux.terminal("attach", "build", columns=120)
        until(lambda: self.session.get("Attached") == 1)
        return terminal

    def detach(self, terminal: Terminal) -> None:
        terminal.type(DETACH)
        assert terminal.wait() == 0
        until(lambda: self.session.get("Attached") == 0)

    def does(self, *arguments: str, code: int = 0) -> str:
        """On a terminal of its own, to its end."""
        with self.amux.terminal(*arguments, columns=200) as terminal:
            assert terminal.wait() == code, terminal.text
            return terminal.text

    def amuxd_restarts(self) -> None:
        self.amux.restart()

    def amuxd_is_killed(self) -> None:
        former = self.amux.pid
        self.amux.kill()
        until(lambda: self.amux.pid not in (0, former), timeout=60)


DISTURBANCES: dict[str, Callable[[Person], None]] = {
    "restart of amuxd": Person.amuxd_restarts,
    "kill -9 of amuxd": Person.amuxd_is_killed,
}


def test_the_whole_path(amux: Amux) -> None:
    person = Person(amux)
    agree = person.witnesses.agree

    # Start something, and look.
    said = person.does("run", "-n", "build", "--", "sh")
    session = agree("build", "running")
    assert f"started build ({session['id']})" in said
    assert f"amux attach {session['id']}" in said
    assert "running" in person.does("ls")

    # Go in, type, and out.
    with person.attach() as terminal:
        terminal.type("echo typed-$((40+2))\r")
        terminal.expect("typed-42")
        assert agree("build", "running")["attached"] == 1
        person.detach(terminal)
    assert agree("build", "running")["pid"] == session["pid"]
    person.does("send", "build", "echo sent-$((40+3))")
    until(lambda: "sent-43" in person.session.log())

    for disturb in DISTURBANCES.values():
        disturb(person)
        assert agree("build", "running")["pid"] == session["pid"]

    # A crash while it is attached to: the terminal says how, and the key starts it again.
    with person.attach() as terminal:
        terminal.type("kill -SEGV $$\r")
        terminal.expect("SIGSEGV")
        assert person.session.wait_state("failed")
        crashed = agree("build", "failed")
        assert (crashed["exit_signal"], crashed["exit_code"], crashed["run"]) == ("SIGSEGV", None, 1)
        terminal.type(RESTART)
        person.session.wait_state("running")
        terminal.type("echo typed-$((40+4))\r")
        terminal.expect("typed-44")
        assert agree("build", "running")["run"] == 2
        person.detach(terminal)

    # A crash that nobody looks at, and each amuxd after it says the same.
    person.does("kill", "-s", "SEGV", "build")
    person.session.wait_state("failed")
    for disturb in DISTURBANCES.values():
        disturb(person)
        crashed = agree("build", "failed")
        assert (crashed["exit_signal"], crashed["run"]) == ("SIGSEGV", 2)
    assert "restarted build" in person.does("restart", "build")
    session = agree("build", "running")
    assert session["run"] == 3

    # Wait for it, with its own code, and amuxd restarted meanwhile.
    with amux.terminal("wait", "build") as waiting, amux.terminal("logs", "-f", "build") as following:
        for disturb in DISTURBANCES.values():
            disturb(person)
            assert agree("build", "running")["pid"] == session["pid"]
        person.does("send", "build", "echo last-$((40+5)); exit 3")
        following.expect("last-45")
        assert following.wait() == 0
        assert waiting.wait() == 3
    ended = agree("build", "failed")
    assert (ended["exit_code"], ended["exit_signal"], ended["run"]) == (3, None, 3)
    assert "last-45" in person.does("show", "build").partition("It last printed:")[2]

    # Stopped by hand, and completed by itself.
    person.does("restart", "build")
    person.does("stop", "build")
    assert agree("build", "stopped")["run"] == 4
    person.does("restart", "build")
    person.does("send", "build", "exit")
    person.does("wait", "build")
    assert agree("build", "completed")["exit_code"] == 0

    # Its terminal is killed, which leaves neither code nor signal, and each amuxd after it says the same.
    person.does("restart", "build")
    state = json.loads((amux.state / "sessions" / session["id"] / "state.json").read_text())
    amux.machine.kill(state["server"]["pid"])
    person.session.wait_state("failed")
    for disturb in (lambda _: None, *DISTURBANCES.values()):
        disturb(person)
        killed = agree("build", "failed")
        assert killed["reason"] == "terminal server died (SIGKILL)"
        assert (killed["how_ended"], killed["run"]) == ("terminal died", 6)

    # Another cannot even start.
    refused = person.does("run", "-n", "odd", "--", "/nowhere/to-be-found", code=1)
    assert "could not start: no such program: /nowhere/to-be-found" in refused
    assert agree("odd", "failed")["how_ended"] == "could not start"

    # All that was printed, and all that happened.
    for run, printed in (("1", "typed-42"), ("1", "sent-43"), ("2", "typed-44"), ("3", "last-45")):
        assert printed in person.does("logs", "--run", run, "build")
    history = json.loads(amux.cli("history", "--json", "build").stdout)
    ends = [(one["run"], one["to"]) for one in history if one["to"] in ("failed", "stopped", "completed")]
    assert ends == [
        (1, "failed"),
        (2, "failed"),
        (3, "failed"),
        (4, "stopped"),
        (5, "completed"),
        (6, "failed"),
    ]
    assert person.does("history", "build").count("\n") == len(history) + 1

    # Put it away.
    assert "archived build" in person.does("archive", "build")
    assert "build" not in person.does("ls")
    archived = agree("build", "archived")
    assert "removed build" in person.does("rm", "build")
    person.witnesses.agree_that_it_is_gone(archived)
    for disturb in DISTURBANCES.values():
        disturb(person)
        person.witnesses.agree_that_it_is_gone(archived)
