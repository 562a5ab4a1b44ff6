"""The reply to ListSessions, a(oa{sv}), decoded in a tenth of the time that a general decoder takes."""

from struct import Struct
from typing import Any

from jeepney import Endianness
from jeepney.low_level import parse_signature

SESSIONS = "a(oa{sv})"
Sessions = list[tuple[str, dict[str, Any]]]


def sessions(raw: bytes, at: int, endianness: Endianness) -> Sessions:
    """The body begins at a multiple of eight, so that its own alignment is that of the message."""
    order = endianness.struct_code()
    unpack_u = Struct(order + "I").unpack_from
    fixed = {
        code.encode(): (Struct(order + layout).unpack_from, size)
        for code, layout, size in [("t", "Q", 8), ("x", "q", 8), ("d", "d", 8), ("u", "I", 4), ("i", "i", 4)]
    }
    boolean = b"b"
    keys: dict[bytes, str] = {}
    found: Sessions = []
    end = unpack_u(raw, at)[0]
    at = at + 4 + 7 & -8
    end += at
    while at < end:
        at = at + 7 & -8
        stop = at + 4 + unpack_u(raw, at)[0]
        path = raw[at + 4 : stop].decode()
        at = stop + 1 + 3 & -4
        entries_end = unpack_u(raw, at)[0]
        at = at + 4 + 7 & -8
        entries_end += at
        properties: dict[str, Any] = {}
        while at < entries_end:
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
            elif signature == boolean:
                at = at + 3 & -4
                properties[key] = unpack_u(raw, at)[0] != 0
                at += 4
            else:
                properties[key], at = parse_signature(list(signature.decode())).parse_data(
                    raw, at, endianness
                )
        found.append((path, properties))
    return found
