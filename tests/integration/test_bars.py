"""What desktops, bars and scripts read: watch, badge, Waybar's module, the bus from a shell."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from attention_fixtures import report
from harness.bus import Signal
from harness.client import MANAGER, Session
from harness.daemon import Amux
from harness.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]


class Follower:
    """A program that goes on printing lines."""

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        self._buffer = b""

    def line(self, timeout: float = 60) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if not select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no line within {timeout} s, but {self._buffer!r}")
            data = os.read(descriptor, 65536)
            if not data:
                raise EOFError(f"it ended with {self._buffer!r}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def until(self, pattern: str) -> list[str]:
        lines = [self.line()]
        while not re.search(pattern, lines[-1]):
            lines.append(self.line())
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def follow(amux: Amux) -> Iterator[Any]:
    followers = []

    def begin(*arguments: str) -> Follower:
        follower = Follower(amux.popen(*arguments, stdout=subprocess.PIPE))
        followers.append(follower)
        return follower

    yield begin
    for follower in followers:
        follower.close()


def test_the_badge_counts_and_says_who_waits(amux: Amux, follow: Any) -> None:
    assert amux.cli("badge").stdout == "0\n"
    following = follow("badge", "--follow")
    assert following.line() == "0"
    session = amux.create(["cat"])
    following.until("^1$")
    report(amux, session, "turn")
    following.until("^1 !1$")
    amux.restart()
    session.send("go on")
    following.until("^1$")
    assert amux.cli("badge").stdout == "1\n"


def test_the_totals_are_told_and_the_last_word_is_true(amux: Amux) -> None:
    def told(signal: Signal) -> dict[str, Any]:
        if signal.member != "PropertiesChanged" or signal.body[0] != MANAGER:
            return {}
        return {name: value[1] for name, value in signal.body[1].items()}

    with amux.events() as events:
        sessions = [amux.create(["cat"], start=False) for _ in range(20)]
        events.wait(lambda signal: told(signal).get("Counts") == {"created": 20})
        for session in sessions:
            session.call("Start")
        events.wait(lambda signal: told(signal).get("Badge") == 20)


def test_waybar_gets_what_it_can_read(amux: Amux, follow: Any) -> None:
    bar = follow("badge", "--waybar")
    shown = json.loads(bar.line())
    assert shown == {"text": "0", "alt": "idle", "tooltip": "no sessions", "class": ["idle"]}
    session = amux.create(["cat"], name="<b> & co")
    shown = json.loads(bar.until('"text": "1"')[-1])
    assert (shown["alt"], shown["class"]) == ("active", ["active"])
    report(amux, session, "permission", "rm <all>?")
    shown = json.loads(bar.until("attention")[-1])
    assert (shown["text"], shown["class"]) == ("1 !1", ["attention", "active"])
    for number in range(12):
        amux.create(["false"], name=f"f{number}")
    shown = json.loads(bar.until("12 failed")[-1])
    # As Waybar takes it: texts, a text or a list of them for the class, Pango's markup in the tooltip.
    assert all(isinstance(shown[key], str) for key in ("text", "alt", "tooltip"))
    assert all(isinstance(name, str) for name in shown["class"])
    tooltip = ElementTree.fromstring(f"<markup>{shown['tooltip']}</markup>").text
    assert tooltip is not None
    lines = tooltip.splitlines()
    assert lines[0] == "<b> & co waits: permission rm <all>?"
    assert lines[-2:] == ["and 3 more", "1 running, 12 failed"]


def test_the_module_for_waybar_calls_what_there_is(amux: Amux) -> None:
    text = (REPOSITORY / "packaging/waybar/amux.jsonc").read_text()
    module = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))["custom/amux"]
    assert module["exec"] == "amux badge --waybar"
    assert module["return-type"] == "json"
    style = (REPOSITORY / "packaging/waybar/amux.css").read_text()
    assert {"attention", "failed", "active", "idle"} == set(module["format-icons"])
    assert set(re.findall(r"#custom-amux\.(\w+)", style)) <= set(module["format-icons"])


def test_watch_loses_nothing_that_happened_while_it_was_deaf(amux: Amux, follow: Any) -> None:
    session = amux.create(["cat"], name="build")
    watching = follow("watch", "--json")
    watching.until('"session"')
    report(amux, session, "turn", "done")
    watching.until('"attention"')
    pid = session.get("Pid")
    amux.stop()
    watching.until('"suspended"')
    amux.machine.kill(pid)
    amux.start()
    session.wait_state("failed")
    session.call("Restart")
    session.call("Kill", "s", "SIGTERM")
    events = [json.loads(line) for line in watching.until('"SIGTERM"')]
    told = [(e["new"], e["run"]) if e["event"] == "state" else e["event"] for e in events]
    assert told == [
        ("failed", 1),
        "exited",
        "attention",
        ("created", 2),
        ("starting", 2),
        ("running", 2),
        ("failed", 2),
        "exited",
    ]


def test_watch_fills_the_gap_from_the_history(amux: Amux, follow: Any) -> None:
    """A whole run that came and went between two looks, as when the bus itself was slow."""
    session = amux.create(["sh", "-c", "exit 3"], name="build")
    session.wait_state("failed")
    watching = follow("watch", "--json")
    watching.until('"session"')
    pid = _pid_of(amux, "watch")
    amux.machine.run(["kill", "-STOP", str(pid)])
    session.call("Restart")
    session.wait_state("failed")
    amux.restart()
    amux.machine.run(["kill", "-CONT", str(pid)])
    session.call("Restart")
    lines = watching.until('"new": "failed".*"run": 3')
    told = [json.loads(line) for line in lines]
    states = [(e["run"], e["new"]) for e in told if e["event"] == "state"]
    course = ("created", "starting", "running", "failed")
    assert states == [(run, state) for run in (2, 3) for state in course]


def test_watch_repeats_nothing_that_it_has_found_already(amux: Amux, follow: Any) -> None:
    """What it looks at is newer than what it has still to read."""
    once = amux.create(["sh", "-c", "exit 3"], name="once")
    often = amux.create(["sh", "-c", "exit 3"], name="often")
    waits = amux.create(["cat"], name="waits")
    for session in (once, often):
        session.wait_state("failed")
    watching = follow("watch", "--json")
    watching.until('"waits"')
    pid = _pid_of(amux, "watch")
    amux.machine.run(["kill", "-STOP", str(pid)])
    once.call("Restart")
    once.wait_state("failed")
    amux.kill()
    until(lambda: amux.pid)
    for _ in range(3):
        often.call("Restart")
        often.wait_state("failed")
    amux.restart()
    often.call("Restart")
    often.wait_state("failed")
    report(amux, waits, "turn", "done")
    new = amux.create(["sh", "-c", "exit 3"], name="new")
    new.wait_state("failed")
    amux.machine.run(["kill", "-CONT", str(pid)])
    last = amux.create(["true"], name="last")
    events = [json.loads(line) for line in watching.until('"exited".*"last"')]

    def told(session: Session) -> list[Any]:
        own = [event for event in events if event["id"] == session.id]
        return [(e["run"], e["new"]) if e["event"] == "state" else e["event"] for e in own]

    def whole(run: int) -> list[Any]:
        return [*((run, state) for state in ("created", "starting", "running", "failed")), "exited"]

    assert told(once) == whole(2)
    assert told(often) == [each for run in (2, 3, 4, 5) for each in whole(run)]
    assert told(waits) == [(1, "suspended"), (1, "running"), "attention"]
    assert told(new) == ["session", *whole(1)[1:]]
    assert told(last)[-1] == "exited"


def _pid_of(amux: Amux, word: str) -> int:
    for pid, words in amux.machine.command_lines().items():
        if word in words:
            status = Path(f"/proc/{pid}/status").read_text()
            return int(re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)[1])  # type: ignore[index]
    raise ProcessLookupError(word)


@pytest.mark.skipif(shutil.which("gdbus") is None, reason="gdbus is missing: package libglib2.0-bin")
def test_a_shell_reacts_with_nothing_but_gdbus(amux: Amux) -> None:
    script = REPOSITORY / "packaging/examples/on-failure.sh"
    command = [str(script), "echo", "said"]
    process = amux.machine.popen(command, stdout=subprocess.PIPE, start_new_session=True)
    follower = Follower(process)
    try:
        amux.machine.run(["gdbus", "wait", "--session", "--timeout", "10", "org.amux.Amux1"])
        for number in range(100):
            amux.create(["sh", "-c", "exit 3"], name=f"it's number {number}")
            try:
                line = follower.line(timeout=0.5)
                break
            except TimeoutError:
                continue
        assert re.fullmatch(r"said it's number \d+: exited with code 3", line)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        follower.close()
