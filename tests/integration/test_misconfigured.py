"""A typo in the configuration: nothing goes that the user may have said to keep, and he is told."""

import json
from pathlib import Path

import pytest
from agent_fixtures import Agents, Reboots, state_on_disk
from harness.bus import CallFailed
from harness.client import Session
from harness.daemon import Amux
from harness.waiting import until

AT_ONCE = "[retention]\ncompleted = 0\nstopped = 0\n"
TYPO = '[retention]\ncompleted = "nevr"\n'
WRONG = "retention.completed: "


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


@pytest.fixture
def machine_reboots(amux: Amux) -> Reboots:
    return Reboots(amux)


def misconfigure(amux: Amux, text: str = TYPO) -> None:
    amux.stop()
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(text)
    amux.start()


def done(amux: Amux) -> Session:
    session = amux.create(["true"], name="done")
    session.wait_state("completed")
    session.certificate()
    return session


def refused_to_clean(amux: Amux, *options: str) -> str:
    refused = amux.cli("clean", *options, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert line.startswith(f"amux: nothing is removed while the configuration is wrong: {amux.config}")
    return line


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (TYPO, WRONG),
        ("[retention\n", "cannot be read: "),
        ('[retention]\ncompleted = "0"\n[retnetion]\n', ""),
    ],
)
def test_nothing_is_removed(amux: Amux, text: str, wrong: str) -> None:
    session = done(amux)
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(AT_ONCE)
    amux.manager.call("Reload")
    # Neither by the settings of before, where nobody has it read again, nor by the defaults.
    amux.config.write_text(text)
    assert wrong in refused_to_clean(amux)
    assert wrong in refused_to_clean(amux, "--dry-run")
    misconfigure(amux, text)
    with pytest.raises(CallFailed) as error:
        amux.manager.call("Clean", "a{sv}", {})
    assert error.value.name == "org.amux.Amux1.Error.ConfigurationError"
    refused_to_clean(amux, "--dry-run")
    assert set(amux.sessions()) == {session.id}
    amux.config.write_text(AT_ONCE)
    assert amux.cli("clean").stdout == f"removed done ({session.id})\n"


def test_the_user_is_told_until_it_is_right(amux: Amux) -> None:
    done(amux)
    assert amux.manager.get("ConfigurationError") == ""
    misconfigure(amux)
    assert WRONG in amux.manager.get("ConfigurationError")
    for command in (["ls"], ["ls", "--json"], ["show", "done"], ["show", "--json", "done"]):
        told = amux.cli(*command)
        [line] = told.stderr.splitlines()
        assert line.startswith(f"amux: the configuration is wrong: {amux.config}: {WRONG}")
        assert "the configuration" not in told.stdout
        if "--json" in command:
            json.loads(told.stdout)
    amux.config.write_text("")
    amux.machine.systemctl("kill", "--signal=SIGHUP", "amuxd.service")
    until(lambda: amux.manager.get("ConfigurationError") == "")
    assert amux.cli("ls").stderr == ""
    amux.config.write_text(TYPO)
    with amux.events() as events:
        amux.machine.systemctl("kill", "--signal=SIGHUP", "amuxd.service")
        events.wait(
            lambda event: event.member == "PropertiesChanged" and "ConfigurationError" in event.body[1]
        )
    assert WRONG in amux.cli("ls").stderr
    amux.config.unlink()
    amux.manager.call("Reload")
    assert amux.cli("ls").stderr == ""


@pytest.mark.parametrize("setting", ['directory = "~nobody-here/x"', 'setup = { "~nobody-here/x" = "make" }'])
def test_the_home_of_nobody_is_wrong_as_anything_else_is(amux: Amux, setting: str) -> None:
    wrong = f"[workspaces]\n{setting}\n"
    name = setting.split()[0]
    why = f"{amux.config}: workspaces.{name}: '~nobody-here/x' begins with a home that is not known"
    misconfigure(amux, wrong)
    assert amux.manager.get("ConfigurationError") == why
    assert amux.cli("ls").stderr.startswith(f"amux: the configuration is wrong: {why}; ")
    amux.config.write_text('[workspaces]\nsetup = "make"\n')
    amux.manager.call("Reload")
    amux.config.write_text(wrong)
    with pytest.raises(CallFailed) as refused:
        amux.manager.call("Reload")
    assert (refused.value.name, refused.value.message) == ("org.amux.Amux1.Error.InvalidArgument", why)
    assert amux.manager.get("ConfigurationError") == why


def is_told(line: str, amux: Amux) -> bool:
    return line.startswith(f"amux: the configuration is wrong: {amux.config}: {WRONG}")


@pytest.mark.parametrize("command", [["badge"], ["ws", "add", "here", "--path", "/"]])
def test_who_asks_once_is_told_once(amux: Amux, command: list[str]) -> None:
    misconfigure(amux)
    told = amux.cli(*command)
    [line] = told.stderr.splitlines()
    assert is_told(line, amux)
    assert told.stdout in ("0\n", "added here: /\n")


@pytest.mark.parametrize(
    "command", [["badge", "--follow"], ["badge", "--waybar"], ["ls", "--watch"], ["ls", "--watch", "--json"]]
)
def test_who_looks_on_is_told_once(amux: Amux, command: list[str], tmp_path: Path) -> None:
    misconfigure(amux)
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as stdout, err.open("w") as stderr:
        looking = amux.popen(*command, stdout=stdout, stderr=stderr)
    try:
        until(out.read_text)
        for _ in range(2):
            before = out.read_text()
            amux.create(["sleep", "infinity"])
            until(lambda: out.read_text() != before)  # noqa: B023
        [line] = err.read_text().splitlines()
        assert is_told(line, amux)
        assert "configuration" not in out.read_text()
        # Something else is wrong, and then nothing.
        amux.config.write_text("[retention\n")
        amux.machine.systemctl("kill", "--signal=SIGHUP", "amuxd.service")
        until(lambda: amux.manager.get("ConfigurationError").count("cannot be read"))
        amux.create(["sleep", "infinity"])
        until(lambda: "cannot be read" in err.read_text())
        assert len(err.read_text().splitlines()) == 2
    finally:
        looking.kill()
        looking.wait(20)


def test_on_a_terminal_the_list_says_so_as_long_as_it_is_so(amux: Amux) -> None:
    misconfigure(amux)
    done(amux)
    with amux.terminal("ls", "--watch", columns=120) as terminal:
        terminal.expect("the configuration is wrong: ")
        terminal.expect("completed")
        amux.config.write_text("")
        amux.manager.call("Reload")
        amux.create(["sleep", "infinity"], name="later")
        assert "the configuration" not in terminal.expect("later").rpartition("SESSION")[0][-200:]


def test_an_agent_of_the_users_own_waits_for_its_profile(amux: Amux, agents: Agents) -> None:
    session, created = agents.create(name="done"), agents.create(name="new", start=False)
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    session.stop()
    before = state_on_disk(amux, session)
    text = amux.config.read_text()
    misconfigure(amux)
    why = f"agent 'standin' is not known while the configuration is wrong: {amux.config}: {WRONG}"
    for verb, name in (("resume", "done"), ("restart", "done")):
        refused = amux.cli(verb, name, check=False)
        assert refused.returncode == 4
        assert f"{verb} is not possible: {why}" in refused.stderr
    with pytest.raises(CallFailed, match="start is not possible: agent 'standin' is not known"):
        created.call("Start")
    refused = amux.cli("run", "-a", "standin", check=False)
    assert refused.returncode == 2
    assert why in refused.stderr
    assert (session.state, created.state) == ("stopped", "created")
    assert state_on_disk(amux, session)["run"] == before["run"]
    amux.config.write_text(text)
    amux.manager.call("Reload")
    amux.cli("resume", "done")
    created.call("Start")
    assert (session.state, created.state) == ("running", "running")


def test_no_agent_comes_back_by_itself_until_its_profile_is_known(
    amux: Amux, agents: Agents, machine_reboots: Reboots
) -> None:
    session, plain = agents.create(resume="auto"), amux.create(["sleep", "1000"], resume="auto")
    session.send("first")
    until(lambda: "heard 1: first" in session.log())
    text = amux.config.read_text()
    # What is built in is the user's own as well, as soon as he changes it.
    amux.config.write_text(text.replace("agents.standin", "agents.claude") + text + "tpyo = 1\n")
    machine_reboots.reboot(session, plain)
    plain.wait_state("running")
    until(lambda: any("is not resumed by itself: /" in line["MESSAGE"] for line in amux.journal()))
    assert session.state == "suspended"
    amux.config.write_text(text)
    amux.manager.call("Reload")
    session.wait_state("running")
    until(lambda: "remembering ['first']" in session.log())
    assert (session.get("Run"), plain.get("Run")) == (2, 2)
