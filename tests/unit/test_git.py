"""git that is ended because amuxd ends."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.repositories import repository
from harness.waiting import until

from amuxd import helpers
from amuxd.git import GitFailed, git


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What is stopped stays so.
    monkeypatch.setattr(helpers, "_stopping", threading.Event())
    return repository(tmp_path / "code")


def work(pool: ThreadPoolExecutor, repo: Path, script: str) -> Future[str]:
    begun = pool.submit(git, repo, "-c", f"alias.work=!{script}; sleep 1000 & touch begun; wait", "work")
    until((repo / "begun").exists)
    return begun


def test_what_is_at_work_can_clean_up_after_itself(repo: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        working = work(pool, repo, "trap 'touch cleaned; exit 1' TERM")
        helpers.stop(patience=20)
        with pytest.raises(GitFailed):
            working.result(timeout=60)
    assert (repo / "cleaned").exists()


def test_what_does_not_listen_is_killed(repo: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        working = work(pool, repo, "trap '' TERM")
        began = time.monotonic()
        helpers.stop(patience=0.2)
        with pytest.raises(GitFailed) as failed:
            working.result(timeout=60)
    assert failed.value.code in (-signal.SIGKILL, -signal.SIGTERM)
    assert time.monotonic() - began >= 0.2


def test_what_has_just_begun_is_killed_as_well(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = helpers._begin

    def begin_as_it_is_stopped(*arguments: Any) -> int:
        pid = begin(*arguments)
        until((repo / "begun").exists)
        helpers.stop()
        return pid

    monkeypatch.setattr(helpers, "_begin", begin_as_it_is_stopped)
    script = "trap '' TERM; sleep 1000 & touch begun; wait"
    with pytest.raises(GitFailed) as failed:
        git(repo, "-c", f"alias.work=!{script}", "work", deadline=20)
    assert failed.value.code in (-signal.SIGKILL, -signal.SIGTERM)


# Longer than anybody waits for git here, and gone soon after.
LEFT_BEHIND = "setsid sleep 25 </dev/null & touch begun"


def test_what_a_helper_leaves_behind_is_not_waited_for(repo: Path) -> None:
    began = time.monotonic()
    assert git(repo, "-c", f"alias.work=!{LEFT_BEHIND}; echo done", "work") == "done\n"
    assert time.monotonic() - began < 20


def test_the_deadline_holds_though_something_is_left_behind(repo: Path) -> None:
    began = time.monotonic()
    with pytest.raises(GitFailed, match="git -c took longer than 1 s"):
        git(repo, "-c", f"alias.work=!{LEFT_BEHIND}; sleep 1000", "work", deadline=1, input="x" * 1_000_000)
    assert time.monotonic() - began < 20


def test_what_it_prints_is_given_as_it_is(repo: Path) -> None:
    script = "printf '%s' \"$(cat)\"; printf 'a\\r\\n\\377'"
    assert git(repo, "-c", f"alias.work=!{script}", "work", input="in\udcff") == "in\udcffa\r\n\udcff"


def test_nothing_begins_any_more(repo: Path) -> None:
    helpers.stop()
    with pytest.raises(GitFailed, match="amuxd is stopping"):
        git(repo, "status")


def test_its_end_is_heard_and_not_looked_for(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_again(_pause: float) -> None:
        raise AssertionError("looked from time to time")

    monkeypatch.setattr(time, "sleep", look_again)
    assert git(repo, "-c", "alias.work=!sleep 0.2; cat", "work", input="in") == "in"


def test_without_a_descriptor_for_its_end_it_is_looked_for(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert git(repo, "-c", "alias.work=!sleep 0.2; echo done", "work") == "done\n"
    with pytest.raises(GitFailed, match="took longer than 1 s"):
        git(repo, "-c", "alias.work=!sleep 1000", "work", deadline=1)


def refuse_with(number: int) -> Callable[..., int]:
    def refuse(*_arguments: Any, **_how: Any) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("call", "number"),
    [("posix_spawn", errno.EAGAIN), ("posix_spawn", errno.E2BIG), ("memfd_create", errno.EMFILE)],
)
def test_what_the_kernel_refuses_is_a_failure_of_gits(
    repo: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    monkeypatch.setattr(os, call, refuse_with(number))
    with pytest.raises(GitFailed, match=f"^git could not be run: {os.strerror(number)}$"):
        git(repo, "status")


class NoThread(threading.Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_without_a_thread_to_wait_in_what_is_at_work_is_killed_at_once(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        working = work(pool, repo, "trap '' TERM")
        monkeypatch.setattr(threading, "Thread", NoThread)
        helpers.stop(patience=1000)
        with pytest.raises(GitFailed) as failed:
            working.result(timeout=60)
    assert failed.value.code in (-signal.SIGKILL, -signal.SIGTERM)
    assert not helpers._at_work


def test_without_a_thread_what_has_just_begun_is_killed_as_well(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = helpers._begin

    def begin_as_it_is_stopped(*arguments: Any) -> int:
        pid = begin(*arguments)
        until((repo / "begun").exists)
        helpers._stopping.set()
        return pid

    monkeypatch.setattr(helpers, "_begin", begin_as_it_is_stopped)
    monkeypatch.setattr(threading, "Thread", NoThread)
    script = "trap '' TERM; sleep 1000 & touch begun; wait"
    with pytest.raises(GitFailed) as failed:
        git(repo, "-c", f"alias.work=!{script}", "work", deadline=20)
    assert failed.value.code in (-signal.SIGKILL, -signal.SIGTERM)
    assert not helpers._at_work


def test_what_is_still_there_after_it_was_killed_is_reaped_later(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, pids = helpers._begin, []

    def begin_and_tell(*arguments: Any) -> int:
        pids.append(begin(*arguments))
        return pids[-1]

    monkeypatch.setattr(helpers, "_begin", begin_and_tell)
    monkeypatch.setattr(threading, "Thread", NoThread)
    with monkeypatch.context() as hanging:
        hanging.setattr(helpers, "_ends_within", lambda _pid, _deadline: False)
        with pytest.raises(GitFailed, match="took longer than 0 s"):
            git(repo, "-c", "alias.work=!sleep 1000", "work", deadline=0)
    assert not helpers._at_work
    # Killed all the same; it waits for whoever asks how it ended.
    os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
    assert git(repo, "rev-parse", "--is-inside-work-tree") == "true\n"
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT)
