"""Runs in the pane, by itself: launch.py RUN-DIRECTORY GATES. Kept to what starts fast.

The command waits behind a gate until amuxd holds its process and has written down that it runs, so that no end
comes too early to be seen. Its parent becomes a cat that never reaps it: however long amuxd is away, the kernel
keeps how it ended. The cat prints what amuxd writes into the last gate, and the terminal is over when it ends;
so the log has an end, and all that the command printed comes before it.
"""

import os
import signal
import sys


def main() -> None:
    run, gates = sys.argv[1:]
    directory, *command = _read(f"{run}/command").split(b"\0")
    child = os.fork()
    if child:
        _stay(gates, child)
    else:
        _become(run, gates, directory, command)


def _stay(gates: str, child: int) -> None:
    # What is typed is for the command.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    _write(f"{gates}/up", b"%d %d\n" % (child, os.getppid()))
    os.execvp("cat", ["cat", f"{gates}/end"])


def _become(run: str, gates: str, directory: bytes, command: list[bytes]) -> None:
    # Python ignores these, and what is ignored stays so.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # A gate that closes without a word is an amuxd that went away: the next one opens it.
    while _read(f"{gates}/gate", 3) != b"go\n":
        pass
    doing = "the directory cannot be entered"
    try:
        os.chdir(directory)
        doing = f"{os.fsdecode(command[0])} cannot be run"
        os.execvp(command[0], command)
    except OSError as error:
        _write(f"{run}/not_started", f"{doing}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(127)


def _read(path: str, size: int = 1 << 22) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, data)
    os.close(fd)


if __name__ == "__main__":
    main()
