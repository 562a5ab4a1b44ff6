"""The command line."""

from typing import NoReturn


def main() -> NoReturn:
    # Imported in here: Ctrl-C while Python still loads is as quiet as later on.
    import sys

    try:
        from amuxd.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
