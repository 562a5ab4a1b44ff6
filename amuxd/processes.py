"""What the kernel says about processes: alive, dying, ended and how.

None and empty mean that there is no such process. What could not be asked raises OSError.
"""

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import time
from pathlib import Path

from amuxd.lines import lines_of
from amuxd.records import Process
from amuxd.signal_names import signal_name
from amuxd.states import End

_PF_EXITING = 0x4
_PIECE = 16 * 1024
_PTS_MAJOR = 136
_TICKS = os.sysconf("SC_CLK_TCK")
# By this number all kernels know the namespace of processes that they come up with.
_FIRST_NAMESPACE = "pid:[4026531836]"

# The kernel's struct pidfd_info: since 6.15 it keeps the wait status after the process was reaped.
_INFO = struct.Struct("=QQIIIIIIIIIIIiI4x")
_INFO_EXIT = 1 << 3
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11


# A process may end also between the opening of one of its files and the reading.
_GONE = (FileNotFoundError, ProcessLookupError)


def boot_id() -> str:
    """A container is booted with its first process, on a kernel that may have been up for long."""
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    first = None
    # It may be hidden from who is not root.
    with contextlib.suppress(PermissionError):
        first = None if _is_of_first_namespace() else identify(1)
    return f"{kernel}/{first.started}" if first else kernel


def uptime() -> int:
    """In microseconds, those included in which the machine slept. Nobody sets this clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def _is_of_first_namespace() -> bool:
    return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE


def read(path: str) -> str:
    """One of the kernel's small files, at a third of what a file object costs: each session needs twenty."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, _PIECE):
            pieces.append(piece)
    finally:
        os.close(fd)
    return b"".join(pieces).decode(errors="replace")


def _stat(pid: int) -> list[str] | None:
    return _stat_in(f"/proc/{pid}")


def _stat_in(directory: str) -> list[str] | None:
    try:
        text = read(f"{directory}/stat")
    except _GONE:
        return None
    # The name may hold spaces and brackets; what follows the last bracket may not.
    return text.rpartition(")")[2].split()


def identify(pid: int) -> Process | None:
    """None also where it is hidden, as another user's that has never been the user's own."""
    fields = _stat_unless_hidden(pid)
    return Process(pid, int(fields[19])) if fields else None


def _stat_unless_hidden(pid: int) -> list[str] | None:
    try:
        return _stat(pid)
    except PermissionError:
        if _may_be_own(pid):
            raise
        return None


def _may_be_own(pid: int) -> bool:
    """One that has become another user's, sudo say, stays in the session that it was started in."""
    try:
        return _may_be_signalled(pid) or _may_be_signalled(os.getsid(pid))
    except ProcessLookupError:
        return False


def _may_be_signalled(pid: int) -> bool:
    # 0 would be oneself, and stands for what is outside of the container.
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Its own: each belongs to the thread that made it."""
    try:
        threads = _threads(pid)
    except _GONE:
        return []
    found: list[int] = []
    for thread in threads:
        # One may end while the others are asked.
        with contextlib.suppress(*_GONE):
            found += map(int, read(f"{thread}/children").split())
    return found


def _threads(pid: int) -> list[str]:
    return [entry.path for entry in os.scandir(f"/proc/{pid}/task")]


def command_line(pid: int) -> list[str]:
    """Empty also where nobody may see it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (*_GONE, PermissionError):
        return []
    return words.decode(errors="surrogateescape").split("\0")[:-1]


def open_flags(fd: Path) -> int:
    """With which it was opened; by its place in /proc."""
    flags = (fd.parent.parent / "fdinfo" / fd.name).read_text().split("flags:")[1].split()[0]
    return int(flags, 8)


def processor_time(pid: int) -> float:
    """In seconds, by itself and by those children that it knows to have ended; 0 where nobody may see it."""
    try:
        fields = _stat(pid)
    except PermissionError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def terminal_of(process: Process) -> Path | None:
    """The one that it was started in, whatever it has made of its standard input since."""
    fields = _stat(process.pid)
    if fields is None or int(fields[19]) != process.started or os.major(int(fields[4])) != _PTS_MAJOR:
        return None
    return Path(f"/dev/pts/{os.minor(int(fields[4]))}")


def foreground_group(process: Process) -> int | None:
    """The one that its terminal's keys signal; None where it is of that itself, or has no terminal."""
    fields = _stat(process.pid)
    if fields is None or int(fields[19]) != process.started:
        return None
    own, foreground = int(fields[2]), int(fields[5])
    return foreground if foreground > 0 and foreground != own else None


def reads_lines(terminal: Path) -> bool:
    """Whether what is typed there comes to the program a line at a time, and not key by key."""
    try:
        fd = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except termios.error:
        return False
    finally:
        os.close(fd)


def open_process(process: Process) -> int | None:
    """A pidfd, or None where that very process is no more."""
    # A thread may bear its number by now, and of that there is no pidfd.
    if identify(process.pid) != process:
        return None
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    try:
        is_same = identify(process.pid) == process
    except BaseException:
        os.close(fd)
        raise
    if not is_same:
        os.close(fd)
        return None
    return fd


def is_dying(process: Process) -> bool:
    """True from the moment its end is certain: before its terminal is hung up, not when it is reaped.

    How it ends is certain only when its pidfd is readable.
    """
    fields = _stat_unless_hidden(process.pid)
    if fields is None or int(fields[19]) != process.started:
        return True
    # Its first thread alone tells of all of it as long as it lives, and may leave the others to go on.
    if not _is_dying_thread(f"/proc/{process.pid}/task/{process.pid}", fields):
        return False
    try:
        return all(_is_dying_thread(thread, _stat_in(thread)) for thread in _threads(process.pid))
    except _GONE:
        return True


def _is_dying_thread(thread: str, fields: list[str] | None) -> bool:
    if fields is None or fields[0] in {"Z", "X"} or int(fields[6]) & _PF_EXITING:
        return True
    try:
        return _in_mask(thread, ("SigPnd:", "ShdPnd:"), signal.SIGKILL)
    except _GONE:
        return True


def may_live(process: Process) -> bool:
    """Also where that cannot be asked now."""
    try:
        return not is_dying(process)
    except OSError:
        return True


def may_have_children(process: Process) -> bool:
    try:
        return bool(children(process.pid))
    except OSError:
        return True


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def end_of(pidfd: int, process: Process) -> End | None:
    """None where it has not ended, or was reaped on a kernel that forgets."""
    # A process whose first thread has left the others looks as if it had ended, and with code 0.
    if pidfd < 0 or not has_ended(pidfd):
        return None
    for look in (_kept_status, _zombie_status, _kept_status):
        status = look(pidfd, process)
        if status is not None:
            return from_wait_status(status)
    return None


def _kept_status(pidfd: int, process: Process) -> int | None:
    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:
        return None
    info = _INFO.unpack(buffer)
    return int(info[13]) if info[0] & _INFO_EXIT else None


def _zombie_status(pidfd: int, process: Process) -> int | None:
    fields = _zombie(process)
    return int(fields[49]) if fields and _is_open(process.pid) else None


def _zombie(process: Process) -> list[str] | None:
    fields = _stat(process.pid)
    if fields is None or fields[0] != "Z" or int(fields[19]) != process.started:
        return None
    return fields


def is_withheld(process: Process) -> bool:
    """How it ended the kernel tells only once it is reaped: of sudo, and of what lets nobody look into it."""
    return _zombie(process) is not None and not _is_open(process.pid)


def _is_open(pid: int) -> bool:
    """To whom this is not, the kernel says 0 for how it ended, by the very same rule."""
    try:
        os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115
    except PermissionError:
        return False
    except OSError:
        # It was reaped just then, unless this kernel knows no such thing at all.
        return not Path("/proc/self/ns/user").is_symlink()
    return True


def is_reaped_within(pidfd: int, deadline: float) -> bool:
    """Blocks. Kernels before 6.15 do not tell."""
    poll = select.poll()
    # For nothing but that: that it has ended is known.
    poll.register(pidfd, 0)
    return bool(poll.poll(deadline * 1000))


def from_wait_status(status: int) -> End:
    if os.WIFSIGNALED(status):
        return End(signal=signal_name(os.WTERMSIG(status)), core_dumped=os.WCOREDUMP(status))
    return End(code=os.WEXITSTATUS(status))


def from_wait_code(code: int, status: int) -> End:
    """As waitid() tells it."""
    if code == os.CLD_EXITED:
        return End(code=status)
    return End(signal=signal_name(status), core_dumped=code == os.CLD_DUMPED)


def environment(process: Process) -> dict[str, str]:
    """As its program was started with; empty also where nobody may see it."""
    try:
        words = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    except (*_GONE, PermissionError):
        return {}
    if identify(process.pid) != process:
        return {}
    return {name: value for name, is_set, value in (word.partition("=") for word in words) if is_set}


def go_on(process: Process) -> None:
    """Only where it was stopped, by a signal or by its terminal, and as far as that can be done."""
    with contextlib.suppress(OSError):
        fields = _stat(process.pid)
        if fields is not None and fields[0] == "T" and (fd := open_process(process)) is not None:
            try:
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            finally:
                os.close(fd)


def ignores(pid: int, number: int) -> bool:
    try:
        return _in_mask(f"/proc/{pid}", ("SigIgn:",), number)
    except OSError:
        return False


def _in_mask(directory: str, masks: tuple[str, ...], number: int) -> bool:
    status = read(f"{directory}/status")
    found = (int(line.split()[1], 16) for line in lines_of(status) if line.startswith(masks))
    return any(mask & (1 << (number - 1)) for mask in found)
