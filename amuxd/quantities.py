"""Durations and sizes, as people write them."""

import re

UNLIMITED = 2**64 - 1
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {unit: 1024**power for power, unit in enumerate(["", "K", "M", "G", "T", "P"])}


def parse_duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a duration such as 15, 15s, 2m or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    if text == "infinity":
        return UNLIMITED
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = float(match[1]) * _BYTES[match[2].upper()] if match else 0
    if not 1 <= size < UNLIMITED:
        raise ValueError(f"{text!r} is not a size such as 512M, 4G, 1.5G or infinity")
    return int(size)


def parse_percent(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})%?", text.strip())
    if not match or int(match[1]) == 0 or int(match[1]) >= 2**32:
        raise ValueError(f"{text!r} is not a share of processors such as 50% or 200%")
    return int(match[1])


def parse_count(text: str) -> int:
    if text == "infinity":
        return UNLIMITED
    if not re.fullmatch(r"\d{1,18}", text) or int(text) == 0:
        raise ValueError(f"{text!r} is not a number above 0, nor infinity")
    return int(text)


def format_size(size: int) -> str:
    for unit, power in reversed(_BYTES.items()):
        if unit and size >= power:
            return f"{size / power:.4g}{unit}"
    return str(size)


def format_duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return _pair(whole, 60, "m", 1, "s")
    if whole < 86400:
        return _pair(whole, 3600, "h", 60, "m")
    return _pair(whole, 86400, "d", 3600, "h")


def _pair(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_unit}" + (f" {rest}{small_unit}" if rest else "")
