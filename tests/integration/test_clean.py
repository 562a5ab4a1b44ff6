"""Retention: what was at rest for long enough goes, and nothing else."""

import contextlib
import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from agent_fixtures import Agents, Reboots, state_file
from harness.bus import CallFailed
from harness.client import Client, Session
from harness.daemon import Amux
from harness.repositories import repository
from harness.waiting import until

DAY = 86400


def aged(amux: Amux, ages: dict[Session, float]) -> None:
    """The sessions' files as if they had come to rest so many seconds ago."""
    amux.stop()
    for session, age in ages.items():
        path = state_file(amux, session)
        state = json.loads(path.read_text())
        at = int((time.time() - age) * 1e6)
        path.write_text(json.dumps(state | {"state_changed_at": at, "known_at": at, "uptime_at_change": 0}))
    amux.start()


@pytest.fixture
def agents(amux: Amux) -> Agents:
    agents = Agents(amux)
    agents.configure()
    return agents


def ended(amux: Amux, name: str, command: str) -> Session:
    session = amux.create(["sh", "-c", command], name=name)
    session.wait_state("completed", "failed")
    return session


def test_what_was_kept_long_enough_is_removed(amux: Amux, agents: Agents) -> None:
    live = amux.create(["sleep", "1000"], name="live")
    created = amux.create(["true"], name="created", start=False)
    old, young = ended(amux, "old", "exit 1"), ended(amux, "young", "exit 1")
    done, put_away = ended(amux, "done", "exit 0"), ended(amux, "away", "exit 0")
    stopped = amux.create(["sleep", "1000"], name="stopped")
    stopped.stop()
    put_away.call("Archive")
    log = Path(old.get("LogPath"))
    ages = {live: 99, created: 99, old: 1.1, young: 0.9, done: 6.9, put_away: 99, stopped: 7.1}
    aged(amux, {session: days * DAY for session, days in ages.items()})
    would = amux.cli("clean", "--dry-run").stdout
    assert sorted(would.splitlines()) == [
        f"would remove old ({old.id})",
        f"would remove stopped ({stopped.id})",
    ]
    assert len(amux.sessions(archived=("b", True))) == 7
    with amux.events() as events:
        assert sorted(amux.cli("clean").stdout.splitlines()) == [
            f"removed old ({old.id})",
            f"removed stopped ({stopped.id})",
        ]
        events.wait(lambda event: event.member == "InterfacesRemoved" and event.body[0].endswith(old.id))
    assert set(amux.sessions(archived=("b", True))) == {
        session.id for session in (live, created, young, done, put_away)
    }
    assert not log.exists()
    assert amux.cli("clean").stdout == ""


def test_suspended_ones_are_kept_longer_where_they_can_be_resumed(amux: Amux, agents: Agents) -> None:
    agent, plain = agents.create(name="agent"), amux.create(["sleep", "1000"], name="plain")
    amux.stop()
    amux.machine.systemctl("stop", "amux-*.service")
    amux.start()
    aged(amux, {agent: 29 * DAY, plain: 8 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {}) == [plain.id]
    aged(amux, {agent: 31 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {}) == [agent.id]


def test_one_that_failed_to_go_on_is_kept_as_long_as_what_is_suspended(amux: Amux, agents: Agents) -> None:
    resumed, crashed = agents.create(name="resumed"), agents.create(name="crashed")
    for session in (resumed, crashed):
        session.send("first")
        until(lambda: "heard 1: first" in session.log())  # noqa: B023
    crashed.send("/crash")
    crashed.wait_state("failed")
    resumed.stop()
    agents.configure(extra=("--refuse",))
    resumed.call("Resume")
    resumed.wait_state("failed")
    aged(amux, {resumed: 29 * DAY, crashed: 2 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {}) == [crashed.id]
    agents.configure()
    resumed.call("Resume")
    until(lambda: "remembering ['first']" in resumed.log())
    resumed.send("/crash")
    resumed.wait_state("failed")
    aged(amux, {resumed: 31 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {}) == [resumed.id]


def test_what_nobody_could_have_seen_yet_is_kept(amux: Amux) -> None:
    """It failed just before a machine went off that is on again only days later."""
    session = amux.create(["cat"], shell=True)
    session.wait_state("running")
    amux.stop()
    amux.machine.systemctl("stop", "amux-*.service")
    path, began = state_file(amux, session), int((time.time() - 3 * DAY) * 1e6)
    past = {"boot_id": "another", "state_changed_at": began, "started_at": began, "alive_at": began}
    path.write_text(json.dumps(json.loads(path.read_text()) | past))
    status, ended = path.parent / "runs/1/exit_status", int(time.time() - 2.5 * DAY)
    status.write_text("3\n")
    os.utime(status, (ended, ended))
    amux.start()
    assert (session.state, session.get("Reason")) == ("failed", "exited with code 3")
    assert session.get("StateChangedUSec") == session.certificate()["ended_usec"] == ended * 1_000_000
    assert amux.manager.call("Clean", "a{sv}", {}) == []
    amux.restart()
    assert amux.manager.call("Clean", "a{sv}", {}) == []
    state = json.loads(path.read_text())
    amux.stop()
    known = {"known_at": int((time.time() - 1.1 * DAY) * 1e6), "uptime_at_change": 0}
    path.write_text(json.dumps(state | known))
    amux.start()
    assert amux.manager.call("Clean", "a{sv}", {}) == [session.id]


def test_the_configuration_says_for_how_long(amux: Amux, agents: Agents) -> None:
    done, failed = ended(amux, "done", "exit 0"), ended(amux, "failed", "exit 1")
    agents.write(head='[retention]\nfailed = "never"\ncompleted = 0\n')
    aged(amux, {failed: 99 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {"dry_run": ("b", True)}) == [done.id]
    assert amux.manager.call("Clean", "a{sv}", {}) == [done.id]


def test_a_workspace_with_work_in_it_outlives_its_sessions(amux: Amux, tmp_path: Path) -> None:
    code = repository(tmp_path / "code")
    amux.cli("ws", "add", "fix", cwd=code)
    session = amux.create(["sh", "-c", "echo work >new; exit 1"], workspace="fix")
    session.wait_state("failed")
    directory = Path(session.get("Directory"))
    aged(amux, {session: 2 * DAY})
    assert amux.cli("clean").stdout == f"removed sh ({session.id})\n"
    assert (directory / "new").read_text() == "work\n"
    assert "fix" in amux.cli("ws", "ls").stdout
    amux.cli("ws", "rm", "--force", "fix")


def test_one_that_cannot_be_removed_stays(amux: Amux, agents: Agents) -> None:
    done = ended(amux, "done", "exit 0")
    agents.write(head="[retention]\ncompleted = 0\n")
    lock = amux.state / "sessions/.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    assert amux.manager.call("Clean", "a{sv}", {}) == []
    until(lambda: any("done stays" in line["MESSAGE"] for line in amux.journal()))
    lock.rmdir()
    assert amux.manager.call("Clean", "a{sv}", {}) == [done.id]


def test_one_that_somebody_looks_at_stays(amux: Amux, agents: Agents) -> None:
    session = amux.create(["cat"], name="watched")
    agents.write(head="[retention]\nfailed = 0\n")
    with amux.terminal("attach", "watched") as terminal:
        terminal.expect("detaches")
        until(lambda: session.get("Attached") == 1)
        session.call("Kill", "s", "SIGKILL")
        session.wait_state("failed")
        # Answered once it is known that somebody looks.
        session.certificate()
        assert amux.manager.call("Clean", "a{sv}", {}) == []
    until(lambda: amux.manager.call("Clean", "a{sv}", {}) == [session.id])


def runs(amux: Client, argument: str) -> bool:
    return any(argument in words for words in amux.machine.command_lines().values())


@pytest.mark.parametrize("restarted", [False, True])
def test_a_shell_that_stayed_open_is_left_to_who_works_in_it(
    amux: Amux, agents: Agents, restarted: bool
) -> None:
    session = amux.create(["true"], shell=True, env={"SHELL": "/bin/bash"}, name="open")
    session.wait_state("completed")
    until(lambda: session.get("ShellOpen"))
    session.send("sleep 98765")
    until(lambda: runs(amux, "98765"))
    agents.write(head="[retention]\ncompleted = 0\n")
    if restarted:
        amux.restart()
    assert amux.manager.call("Clean", "a{sv}", {"dry_run": ("b", True)}) == []
    assert amux.cli("clean").stdout == ""
    assert runs(amux, "98765")
    session.stop()
    until(lambda: amux.manager.call("Clean", "a{sv}", {}) == [session.id])
    assert not runs(amux, "98765")


def test_what_a_stop_could_not_end_is_left_alone(amux: Amux, agents: Agents) -> None:
    deaf = "trap '' TERM HUP; echo ready; while :; do sleep 87654; done"
    session = amux.create(["sh", "-c", f'setsid sh -c "{deaf}" & exec sleep 1000'], name="deaf")
    until(lambda: "ready" in session.log())
    refused = amux.machine.outside(amux.machine.runtime) / f"systemd/user/{session.get('Unit')}.d"
    refused.mkdir()
    (refused / "refused.conf").write_text("[Unit]\nRefuseManualStop=yes\n")
    amux.machine.systemctl("daemon-reload")
    try:
        with pytest.raises(CallFailed, match="could not be stopped"):
            session.stop()
        assert session.state == "failed"
        session.certificate()
        agents.write(head="[retention]\nfailed = 0\n")
        shutil.rmtree(refused)
        amux.machine.systemctl("daemon-reload")
        assert amux.cli("clean").stdout == ""
        assert runs(amux, "87654")
    finally:
        shutil.rmtree(refused, ignore_errors=True)
        amux.machine.systemctl("daemon-reload")
    amux.machine.systemctl("kill", "--signal=SIGKILL", session.get("Unit"))
    until(lambda: amux.manager.call("Clean", "a{sv}", {}) == [session.id])


def test_what_is_about_to_come_back_is_not_removed_first(amux: Amux, agents: Agents) -> None:
    """More of them than begin at once, and each held up: the rest waits for its turn."""
    sessions = [amux.create(["sleep", "1000"], resume="auto", name=f"server-{n}") for n in range(6)]
    with contextlib.ExitStack() as held:
        amux.stop()
        amux.machine.systemctl("stop", "amux-*.service")
        for session in sessions:
            path = state_file(amux, session)
            past = {"boot_id": "another", "state_changed_at": int((time.time() - 8 * DAY) * 1e6)}
            path.write_text(json.dumps(json.loads(path.read_text()) | past))
            lock = held.enter_context((path.parent / ".lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        # The call that starts amuxd, as that of the timer may be.
        assert amux.manager.call("Clean", "a{sv}", {"dry_run": ("b", True)}) == []
        assert amux.manager.call("Clean", "a{sv}", {}) == []
    for session in sessions:
        session.wait_state("running")
        assert session.get("Run") == 2


def test_what_is_tried_again_on_the_next_boot_is_kept_until_then(amux: Amux, agents: Agents) -> None:
    """It is off for a week then, say, with the conversation that it is to go on with."""
    reboots = Reboots(amux)
    talk, broken = agents.create(resume="auto", name="talk"), amux.machine.home / "broken"
    # One with a conversation is kept for that, however often it has failed.
    left = amux.create(["sh", "-c", f"test ! -e {broken} && exec sleep 1000"], resume="auto", name="left")
    talk.send("first")
    until(lambda: "heard 1: first" in talk.log())
    agents.configure(extra=("--refuse",))
    broken.touch()
    # The other one has failed twice before.
    state = state_file(amux, left)
    amux.stop()
    state.write_text(json.dumps(json.loads(state.read_text()) | {"auto_run": 1, "auto_failures": 1}))
    amux.start()
    reboots.reboot(talk, left, in_order=False)
    for session in (talk, left):
        until(lambda: (session.state, session.get("Run")) == ("failed", 2))  # noqa: B023
    assert talk.get("Resumable")
    aged(amux, {talk: 29 * DAY, left: 1.1 * DAY})
    assert amux.manager.call("Clean", "a{sv}", {}) == [left.id]
    agents.configure()
    reboots.reboot(talk)
    until(lambda: (talk.state, talk.get("Run")) == ("running", 3))
    until(lambda: "remembering ['first']" in talk.log())


def test_what_failed_before_a_week_off_is_there_for_a_day_after_it(amux: Amux) -> None:
    session = amux.create(["false"])
    session.wait_state("failed")
    aged(amux, {session: 8 * DAY})
    amux.stop()
    boots, now = amux.state / "boots", time.time()
    boots.write_text(f"another {int((now - 9 * DAY) * 1e6)} 0\n")
    amux.start()
    assert amux.manager.call("Clean", "a{sv}", {}) == []
    amux.stop()
    boot_id, _, before, first = boots.read_text().split()
    boots.write_text(f"{boot_id} {int((now - 1.1 * DAY) * 1e6)} {before} {first}\n")
    amux.start()
    assert amux.manager.call("Clean", "a{sv}", {}) == [session.id]
