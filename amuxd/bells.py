"""What in a terminal's output calls for a person: the bell, OSC 9 and OSC 777."""

import re
from collections.abc import Callable

# What is kept of one to be read; as in a terminal, nothing but its end ends it.
LONGEST_OSC = 64 * 1024
# Longer than any title that may have been cut in two.
LONGEST_CUT = 4096

_AFTER_CUT = re.compile(rb"[\x07\n\x1b]")
_IN_GROUND = re.compile(rb"[\x07\x1b]")
_IN_CONTROL = re.compile(rb"[\x07\x18\x1a\x1b@-~]")
_VISIBLE = re.compile(rb"[^\x00-\x20\x7f]")
_IN_OSC = re.compile(rb"[\x07\x18\x1a\x1b]")
_IN_STRING = re.compile(rb"[\x18\x1a\x1b]")
_BELL, _CANCEL, _SUBSTITUTE, _ESCAPE, _BACKSLASH = 0x07, 0x18, 0x1A, 0x1B, 0x5C
_OSC_BEGINS, _CONTROL_BEGINS = ord("]"), ord("[")
_INTERMEDIATE = range(0x20, 0x30)
_STRING_BEGINS = frozenset(b"PX^_k")
# OSC 9 with a number first is not text for a person: 9;4 is progress, 9;9 the directory, and so on.
_OSC_9_COMMAND = re.compile(rb"\d{1,2}(?:;|\Z)")


class Bells:
    """Fed the output in pieces, wherever they are cut."""

    def __init__(self, cut_off: bool = False) -> None:
        """What comes first may belong to a string whose beginning was cut off."""
        self._state: Callable[[bytes, int], int] = self._cut_off if cut_off else self._ground
        self._osc = bytearray()
        self._calls: list[str] = []
        self._fed = 0
        self._begun_at = 0
        self._called_at = 0
        # Whether there was anything to be seen: titles, colours and a cursor that blinks are nothing.
        self.shown = False

    @property
    def unfinished(self) -> int:
        """So many bytes at the end may be the beginning of a call."""
        return 0 if self._state == self._ground else self._fed - self._begun_at

    @property
    def since_call(self) -> int:
        """So many bytes came after the last call."""
        return self._fed - self._called_at

    def feed(self, data: bytes) -> list[str]:
        """What each call in it says, in their order; a bare bell says nothing."""
        at = 0
        while at < len(data):
            at = self._state(data, at)
        self._fed += len(data)
        calls, self._calls = self._calls, []
        return calls

    # Each state takes some of the data and gives the place of the first byte that it left.

    def _cut_off(self, data: bytes, at: int) -> int:
        found = _AFTER_CUT.search(data, at)
        end = found.start() if found else len(data)
        if found is None and self._fed + end <= LONGEST_CUT:
            return end
        self._state = self._ground
        # A bell that may well be the end of a title is none.
        return end + 1 if data[end : end + 1] == b"\a" and self._fed + end <= LONGEST_CUT else end

    def _ground(self, data: bytes, at: int) -> int:
        found = _IN_GROUND.search(data, at)
        end = found.start() if found else len(data)
        self.shown = self.shown or _VISIBLE.search(data, at, end) is not None
        if found is None:
            return end
        if data[found.start()] == _BELL:
            self._call("", found.end())
        else:
            self._begun_at = self._fed + found.start()
            self._state = self._escape
        return found.end()

    def _escape(self, data: bytes, at: int) -> int:
        byte = data[at]
        if byte == _OSC_BEGINS:
            self._osc.clear()
            self._state = self._in_osc
        elif byte in _STRING_BEGINS:
            self._state = self._in_string
        elif byte == _CONTROL_BEGINS:
            self._state = self._in_control
        elif byte in _INTERMEDIATE:
            self._state = self._one_more
        elif byte == _BELL:
            # Terminals obey control characters inside of a sequence and then go on with it.
            self._call("", at + 1)
            self._begun_at = self._called_at
        elif byte != _ESCAPE:
            self._state = self._ground
        return at + 1

    def _in_control(self, data: bytes, at: int) -> int:
        found = _IN_CONTROL.search(data, at)
        if found is None:
            return len(data)
        byte = data[found.start()]
        if byte == _BELL:
            self._call("", found.end())
            # Heard once is enough, wherever the rest is heard.
            self._begun_at = self._called_at
        elif byte == _ESCAPE:
            self._begun_at = self._fed + found.start()
            self._state = self._escape
        else:
            self._state = self._ground
        return found.end()

    def _one_more(self, data: bytes, at: int) -> int:
        """Of what names a character set, say."""
        self._state = self._ground
        return at if data[at] in (_BELL, _ESCAPE) else at + 1

    def _in_osc(self, data: bytes, at: int) -> int:
        found = _IN_OSC.search(data, at)
        end = found.start() if found else len(data)
        self._osc += data[at : min(end, at + LONGEST_OSC - len(self._osc))]
        if found is None:
            return end
        if data[end] == _BELL:
            self._end_osc(end + 1)
        else:
            self._state = self._osc_escape if data[end] == _ESCAPE else self._ground
        return end + 1

    def _osc_escape(self, data: bytes, at: int) -> int:
        if data[at] != _BACKSLASH:
            self._state = self._escape
            return at
        self._end_osc(at + 1)
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

    def _end_osc(self, end: int) -> None:
        self._state = self._ground
        number, _, text = bytes(self._osc).partition(b";")
        if number == b"9" and text and not _OSC_9_COMMAND.match(text):
            self._call(text.decode(errors="replace"), end)
        elif number == b"777" and text.startswith(b"notify;"):
            title, _, body = text.removeprefix(b"notify;").partition(b";")
            self._call(b": ".join(part for part in (title, body) if part).decode(errors="replace"), end)

    def _call(self, says: str, end: int) -> None:
        self._calls.append(says)
        self._called_at = self._fed + end
