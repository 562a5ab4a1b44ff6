"""Runs in the pane, by itself: launch.py RUN-DIRECTORY GATES [UMASK]. Kept to what starts fast.

The command waits behind a gate until amuxd holds its process and has written down that it runs, so that no
end comes too early to be seen. Its parent becomes a cat that never reaps it: however long amuxd is away,
the kernel keeps how it ended. Where that is told to the parent alone, it writes it down before it becomes
the cat. The cat prints what amuxd writes into the last gate, which is how the log gets an end that comes
after all that the command printed; and when the cat goes, the terminal is over.
"""

import errno
import os
import signal
import sys

GO = b"go\n"


def main() -> None:
    run, gates, *umask = sys.argv[1:]
    # Before amuxd is told that somebody is here: from then on the run may lose its files.
    directory, search, *command = _read(os.open(f"{run}/command", os.O_RDONLY)).split(b"\0")
    token = _read(os.open(f"{run}/token", os.O_RDONLY)).strip()
    # Opened before amuxd is told that it may open the gate: what it says must find somebody here.
    gate = os.open(f"{gates}/gate", os.O_RDONLY)
    # Both are closed where another program begins.
    begins, beginning = os.pipe()
    child = os.fork()
    if child:
        os.close(beginning)
        _stay(run, gates, child, begins)
    else:
        _wait(gates, gate)
        # The terminal server gives its own client's.
        os.environb[b"PATH"] = search
        # Not among what the terminal server knows: that outlives the run, and the token must not.
        os.environb[b"AMUX_TOKEN"] = token
        _become(run, directory, command, umask)


def _stay(run: str, gates: str, child: int, begins: int) -> None:
    # What is typed is for the command.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    _write(f"{gates}/up", b"%d %d\n" % (child, os.getppid()))
    _read(begins)
    if _is_shut(child):
        # As sudo is. To nobody but its parent does the kernel say how it ended, and so the parent says it.
        end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        if end:
            told = b"%d %d\n" % (end.si_code, end.si_status)
            # A disk may be full, and what is among the gates goes with the machine.
            for place in (gates, run):
                _put(f"{place}/ended", told)
    os.environ["PATH"] = os.defpath
    os.execvp("cat", ["cat", f"{gates}/end"])


def _is_shut(child: int) -> bool:
    # Which waits until the other program has begun; of one that has ended by then it does not tell.
    try:
        os.close(os.open(f"/proc/{child}/environ", os.O_RDONLY))
    except PermissionError:
        return True
    except OSError:
        pass
    try:
        os.readlink(f"/proc/{child}/ns/user")  # noqa: PTH115
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _wait(gates: str, gate: int) -> None:
    # A gate that closes without a word is an amuxd that went away: the next one opens it.
    while _read(gate, len(GO)) != GO:
        gate = os.open(f"{gates}/gate", os.O_RDONLY)


def _become(run: str, directory: bytes, command: list[bytes], umask: list[str]) -> None:
    # Python ignores these, and what is ignored stays so.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    doing = f"the directory {os.fsdecode(directory)} cannot be entered"
    try:
        os.chdir(directory)
        doing = f"{os.fsdecode(command[0])} cannot be run"
        if umask:
            os.umask(int(umask[0], 8))
        _execute(command)
    except OSError as error:
        # amuxd is to read it, whatever others may not.
        os.umask(0o077)
        why = os.strerror(error.errno or 0)
        if error.errno == errno.ENOENT and os.path.exists(_found(command[0])):  # noqa: PTH110
            why = "its interpreter is missing"
        _write(f"{run}/not_started", f"{doing}: {why}\n".encode(errors="replace"))
        os._exit(127)


def _execute(command: list[bytes]) -> None:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        script = _found(command[0])
        if error.errno != errno.ENOEXEC or _is_binary(script):
            raise
        # A script that does not say who runs it is the shell's, as everywhere.
        os.execv("/bin/sh", [b"sh", script, *command[1:]])


def _is_binary(program: bytes) -> bool:
    """Damaged, or for another machine: its first line, as shells look at it, is none of a script."""
    return b"\0" in _read(os.open(program, os.O_RDONLY), 256).partition(b"\n")[0]


def _found(program: bytes) -> bytes:
    if b"/" in program:
        return program
    places = os.environb.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [(place or b".") + b"/" + program for place in places]
    return next((path for path in paths if os.access(path, os.X_OK)), program)


def _read(fd: int, size: int = 1 << 22) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(fd, size - len(data))):
        data += more
    os.close(fd)
    return data


def _put(path: str, data: bytes) -> None:
    """Whole or not at all; a disk that is full costs no more than that."""
    try:
        _write(f"{path}.new", data)
        os.rename(f"{path}.new", path)  # noqa: PTH104
    except OSError:
        pass


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, data)
    os.close(fd)


if __name__ == "__main__":
    main()
