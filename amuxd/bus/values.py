"""Values on the bus and in Python."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dbus_fast import Message, Variant
from dbus_fast.signature import SignatureTree, SignatureType

__all__ = ["PropertyMap", "Typed", "Variant", "to_python", "to_wire", "variant"]

Convert = Callable[[Any], Any]

_OBJECT_PATH = re.compile(r"/|(?:/[A-Za-z0-9_]+)+")
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Typed:
    """A value for a variant, whose D-Bus type the interface leaves open."""

    signature: str
    value: object


class PropertyMap(dict[str, Variant]):
    """An a{sv} that is ready to be sent, and is not looked through again."""


class _MeasuredInBytes(str):
    """dbus-fast 1.84, as in Debian 12, sends len() as the length: the bus disconnects it for one ü."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.encode())


def _measures_characters() -> bool:
    message = Message.new_signal("/", "org.amux.Amux1", "Probe", "s", ["ü"])._marshall(False)
    return message[-7:-3] == b"\1\0\0\0"


_MEASURES_CHARACTERS = _measures_characters()


def to_wire(signature: str, body: Sequence[object]) -> list[Any]:
    converters = _converters(signature)
    if len(converters) != len(body):
        raise TypeError(f"{len(body)} values do not make a body of the signature {signature!r}")
    return [convert(value) for convert, value in zip(converters, body, strict=True)]


def variant(signature: str, value: object) -> Variant:
    tree, convert = _single(signature)
    return Variant(tree, convert(value), False)


def to_python(signature: str, body: Sequence[Any]) -> list[Any]:
    if "v" not in signature:
        return list(body)
    return [_unwrapped(value) for value in body]


def _unwrapped(value: Any) -> Any:
    kind = type(value)
    if kind is Variant:
        return _unwrapped(value.value)
    if kind is dict:
        return {key: _unwrapped(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_unwrapped(item) for item in value]
    return value


@lru_cache
def _converters(signature: str) -> tuple[Convert, ...]:
    return tuple(_converter(kind) for kind in SignatureTree(signature).types)


@lru_cache
def _single(signature: str) -> tuple[SignatureTree, Convert]:
    tree = SignatureTree(signature)
    if len(tree.types) != 1:
        raise TypeError(f"a variant holds one value, not a {signature!r}")
    return tree, _converter(tree.types[0])


def _converter(kind: SignatureType) -> Convert:
    """Each value is checked alone, so that a wrong one cannot spoil a whole reply."""
    if kind.token in _CONVERTERS:
        return _CONVERTERS[kind.token]
    if kind.token == "(":
        return _struct([_converter(child) for child in kind.children])
    if kind.token != "a":
        raise TypeError(f"values of type {kind.token!r} are not sent")
    element = kind.children[0]
    if element.token == "{":
        return _dictionary(_converter(element.children[0]), _converter(element.children[1]))
    if element.token == "y":
        return bytes
    return _array(_converter(element))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, not a {type(value).__name__}")
    text = value if type(value) is str else str.__str__(value)
    if text.isascii() and "\0" not in text:
        return text
    # The bus disconnects whoever sends it NUL or a lone surrogate; terminals and file names have both.
    text = _UNSENDABLE.sub("\ufffd", text)
    return _MeasuredInBytes(text) if _MEASURES_CHARACTERS else text


def _integer(bits: int, signed: bool) -> Convert:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: int) -> int:
        if not isinstance(value, int):
            raise TypeError(f"an integer is needed, not a {type(value).__name__}")
        if not low <= value <= high:
            raise OverflowError(f"{value} does not fit {bits} bits")
        return value

    return convert


def _path(value: object) -> str:
    path = _text(value)
    if not _OBJECT_PATH.fullmatch(path):
        raise ValueError(f"not an object path: {path!r}")
    return path


def _variant(value: object) -> Variant:
    if type(value) is Variant:
        return value
    if isinstance(value, Typed):
        return variant(value.signature, value.value)
    raise TypeError(f"a variant needs Typed, not a bare {type(value).__name__}")


def _signature(value: object) -> str:
    text = _text(value)
    SignatureTree(text)
    return text


def _struct(fields: list[Convert]) -> Convert:
    def convert(values: Sequence[object]) -> list[object]:
        return [field(value) for field, value in zip(fields, values, strict=True)]

    return convert


def _array(element: Convert) -> Convert:
    def convert(values: Any) -> list[object]:
        if isinstance(values, str):
            raise TypeError("an array is needed, not a string")
        return [element(value) for value in values]

    return convert


def _dictionary(key: Convert, item: Convert) -> Convert:
    def convert(values: Any) -> dict[Any, Any]:
        if type(values) is PropertyMap:
            return values
        return {key(name): item(value) for name, value in values.items()}

    return convert


_CONVERTERS: dict[str, Convert] = {
    "s": _text,
    "o": _path,
    "g": _signature,
    "v": _variant,
    "b": bool,
    "d": float,
    "y": _integer(8, signed=False),
    "n": _integer(16, signed=True),
    "q": _integer(16, signed=False),
    "i": _integer(32, signed=True),
    "u": _integer(32, signed=False),
    "x": _integer(64, signed=True),
    "t": _integer(64, signed=False),
}
