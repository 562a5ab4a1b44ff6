"""A stand-in for a coding agent: keeps conversations by id in files, as the real ones do.

agent.py --store DIR (--start ID | --resume ID | --own) [--slow SECONDS] [--pauses SECONDS] [--deaf]
         [--saves SECONDS] [--refuse] [--hook COMMAND]

It says what it remembers, then reads lines: /exit ends it with 0, /crash with 3, and /clear begins another
conversation, of which the hook is told; /work computes in a child until that gets SIGUSR1. Like a program
that draws on the terminal it throws away what was typed before it was ready. With --own it chooses its
conversation itself, keeps its file open and tells nobody; so does /new, which leaves the one before open as
well.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import termios
import time
import uuid
from functools import partial
from pathlib import Path

NEW = -1


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--start", metavar="ID")
    parser.add_argument("--resume", metavar="ID")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--pauses", type=float, default=0)
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--saves", type=float, default=0)
    parser.add_argument("--hook", default="true")
    parser.add_argument("--model", default="plain")
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else partial(_end, options.saves))
    time.sleep(options.slow)
    if options.refuse and options.resume:
        print(f"no conversation found with id {options.resume}")
        return 1
    conversation = options.start or options.resume or str(uuid.uuid4())
    path = options.store / f"rollout-talk-{conversation}.jsonl"
    if options.start and path.exists():
        print(f"conversation {conversation} is in use already")
        return 1
    if options.resume and not path.exists():
        print(f"no conversation found with id {conversation}")
        return 1
    print(f"model {options.model}", flush=True)
    time.sleep(options.pauses)
    kept = []
    while (code := _talk(path)) is None or code == NEW:
        if code == NEW:
            kept.append(path.open("a"))
        conversation = str(uuid.uuid4())
        path = options.store / f"rollout-talk-{conversation}.jsonl"
        if code == NEW:
            continue
        told = json.dumps({"hook_event_name": "SessionStart", "source": "clear", "session_id": conversation})
        code = subprocess.run(options.hook, shell=True, input=told, text=True).returncode
        print(f"cleared, and its hook said {code}", flush=True)
    return code


def _talk(path: Path) -> int | None:
    """Until it ends with a code or, with none, goes over to another conversation."""
    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    with path.open("a+") as file:
        file.seek(0)
        said = [json.loads(line) for line in file]
        print(f"remembering {said}", flush=True)
        for line in sys.stdin:
            text = line.strip()
            if text in ("/exit", "/crash"):
                return 0 if text == "/exit" else 3
            if text == "/clear":
                return None
            if text == "/new":
                return NEW
            if text == "/work":
                print("working", flush=True)
                subprocess.run(["sh", "-c", "trap 'exit 0' USR1; while :; do :; done"])
                continue
            said.append(text)
            file.write(json.dumps(text) + "\n")
            file.flush()
            print(f"heard {len(said)}: {text}", flush=True)
    return 0


def _end(saves: float, *_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if saves:
        print("saving", flush=True)
        time.sleep(saves)
    print("goodbye", flush=True)
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
