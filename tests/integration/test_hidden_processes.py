"""Where the processes of others are hidden, a number that is another's by now is nobody's word for life."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amuxd import processes

SEEN_BY_NOBODY = """
import os, subprocess
from amuxd import processes
from amuxd.records import Process

def look(pid):
    try:
        return processes.identify(pid)
    except PermissionError:
        return "hidden"

os.setsid()
others = subprocess.Popen(["sleep", "1000"], start_new_session=True)
as_by_sudo = subprocess.Popen(["sleep", "1000"])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
# As it has changed its user it hides from its own.
undumpable = os.fork()
if undumpable == 0:
    os.read(os.pipe()[0], 1)
print(processes.boot_id())
another = Process(others.pid, 1)
print(look(others.pid), processes.open_process(another), processes.is_dying(another))
print(look(as_by_sudo.pid), look(undumpable), look(os.getpid()).pid == os.getpid())
"""


def test_what_is_hidden_is_gone_where_it_is_anothers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SEEN_BY_NOBODY)
    # Its processes end with the first of them.
    container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    look = ['mount -o remount,hidepid=1 /proc && "$@"; exit', "sh"]
    answer = subprocess.run(
        [*container, *look, sys.executable, script], capture_output=True, text=True, check=True, timeout=60
    )
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert answer.stdout.splitlines() == [kernel, "None None True", "hidden hidden True"]


def hide(pid: int) -> None:
    raise PermissionError(f"/proc/{pid}/stat")


def test_a_hidden_first_process_that_may_be_signalled_tells_no_boot_apart_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_is_of_first_namespace", lambda: False)
    monkeypatch.setattr(processes, "_stat", hide)
    assert processes.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_one_that_ends_while_it_is_hidden_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(processes, "_stat", hide)
    assert processes.identify(ended.pid) is None


def test_one_that_was_brought_into_the_container_is_of_nobodys_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int, _: int) -> None:
        # To the number 0 it may be sent: that is oneself.
        if pid:
            raise PermissionError

    monkeypatch.setattr(processes, "_stat", hide)
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(os, "getsid", lambda _: 0)
    assert processes.identify(1000) is None
