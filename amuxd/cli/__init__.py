"""The command line."""


def main() -> None:
    # Imported in here: Ctrl-C while Python still loads is as quiet as later on.
    import sys

    from amuxd.cli import interrupts

    interrupts.end_quietly()
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from amuxd.cli import closed_streams

        closed_streams.stand_in()
    if sys.argv[1:2] == ["report"] and not {"-h", "--help"} & set(sys.argv):
        # The hooks of an agent call this, and the agent waits: nothing else is imported.
        from amuxd.cli import reporting

        sys.exit(reporting.run(sys.argv[2:]))
    import gc

    # What is loaded stays: to look for garbage in it takes a tenth of the time that a command takes.
    gc.disable()
    from amuxd.cli import at_once, way_out

    command = at_once.command(sys.argv[1:])
    if command is None:
        from amuxd.cli import app

        command = app.command(sys.argv[1:])
    try:
        code = way_out.run(command)
    except KeyboardInterrupt:
        # While it was told what went wrong.
        code = 130
    way_out.leave(code)
