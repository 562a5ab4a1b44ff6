"""Text that came from elsewhere, fit for a terminal, and how wide it is there."""

# Joiners belong to emoji and to scripts that need them; other invisible characters only deceive.
_KEPT = frozenset("\u00a0\u200c\u200d\u2009\u202f\u3000")
_LONGEST = 1000
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}


def harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return _NAMED.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    total = 0
    for char in text:
        # U+FE0F turns the character before it into a wide picture.
        if char == "\ufe0f":
            total += 1
        elif category(char) not in ("Mn", "Me", "Cf"):
            total += 2 if east_asian_width(char) in "WF" else 1
    return total


def cut(text: str, limit: int) -> str:
    if width(text) <= limit:
        return text
    # Combining marks count nothing, so that cutting never parts one from its letter.
    kept = used = 0
    while (used := used + width(text[kept])) < limit:
        kept += 1
    return text[:kept] + "…"


def padded(text: str, limit: int) -> str:
    return text + " " * (limit - width(text))


def shortened(text: str) -> str:
    """What a person would not read to its end, with how much of it is left out."""
    left_out = len(text) - _LONGEST
    return text if left_out <= 0 else f"{text[:_LONGEST]}… and {left_out} more characters: --json has them"
