"""The command line."""

from typing import NoReturn


def main() -> NoReturn:
    # os._exit would lose output and sys.exit alone would let a broken pipe complain: app.run ends it all.
    import sys

    try:
        from amuxd.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
