"""Signals by name, those for real time too, of which Python knows the first and the last alone."""

import signal


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
        return f"SIGRTMIN+{number - first}" if first <= number <= last else f"SIG{number}"


def signal_number(name: str) -> int | None:
    bare = name.upper().removeprefix("SIG")
    if bare.isdigit():
        number = int(bare)
        return number if 0 < number <= int(signal.SIGRTMAX) else None
    if bare.startswith("RTMIN+") and bare[6:].isdigit():
        number = int(signal.SIGRTMIN) + int(bare[6:])
        return number if number <= int(signal.SIGRTMAX) else None
    found = signal.Signals.__members__.get("SIG" + bare)
    return int(found) if found is not None else None
