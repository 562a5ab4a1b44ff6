"""Run in a machine, hung_mount.py DIRECTORY: a real file system that does not answer.

Whoever asks it waits in the kernel, until the input is at its end: then all go on with an error.
"""

import ctypes
import os
import sys

DEVICE = "/dev/fuse"


def main() -> None:
    (directory,) = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel's first request is never read, so that every other one waits behind it.
    server = os.open(DEVICE, os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(directory), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)
    print("mounted", flush=True)
    sys.stdin.read()
    os.close(server)
    detach = 2
    if libc.umount2(os.fsencode(directory), detach):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)


if __name__ == "__main__":
    main()
