"""Ctrl-C: an exception only where something is to be told of it. It can come where Python only prints it."""

# What the module signal is made of, without what that imports: until then Ctrl-C is not quiet.
from _signal import SIG_DFL, SIGINT, default_int_handler, getsignal, signal

# Who has us ignore it is obeyed.
_wanted = getsignal(SIGINT)


def end_quietly() -> None:
    signal(SIGINT, SIG_DFL if _wanted is default_int_handler else _wanted)


def raise_exceptions() -> None:
    signal(SIGINT, _wanted)
