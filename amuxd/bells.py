"""Hears in a terminal's output what calls for a person: the bell, OSC 9 and OSC 777."""

import re
from collections.abc import Callable

LONGEST_OSC = 64 * 1024

_IN_GROUND = re.compile(rb"[\x07\x1b]")
_IN_OSC = re.compile(rb"[\x07\x18\x1a\x1b]")
_IN_STRING = re.compile(rb"[\x18\x1a\x1b]")
_BELL, _CANCEL, _SUBSTITUTE, _ESCAPE, _BACKSLASH = 0x07, 0x18, 0x1A, 0x1B, 0x5C
_OSC_BEGINS = ord("]")
_STRING_BEGINS = frozenset(b"PX^_k")
# OSC 9 with a number first is not text for a person: 9;4 is progress, 9;9 the directory, and so on.
_OSC_9_COMMAND = re.compile(rb"\d{1,2}(?:;|\Z)")


class Bells:
    """Fed the output in pieces, wherever they are cut."""

    def __init__(self) -> None:
        self._state: Callable[[bytes, int], int] = self._ground
        self._osc = bytearray()
        self._calls: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        """What each call in it says, in their order; a bare bell says nothing."""
        at = 0
        while at < len(data):
            at = self._state(data, at)
        calls, self._calls = self._calls, []
        return calls

    # Each state takes some of the data and gives the place of the first byte that it left.

    def _ground(self, data: bytes, at: int) -> int:
        found = _IN_GROUND.search(data, at)
        if found is None:
            return len(data)
        if data[found.start()] == _BELL:
            self._calls.append("")
        else:
            self._state = self._escape
        return found.end()

    def _escape(self, data: bytes, at: int) -> int:
        byte = data[at]
        if byte == _OSC_BEGINS:
            self._osc.clear()
            self._state = self._in_osc
        elif byte in _STRING_BEGINS:
            self._state = self._in_string
        elif byte == _BELL:
            # Terminals obey control characters inside of a sequence and then go on with it.
            self._calls.append("")
        elif byte != _ESCAPE:
            self._state = self._ground
        return at + 1

    def _in_osc(self, data: bytes, at: int) -> int:
        found = _IN_OSC.search(data, at)
        end = found.start() if found else len(data)
        self._osc += data[at:end]
        if len(self._osc) > LONGEST_OSC:
            # It was binary data, and whatever comes next must not be swallowed with it.
            self._state = self._ground
            return end
        if found is None:
            return end
        if data[end] == _BELL:
            self._end_osc()
        else:
            self._state = self._osc_escape if data[end] == _ESCAPE else self._ground
        return end + 1

    def _osc_escape(self, data: bytes, at: int) -> int:
        if data[at] != _BACKSLASH:
            self._state = self._escape
            return at
        self._end_osc()
        return at + 1

    def _in_string(self, data: bytes, at: int) -> int:
        found = _IN_STRING.search(data, at)
        if found is None:
            return len(data)
        self._state = self._string_escape if data[found.start()] == _ESCAPE else self._ground
        return found.end()

    def _string_escape(self, data: bytes, at: int) -> int:
        if data[at] != _BACKSLASH:
            self._state = self._escape
            return at
        self._state = self._ground
        return at + 1

    def _end_osc(self) -> None:
        self._state = self._ground
        number, _, text = bytes(self._osc).partition(b";")
        if number == b"9" and text and not _OSC_9_COMMAND.match(text):
            self._calls.append(text.decode(errors="replace"))
        elif number == b"777" and text.startswith(b"notify;"):
            title, _, body = text.removeprefix(b"notify;").partition(b";")
            self._calls.append(b": ".join(part for part in (title, body) if part).decode(errors="replace"))
