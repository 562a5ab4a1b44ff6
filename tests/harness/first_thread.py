"""A program whose first thread leaves the others to go on, as pthread_exit has it."""

import sys

_SCRIPT = """
import ctypes, os, sys, threading, time

def first_thread():
    return open("/proc/self/stat").read().rpartition(")")[2].split()[0]

def go_on():
    while first_thread() != "Z":
        time.sleep(0.001)
    print(f"ready {threading.get_native_id()}", flush=True)
    os._exit(int(sys.stdin.readline()))

threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""

# Says that it is ready, and in which thread, and ends with the code that it is told.
LEFT_BY_ITS_FIRST = [sys.executable, "-c", _SCRIPT]
