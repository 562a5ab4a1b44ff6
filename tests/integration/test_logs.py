"""A run's log holds every byte that the terminal printed, from the first on."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.client import Client, Session
from harness.daemon import Amux
from harness.waiting import until

from amuxd.logs import size_of

MEBIBYTE = 1 << 20


def log(session: Session) -> Path:
    return Path(session.get("LogPath"))


def python(amux: Client, program: str, *arguments: str) -> list[str]:
    """Raw: what is written is what the log holds, without a carriage return at each line's end."""
    script = 'stty raw -echo; exec "$0" "$@"'
    return ["sh", "-c", script, str(amux.machine.bindir / "python3"), "-c", program, *arguments]


def finished(session: Session, timeout: float = 60) -> dict[str, Any]:
    session.wait_state("completed", timeout=timeout)
    return session.certificate()


def with_cap(amux: Client, cap: str) -> None:
    amux.config.parent.mkdir(parents=True, exist_ok=True)
    amux.config.write_text(f'[sessions]\nlog_cap = "{cap}"\n')
    amux.manager.call("Reload")


def test_the_first_byte_is_there(anywhere: Client) -> None:
    for number in range(10):
        session = anywhere.create(["printf", f"{number}"])
        finished(session)
        assert log(session).read_bytes() == b"%d" % number
        assert session.certificate()["last_lines"] == [str(number)]


def test_every_byte_is_kept_as_it_is(anywhere: Client) -> None:
    program = "import os; os.write(1, bytes(range(256)) * 64); os.read(0, 1)"
    session = anywhere.create(python(anywhere, program))
    until(lambda: log(session).stat().st_size >= 64 * 256)
    session.send("x", enter=False)
    finished(session)
    assert log(session).read_bytes() == bytes(range(256)) * 64


def test_a_log_that_is_full_begins_anew_and_loses_nothing(anywhere: Client) -> None:
    with_cap(anywhere, "4M")
    program = "for n in range(640_000): print(f'line {n:010d}', flush=n % 1000 == 0)"
    session = anywhere.create(python(anywhere, program))
    certificate = finished(session)
    assert certificate["last_lines"][-1] == "line 0000639999"
    earlier, now = log(session).with_name("output.log.1"), log(session)
    files = ["output.log", "output.log.1", "output.log.dropped"]
    assert sorted(path.name for path in now.parent.glob("output*")) == files
    assert size_of(now.with_name("output.log.dropped")) == 0
    # It passes the cap by less than one bout of reading.
    assert 4 * MEBIBYTE <= earlier.stat().st_size < 5 * MEBIBYTE
    assert now.stat().st_size < 5 * MEBIBYTE
    kept = earlier.read_bytes() + now.read_bytes()
    first = kept.index(b"\n") + 1
    lines = kept[first:].decode().splitlines()
    begin = int(lines[0].split()[1])
    assert lines == [f"line {number:010d}" for number in range(begin, 640_000)]
    assert len(kept) > 4 * MEBIBYTE


def test_a_beginning_that_is_no_longer_kept_is_told_of(amux: Amux) -> None:
    with_cap(amux, "4M")
    # Raw: a carriage return would be printed with each newline.
    program = "import sys; [print(f'line {n:010d}') for n in range(int(sys.argv[1]))]"
    twice = amux.create(python(amux, program, "400000"), name="twice")
    thrice = amux.create(python(amux, program, "600000"), name="thrice")
    finished(twice)
    finished(thrice)
    assert size_of(log(twice).with_name("output.log.1")) >= 4 * MEBIBYTE
    whole = amux.cli("logs", "twice")
    assert (whole.stdout[:16], whole.stderr) == ("line 0000000000\n", "")
    told = f"amux: the beginning of what thrice ({thrice.id}) printed is no longer kept: its log was full\n"
    for options in ((), ("-f",), ("-n", "10000000"), ("--run", "1")):
        part = amux.cli("logs", "thrice", *options)
        assert "line 0000000000" not in part.stdout
        assert part.stdout.endswith("line 0000599999\n")
        assert part.stderr == told
    assert amux.cli("logs", "thrice", "-n", "1").stderr == ""


def test_a_log_that_was_deleted_is_gone_until_it_is_begun_anew(amux: Amux) -> None:
    session = amux.create(["sh", "-c", "echo ready; exec cat"], name="fz")
    path = log(session)
    until(lambda: b"ready" in path.read_bytes())
    gone = f"amux: the log of fz ({session.id}) is gone\n"
    session.delete_files()
    for options in ((), ("-f",)):
        refused = amux.cli("logs", "fz", *options, check=False)
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", gone)
    session.send("printed later")
    # What is known of it is written anew, and what its logger holds still.
    session.stop()
    for options in ((), ("-f",)):
        kept = amux.cli("logs", "fz", *options)
        assert (kept.stdout.splitlines()[-1], kept.stderr) == ("printed later", "")


def test_at_the_cap_nothing_is_lost_while_amuxd_is_down(amux: Amux) -> None:
    with_cap(amux, "4M")
    program = (
        "import os, time\n"
        "for n in range(400_000):\n"
        "    print(f'line {n:010d}')\n"
        "    n == 1000 and os.close(os.open('begun', os.O_CREAT))\n"
    )
    session = amux.create(python(amux, program), cwd=str(amux.machine.temporary))
    until((amux.machine.temporary / "begun").exists)
    amux.stop()
    amux.start()
    finished(session)
    kept = log(session).with_name("output.log.1").read_bytes() + log(session).read_bytes()
    wanted = b"".join(b"line %010d\n" % number for number in range(400_000))
    assert hashlib.sha256(kept).digest() == hashlib.sha256(wanted).digest()


def test_each_run_has_a_log_of_its_own(anywhere: Client) -> None:
    session = anywhere.create(["sh", "-c", "echo run; exit 1"])
    session.wait_state("failed")
    first = log(session)
    session.certificate()
    before = first.read_bytes()
    session.call("Restart")
    session.wait_state("failed")
    session.certificate()
    second = log(session)
    assert (first.parent.name, second.parent.name) == ("1", "2")
    assert first.read_bytes() == second.read_bytes() == before == b"run\r\n"


def test_what_was_drawn_is_told_with_its_blanks_and_lines(amux: Amux) -> None:
    session = amux.create(["printf", r"\033[2J\033[Hhello\033[5Cworld\033[3;1Hthird\n"])
    assert finished(session)["last_lines"] == ["hello     world", "third"]
    assert "hello     world" in amux.cli("show", session.id).stdout


@pytest.mark.parametrize("command", ["exit 0", "exec sleep 1000"])
def test_what_printed_nothing_has_no_last_output(anywhere: Client, command: str) -> None:
    session = anywhere.create(["sh", "-c", command])
    if "sleep" in command:
        session.stop()
    session.wait_state("completed", "stopped")
    session.certificate()
    assert "Last output" not in anywhere.cli("show", session.id).stdout
    assert session.get("LastActivityUSec") == 0


@pytest.mark.parametrize("shell", [False, True])
def test_what_is_printed_just_before_the_end_is_the_last_output(amux: Amux, shell: bool) -> None:
    lines = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
    session = amux.create(["sh", "-c", lines], shell=shell)
    session.wait_state("completed")
    session.certificate()
    printed = session.get("LastActivityUSec")
    assert printed >= session.get("StartedUSec")
    assert "Last output" in amux.cli("show", session.id).stdout
    if not shell:
        amux.restart()
        assert session.get("LastActivityUSec") == printed


def test_activity_follows_what_is_printed_and_nothing_else(anywhere: Client) -> None:
    quiet = anywhere.machine.temporary / "quiet"
    quiet.unlink(missing_ok=True)
    script = f"stty -echo; : >{quiet}; while read word; do echo $word; done"
    session = anywhere.create(["sh", "-c", script])
    until(quiet.exists)

    def activity() -> tuple[int, int]:
        return session.get("LastActivityUSec"), session.get("LastActivityHash")

    assert activity() == (0, 0)
    session.send("one")
    until(lambda: "one" in session.log())
    first = until(lambda: activity()[0] and activity())
    session.send("two")
    until(lambda: "two" in session.log())
    second = until(lambda: activity() != first and activity())
    assert second[0] > first[0]
    assert second[1] != first[1]
    assert abs(second[0] / 1e6 - log(session).stat().st_mtime) < 0.01
    # Typed and not answered is no activity; that amuxd looked again is seen from its counting a third word.
    session.send("", enter=False)
    anywhere.cli("ls")
    assert activity() == second
    session.send("three")
    third = until(lambda: activity() != second and activity())
    assert third[0] > second[0]


def test_activity_goes_on_across_a_rotation(amux: Amux) -> None:
    with_cap(amux, "4M")
    program = (
        "import sys\n"
        "for line in sys.stdin:\n"
        "    print('x' * 5_000_000 if line == 'much\\n' else line, flush=True)\n"
    )
    script = 'stty -echo; exec "$0" -c "$1"'
    session = amux.create(["sh", "-c", script, str(amux.machine.bindir / "python3"), program])
    session.send("much")
    rotated = log(session).with_name("output.log.1")
    # Five megabytes through a terminal, on a machine that may have other things to do.
    until(rotated.exists, timeout=60)
    until(lambda: rotated.stat().st_size + size_of(log(session)) >= 5_000_002, timeout=60)
    until(lambda: abs(session.get("LastActivityUSec") / 1e6 - log(session).stat().st_mtime) < 0.01)
    before = session.get("LastActivityUSec"), session.get("LastActivityHash")
    assert before[0]
    session.send("little")
    until(lambda: "little" in session.log())
    after = until(lambda: session.get("LastActivityUSec") > before[0] and session.get("LastActivityHash"))
    assert after != before[1]


def test_a_copier_that_is_killed_is_not_taken_for_a_full_disk(anywhere: Client) -> None:
    script = "stty -echo; echo ready; while read -r word; do echo $word; done"
    session = anywhere.create(["sh", "-c", script])
    until(lambda: "ready" in session.log())
    session.send("one")
    until(lambda: "one" in session.log())
    path = str(log(session))

    def copies(process: psutil.Process) -> bool:
        # Another one may go away while it is looked at.
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            return process.name() == "dd" and parent is not None and runs_with(parent, path)
        return False

    [copier] = filter(copies, anywhere.machine.processes())
    copier.kill()
    killed = "[amux: what takes down the output was killed, some of it may be missing here]"
    until(lambda: killed in session.log())
    session.send("two")
    until(lambda: "two" in session.log())
    assert session.log().replace("\r", "").split("\n") == ["ready", "one", "", killed, "two", ""]
    session.stop()
    assert session.log().count("[amux") == 1


def runs_with(process: psutil.Process, word: str) -> bool:
    # Another one may go away while it is looked at.
    with contextlib.suppress(psutil.NoSuchProcess):
        return word in process.cmdline()
    return False


def test_what_was_reserved_for_output_is_given_back_when_all_of_it_is_killed(anywhere: Client) -> None:
    session = anywhere.create(["sh", "-c", "stty -echo; echo ready; exec sleep 1000"])
    until(lambda: "ready" in session.log())
    path = log(session)
    assert path.stat().st_blocks * 512 > 32 << 10
    printed_at = path.stat().st_mtime_ns
    writers = [process for process in anywhere.machine.processes() if runs_with(process, str(path))]
    terminals = set(filter(None, (writer.parent() for writer in writers)))
    # A terminal that stands still begins nobody anew in the place of those that are killed.
    for terminal in terminals:
        terminal.suspend()
    # Whoever takes it down first, so that it cannot give anything back.
    for process in [*writers, *terminals]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    session.wait_state("failed")
    # To give it back is a change like any, until its moment is put right.
    until(
        lambda: path.stat().st_blocks * 512 <= 16 << 10 and path.stat().st_mtime_ns == printed_at, timeout=60
    )
    assert session.log().startswith("ready")


def test_show_names_the_log_of_what_has_begun(anywhere: Client) -> None:
    session = anywhere.create(["sh", "-c", "stty -echo; read word"], start=False)
    line = f"Log:         {session.get('LogPath')}\n"
    assert "Log:" not in anywhere.cli("show", session.id).stdout
    session.call("Start")
    assert line in anywhere.cli("show", session.id).stdout
    session.stop()
    for of_run in ((), ("--run", "1")):
        assert line in anywhere.cli("show", *of_run, session.id).stdout
    Path(session.get("LogPath")).unlink()
    assert "Log:         gone\n" in anywhere.cli("show", session.id).stdout
    assert "Log:         no output is kept\n" in anywhere.cli("show", "--run", "1", session.id).stdout
    assert "gone" in anywhere.cli("logs", session.id, check=False).stderr
