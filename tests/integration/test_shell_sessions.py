"""Sessions in the user's shell, which stays open when the command in it has ended."""

import shutil
import signal
from pathlib import Path

import pytest
from harness.client import Client, Session
from harness.daemon import Amux, Embedded
from harness.terminal import Terminal
from harness.waiting import until

SHELLS = [
    pytest.param(
        path, id=name, marks=pytest.mark.skipif(not Path(path).exists(), reason=f"{name} is not installed")
    )
    for name, path in [
        (name, shutil.which(name) or f"/bin/{name}") for name in ("bash", "dash", "zsh", "fish")
    ]
]


def in_shell(amux: Client, line: str, shell: str = "/bin/bash") -> Session:
    return amux.create([line], shell=True, env={"SHELL": shell})


def shown_by(session: Session, text: str) -> None:
    until(lambda: text in session.log())


def has_home(session: Session) -> bool:
    return bool(session.get("HostAlive") == "alive")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_stays_open_after_its_command(amux: Amux, shell: str) -> None:
    session = in_shell(
        amux, "echo first-$(expr 40 + 2)" if "fish" not in shell else "echo first-(math 40 + 2)", shell
    )
    assert session.wait_state("completed") == "completed"
    shown_by(session, "first-42")
    until(lambda: has_home(session))
    assert session.get("SessionAlive") == "dead"
    assert (session.get("ExitCode"), session.get("Reason")) == (0, "exited with code 0")
    assert "completed (shell open)" in amux.cli("ls").stdout
    assert (
        f"Next:        amux attach|send|stop|logs|restart {session.id}\n"
        in amux.cli("show", session.id).stdout
    )
    session.send("echo typed-$USER")
    shown_by(session, "typed-root")
    session.stop()
    assert "open" not in amux.cli("ls").stdout
    session.call("Archive")
    assert not amux.machine.systemctl("list-units", "--no-legend", "amux-*.service")


def test_a_command_that_fails_in_a_shell(amux: Amux) -> None:
    with amux.events() as events:
        session = in_shell(amux, "echo so it goes; sh -c 'exit 3'")
        session.wait_state("failed")
        exited = events.wait(lambda event: event.member == "SessionExited")
        assert exited.body[3:5] == (3, "")
        status = amux.state / "sessions" / session.id / "runs/1/exit_status"
        assert status.read_text() == "  3\n"
        assert session.get("Reason") == "exited with code 3"
        assert "so it goes" in session.certificate()["last_lines"]
        assert "failed (exit 3, shell open)" in amux.cli("ls").stdout
        # The end of the shell is no second end of the run.
        session.send("exit 5")
        until(lambda: not has_home(session))
        assert not session.get("ShellOpen")
        assert (session.state, session.get("ExitCode")) == ("failed", 3)
        assert len(events.named("SessionExited")) == 1
    assert amux.machine.systemctl("list-units", "--no-legend", "amux-*.service") == ""


def test_a_shell_session_runs_for_as_long_as_its_command(amux: Amux) -> None:
    session = in_shell(amux, "echo ready; read answer; test $answer = yes")
    shown_by(session, "ready")
    assert session.state == "running"
    session.send("yes")
    assert session.wait_state("completed") == "completed"


def test_ctrl_z_does_not_end_the_command_in_a_shell(amux: Amux) -> None:
    session = in_shell(amux, "echo ready; exec sh -c 'read answer; exit 7'")
    shown_by(session, "ready")
    socket = amux.runtime / "tmux" / f"{session.id}.sock"
    for keys in (["C-z"], ["go", "Enter"]):
        amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", *keys])
    session.wait_state("failed")
    assert session.get("ExitCode") == 7


def test_a_signal_in_a_shell_is_a_code_as_the_shell_tells_it(amux: Amux) -> None:
    session = in_shell(amux, "sh -c 'kill -SEGV $$'")
    session.wait_state("failed")
    assert session.get("ExitCode") == 139
    until(lambda: has_home(session))


def test_a_shell_that_is_killed_ends_the_session_by_its_own_end(amux: Amux) -> None:
    session = in_shell(amux, "echo ready; sleep 1000")
    shown_by(session, "ready")
    amux.machine.kill(session.get("Pid"), signal.SIGKILL)
    session.wait_state("failed")
    assert session.get("ExitSignal") == "SIGKILL"
    assert session.get("Reason") == "killed by SIGKILL"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_whose_command_is_killed_opens_again(amux: Amux, shell: str) -> None:
    session = in_shell(amux, "kill -KILL $$" if "fish" not in shell else "kill -KILL $fish_pid", shell)
    session.wait_state("failed")
    assert session.get("ExitCode") == 137
    until(lambda: has_home(session))
    session.send("echo again-$USER")
    shown_by(session, "again-root")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", ["echo ready; sleep 1000", "echo ready"])
def test_a_shell_session_is_stopped_at_once(amux: Amux, shell: str, line: str) -> None:
    session = in_shell(amux, line, shell)
    shown_by(session, "ready")
    if line == "echo ready":
        session.wait_state("completed")
        until(lambda: has_home(session))
    # With less than the grace that a command has which does not obey.
    session.stop(grace=60, timeout=20)
    assert session.state == ("stopped" if "sleep" in line else "completed")
    assert session.get("HostAlive") == "dead"
    assert amux.machine.systemctl("list-units", "--no-legend", "amux-*.service") == ""


def test_restart_takes_the_open_shell_along(amux: Amux) -> None:
    session = in_shell(amux, "echo run in $$; test -e there")
    session.wait_state("failed")
    until(lambda: has_home(session))
    (amux.machine.home / "there").touch()
    session.call("Restart")
    assert session.wait_state("completed") == "completed"
    assert session.get("Run") == 2
    assert session.certificate(1)["exit_code"] == 1
    until(lambda: has_home(session))
    session.remove(force=True)
    assert amux.machine.systemctl("list-units", "--no-legend", "amux-*.service") == ""


@pytest.mark.parametrize("verb", ["rm", "archive"])
def test_an_open_shell_and_what_runs_in_it_is_not_put_away(amux: Amux, verb: str) -> None:
    session = in_shell(amux, "false")
    session.wait_state("failed")
    until(lambda: has_home(session))
    session.send("sleep 4242")
    until(lambda: ["sleep", "4242"] in amux.machine.command_lines().values())
    refused = amux.cli(verb, session.id, check=False)
    way = f"amux stop {session.id} closes it"
    besides = ", and a forced removal as well" if verb == "rm" else ""
    assert refused.returncode == 4
    assert refused.stderr == (
        f"amux: a shell is open in {session.get('Name')}, {verb} is not possible; {way}{besides}\n"
    )
    assert session.get("ShellOpen")
    assert ["sleep", "4242"] in amux.machine.command_lines().values()
    amux.cli("stop", session.id)
    assert amux.cli(verb, session.id).returncode == 0


def test_an_open_shell_goes_with_a_session_that_is_removed_by_force(amux: Amux) -> None:
    session = in_shell(amux, "true")
    session.wait_state("completed")
    # Before it is told that the shell stays open, perhaps.
    assert amux.cli("rm", session.id, check=False).returncode == 4
    amux.cli("rm", "-f", session.id)
    assert session.id not in amux.sessions()
    assert amux.machine.systemctl("list-units", "--no-legend", "amux-*.service") == ""


def test_a_person_looks_around_in_the_open_shell(amux: Amux) -> None:
    session = in_shell(amux, "echo over and out")
    session.wait_state("completed")
    until(lambda: has_home(session))
    with Terminal(amux.machine, session.call("AttachCommand")) as terminal:
        terminal.expect("over and out")
        until(lambda: session.get("Attached") == 1)
        terminal.type("echo i-am-$((4 + 4))\r")
        terminal.expect("i-am-8")
        socket = amux.runtime / "tmux" / f"{session.id}.sock"
        amux.machine.run(["tmux", "-S", socket, "detach-client", "-s", "main"])
        terminal.wait()
    until(lambda: session.get("Attached") == 0)
    # The shell was to stay open, and does so also unwatched.
    assert has_home(session)
    session.send("echo still-$((4 + 5))")
    shown_by(session, "still-9")


def test_a_restart_of_the_daemon_leaves_open_shells_open(amux: Amux) -> None:
    ended = in_shell(amux, "echo over")
    ended.wait_state("completed")
    until(lambda: has_home(ended))
    running = in_shell(amux, "echo ready; read answer; exit 4")
    shown_by(running, "ready")
    amux.restart()
    assert (ended.state, running.wait_state("running")) == ("completed", "running")
    until(lambda: has_home(ended))
    ended.send("echo still-$((4 + 5))")
    shown_by(ended, "still-9")
    amux.stop()
    socket = amux.runtime / "tmux" / f"{running.id}.sock"
    amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", "go", "Enter"])
    status = amux.state / "sessions" / running.id / "runs/1/exit_status"
    until(status.exists)
    amux.start()
    assert running.wait_state("failed") == "failed"
    assert running.get("ExitCode") == 4
    until(lambda: has_home(running))
    running.send("echo after-$((1 + 1))")
    shown_by(running, "after-2")
    # An open shell that ends while nobody looks is found gone.
    amux.stop()
    amux.machine.run(["tmux", "-S", socket, "send-keys", "-t", "%0", "exit", "Enter"])
    until(running.command_has_ended)
    amux.start()
    until(lambda: not has_home(running))
    until(lambda: running.id not in amux.machine.systemctl("list-units", "--no-legend", "amux-*.service"))


def test_a_shell_session_without_systemd(embedded: Embedded) -> None:
    embedded.cli("run", "--shell", "--name", "one", "--", "echo begun; exit 6")
    session = embedded.session("one")
    session.wait_state("failed")
    assert session.get("ExitCode") == 6
    until(lambda: has_home(session))
    session.send("echo typed-$((6 * 7))")
    shown_by(session, "typed-42")
    session.stop()
    assert session.get("HostAlive") == "dead"
