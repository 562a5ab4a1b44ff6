"""The command line."""


def main() -> None:
    # Imported in here: Ctrl-C while Python still loads is as quiet as later on.
    import sys

    if sys.argv[1:2] == ["report"] and not {"-h", "--help"} & set(sys.argv):
        # The hooks of an agent call this, and the agent waits: nothing else is imported.
        from amuxd.cli import reporting

        sys.exit(reporting.run(sys.argv[2:]))
    try:
        from amuxd.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
