"""Run in a machine, hung_mount.py DIRECTORY [ERROR]: a real file system that is out of reach.

Whoever asks it waits in the kernel, until the input is at its end: then all go on with an error. Where one is
named, EACCES say, all get that at once. With TAKEN in its place what is asked is taken in and never answered:
whoever asked cannot even be killed until then.
"""

import ctypes
import errno
import os
import struct
import sys
import threading

DEVICE = "/dev/fuse"
TAKEN = "TAKEN"

# The kernel's struct fuse_in_header, fuse_out_header and fuse_init_out.
_ASKED = struct.Struct("=IIQQIIIHH")
_ANSWER = struct.Struct("=IiQ")
_READY = struct.Struct("=IIIIHHIIHHI28x")
_LONGEST = 1 << 17
# Who asks for one thing in a directory waits for nobody who asks for another.
_PARALLEL = 1 << 18
_FORGET, _INIT, _INTERRUPT, _BATCH_FORGET = 2, 26, 36, 42


def main() -> None:
    directory, *error = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    # Where the kernel's first request is never read, every other one waits behind it.
    server = os.open(DEVICE, os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(directory), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)
    if error:
        number = None if error == [TAKEN] else getattr(errno, *error)
        threading.Thread(target=take, args=(server, number), daemon=True).start()
    print("mounted", flush=True)
    sys.stdin.read()
    if not error:
        os.close(server)
    # By force, so that what is asked ends although somebody reads it.
    force_and_detach = 1 | 2
    if libc.umount2(os.fsencode(directory), force_and_detach):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)


def take(server: int, error: int | None) -> None:
    while True:
        try:
            _, kind, unique, *_ = _ASKED.unpack_from(os.read(server, _LONGEST))
        except OSError:
            # It is not mounted any more.
            return
        if kind == _INIT:
            ready = _READY.pack(7, 31, 0, _PARALLEL, 0, 0, 4096, 1, 0, 0, 0)
            os.write(server, _ANSWER.pack(_ANSWER.size + len(ready), 0, unique) + ready)
        elif error is not None and kind not in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            os.write(server, _ANSWER.pack(_ANSWER.size, -error, unique))


if __name__ == "__main__":
    main()
