"""A stand-in for claude: where it keeps a conversation, what it continues and what it refuses are as there.

It keeps no conversation to which nothing was said. What is said is a line; it ends with /exit or SIGTERM.
"""

import argparse
import json
import os
import signal
import sys
from itertools import chain
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--session-id")
    parser.add_argument("--resume")
    parser.add_argument("--settings")
    parser.add_argument("--model")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("question", nargs="?")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    base = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    conversation = options.session_id or options.resume
    file = base / "projects" / str(Path.cwd()).replace("/", "-") / f"{conversation}.jsonl"
    if options.session_id and file.exists():
        print(f"Error: Session ID {conversation} is already in use.", flush=True)
        return 1
    if options.resume and not file.exists():
        print(f"No conversation found with session ID: {conversation}", flush=True)
        return 1
    said = [json.loads(line)["said"] for line in file.read_text().splitlines()] if file.exists() else []
    print(f"remembering {said}", flush=True)
    for line in chain([options.question] if options.question else [], sys.stdin):
        if (text := line.strip()) == "/exit":
            break
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as kept:
            kept.write(json.dumps({"uuid": "1", "said": text}, separators=(",", ":")) + "\n")
        print(f"heard {text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
