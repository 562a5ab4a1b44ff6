"""The configuration: what it may say, and what is refused with the place named."""

from dataclasses import replace
from pathlib import Path

import pytest

from amuxd.agents import BUILT_IN, OnExit
from amuxd.config import Settings, load
from amuxd.errors import InvalidArgument
from amuxd.retention import Retention


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(path)


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert load(tmp_path / "missing.toml") == settings(tmp_path, "") == Settings()


def test_what_can_be_set(tmp_path: Path) -> None:
    read = settings(
        tmp_path,
        """
        [sessions]
        log_cap = "8M"
        stop_grace = 3
        idle_after = "5m"
        [retention]
        suspended = "2d"
        suspended_resumable = "never"
        failed = 0
        [agents.claude]
        on_exit = "stay"
        park_after = "never"
        idle_after = 7
        stop_grace = "1m"
        [agents.own]
        start = ["own", "--id", "{conversation}"]
        resume = ["own", "--again", "{conversation}"]
        stop_signal = "int"
        stop_children = true
        attention = ["bell"]
        env = { KEY = "value" }
        """,
    )
    assert read.log_cap == 8 * 1024**2
    assert read.retention == Retention(suspended=2 * 86400, suspended_resumable=None, failed=0)
    claude, own = read.agents["claude"], read.agents["own"]
    assert claude.start == BUILT_IN["claude"].start
    assert (claude.on_exit, claude.park_after) == (OnExit.STAY, None)
    assert own.start == ("own", "--id", "{conversation}")
    assert (own.stop_signal, own.stop_children, own.attention) == ("SIGINT", True, ("bell",))
    assert own.environment == {"KEY": "value"}
    assert [read.idle_after_of(agent) for agent in (claude, own, None)] == [7, 300, 300]
    assert [read.stop_grace_of(agent) for agent in (claude, own, None)] == [60, 3, 3]
    assert BUILT_IN["claude"].on_exit is OnExit.COMPLETE


def test_a_profile_is_like_the_built_in_one_whose_program_it_runs(tmp_path: Path) -> None:
    agents = settings(
        tmp_path,
        """
        [agents.reviewer]
        start = ["/opt/claude", "--model", "opus"]
        attention = ["permission", "Stop"]
        [agents.star]
        start = ["gemini"]
        stop_grace = 3
        [agents.codex]
        start = ["/opt/wrapper", "codex"]
        """,
    ).agents
    reviewer, star = agents["reviewer"], agents["star"]
    assert (reviewer.name, reviewer.kept, reviewer.resume) == ("reviewer", BUILT_IN["claude"].kept, ())
    assert reviewer.attention == ("permission", "Stop")
    assert (star.stop_children, star.stop_grace, star.kept) == (True, 3, BUILT_IN["gemini"].kept)
    assert agents["codex"] == replace(BUILT_IN["codex"], start=("/opt/wrapper", "codex"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[agents.claude]\nattention = ['turns']", "agents.claude.attention: there is no 'turns': Notif"),
        ("[agents.x]\nstart = ['codex']\nattention = ['Stop']", "agents.x.attention: there is no 'Stop'"),
        ("[", "cannot be read"),
        ("[nothing]", r"there is no section \[nothing\]"),
        ("sessions = 1", "sessions must be a section"),
        ("agents = 1", "agents must be a section"),
        ("[agents]\nx = 1", "agents.x must be a section"),
        ("[sessions]\nwhat = 1", r"there is no setting what in \[sessions\]"),
        ("[sessions]\nidle_after = -1", "sessions.idle_after: -1 is no text"),
        ("[sessions]\nidle_after = inf", "sessions.idle_after: inf is no text"),
        ("[sessions]\nidle_after = '99999999w'", "sessions.idle_after: '99999999w' is too long"),
        ("[sessions]\nlog_cap = '1M'", "a log needs at least 4M"),
        ("[sessions]\nlog_cap = [1]", r"sessions.log_cap: \[1\] is no text"),
        ("[retention]\nfailed = 'soon'", "retention.failed: 'soon' is not a duration"),
        ("[retention]\ncreated = 1", r"there is no setting created in \[retention\]"),
        ("[agents.x]\nresume = ['x']", "agents.x: a new agent needs start"),
        ("[agents.x]\nstart = 'x'", "agents.x.start: 'x' is no list of texts"),
        ("[agents.x]\nstart = []", "agents.x.start: a command needs a program"),
        ("[agents.x]\nstart = ['x', 1]", "agents.x.start: 1 is no text"),
        ("[agents.claude]\non_exit = 'x'", "on_exit: it is complete or stay, not 'x'"),
        ("[agents.claude]\non_exit = 1", "on_exit: it is complete or stay, not 1"),
        ("[agents.claude]\nstop_signal = 'STOP'", "'STOP' is not a signal that asks a program to end"),
        ("[agents.claude]\nstop_children = 1", "it is true or false, not 1"),
        ("[agents.claude]\nenv = 1", "1 is no table of variables"),
        ("[agents.claude]\nenv = { 'a=b' = 'c' }", "'a=b' cannot be the name of a variable"),
        ("[agents.claude]\nenv = { a = 1 }", "1 is no text"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        settings(tmp_path, text)


def test_what_is_no_text_or_no_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"\xff")
    for path, why in ((tmp_path / "other", "it is not UTF-8 text"), (tmp_path, "Is a directory")):
        with pytest.raises(InvalidArgument) as told:
            load(path)
        assert str(told.value) == f"{path} cannot be read: {why}"
