"""The command line."""


def main() -> None:
    # Imported in here: Ctrl-C while Python still loads is as quiet as later on.
    import sys

    if None in (sys.stdin, sys.stdout, sys.stderr):
        from amuxd.cli import closed_streams

        closed_streams.stand_in()
    if sys.argv[1:2] == ["report"] and not {"-h", "--help"} & set(sys.argv):
        sys.exit(_report(sys.argv[2:]))
    sys.exit(_run(sys.argv[1:]))


def _report(arguments: list[str]) -> int:
    """The hooks of an agent call this, and the agent waits: nothing else is imported."""
    try:
        from amuxd.cli import reporting

        return reporting.run(arguments)
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str]) -> int:
    import signal

    # An exception can come where Python only prints it and goes on, so there is none while nothing needs it:
    # before the command, and after it. Who has us ignore Ctrl-C is obeyed.
    wanted = signal.getsignal(signal.SIGINT)
    quiet = signal.SIG_DFL if wanted is signal.default_int_handler else wanted
    signal.signal(signal.SIGINT, quiet)
    from amuxd.cli.app import run

    try:
        signal.signal(signal.SIGINT, wanted)
        return run(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, quiet)
