"""The stopwatch's other end, a script in the machine."""

import json
import os
import sys
import time

NOWHERE = os.open(os.devnull, os.O_RDWR)
INPUT_AND_OUTPUT = [(os.POSIX_SPAWN_DUP2, NOWHERE, 0), (os.POSIX_SPAWN_DUP2, NOWHERE, 1)]

for line in sys.stdin:
    command = json.loads(line)
    began = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=INPUT_AND_OUTPUT)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "status": status}), flush=True)
