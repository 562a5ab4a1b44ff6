"""What was done is told also where it cannot be printed."""

from amuxd.cli import closed_streams, failures
from amuxd.cli.failures import Failure


def tell(done: str, *lines: str) -> int:
    """Prints the lines. That it cannot would alone read like a failure of what was asked."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        why = failures.explain(problem).sentence
        closed_streams.forget_output()
        return failures.tell(Failure(f"{done}, and that cannot be printed: {why}"))
    return 0
