"""A list of objects with their properties, a(oa{sv}), in a tenth of the time that a general decoder takes."""

from struct import Struct
from typing import Any

from jeepney import Endianness
from jeepney.low_level import parse_signature

OBJECTS = "a(oa{sv})"
Objects = list[tuple[str, dict[str, Any]]]

_FIXED = [("t", "Q", 8), ("x", "q", 8), ("d", "d", 8), ("u", "I", 4), ("i", "i", 4)]


def objects(raw: bytes, at: int, endianness: Endianness) -> Objects:
    """The body begins at a multiple of eight, so that its own alignment is that of the message."""
    return _Decoder(raw, endianness).objects(at)


class _Decoder:
    def __init__(self, raw: bytes, endianness: Endianness) -> None:
        order = endianness.struct_code()
        self._raw = raw
        self._endianness = endianness
        self._unpack_u = Struct(order + "I").unpack_from
        self._fixed = {
            code.encode(): (Struct(order + layout).unpack_from, size) for code, layout, size in _FIXED
        }
        self._keys: dict[bytes, str] = {}

    def objects(self, at: int) -> Objects:
        raw, unpack_u = self._raw, self._unpack_u
        found: Objects = []
        end = unpack_u(raw, at)[0]
        at = at + 4 + 7 & -8
        end += at
        while at < end:
            at = at + 7 & -8
            stop = at + 4 + unpack_u(raw, at)[0]
            path = raw[at + 4 : stop].decode()
            properties, at = self._properties(stop + 1)
            found.append((path, properties))
        return found

    def _properties(self, at: int) -> tuple[dict[str, Any], int]:
        raw, unpack_u, fixed, keys = self._raw, self._unpack_u, self._fixed, self._keys
        at = at + 3 & -4
        end = unpack_u(raw, at)[0]
        at = at + 4 + 7 & -8
        end += at
        properties: dict[str, Any] = {}
        while at < end:
            at = at + 7 & -8
            stop = at + 4 + unpack_u(raw, at)[0]
            encoded_key = raw[at + 4 : stop]
            key = keys.get(encoded_key)
            if key is None:
                key = keys[encoded_key] = encoded_key.decode()
            at = stop + 2
            stop = at + raw[stop + 1]
            signature = raw[at:stop]
            at = stop + 1
            if signature == b"s" or signature == b"o":
                at = at + 3 & -4
                stop = at + 4 + unpack_u(raw, at)[0]
                properties[key] = raw[at + 4 : stop].decode()
                at = stop + 1
            elif signature in fixed:
                unpack, size = fixed[signature]
                at = at + size - 1 & -size
                properties[key] = unpack(raw, at)[0]
                at += size
            elif signature == b"b":
                at = at + 3 & -4
                properties[key] = unpack_u(raw, at)[0] != 0
                at += 4
            elif signature == b"a{sv}":
                properties[key], at = self._properties(at)
            elif signature == b"as":
                properties[key], at = self._strings(at)
            else:
                general = parse_signature(list(signature.decode()))
                properties[key], at = general.parse_data(raw, at, self._endianness)
        return properties, at

    def _strings(self, at: int) -> tuple[list[str], int]:
        raw, unpack_u = self._raw, self._unpack_u
        at = at + 3 & -4
        end = at + 4 + unpack_u(raw, at)[0]
        at += 4
        strings = []
        while at < end:
            at = at + 3 & -4
            stop = at + 4 + unpack_u(raw, at)[0]
            strings.append(raw[at + 4 : stop].decode())
            at = stop + 1
        return strings, at
