from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jeepney import Endianness
from jeepney.low_level import parse_signature

from amuxd.cli.decode import OBJECTS, objects

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_VALUES = st.one_of(
    st.tuples(st.just("s"), _TEXT),
    st.tuples(st.just("o"), st.sampled_from(["/", "/org/amux/Amux1/sessions/a1"])),
    st.tuples(st.just("b"), st.booleans()),
    st.tuples(st.just("i"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("u"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("t"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("x"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("y"), st.integers(0, 255)),
    st.tuples(st.just("as"), st.lists(_TEXT, max_size=3)),
    st.tuples(st.just("a{ss}"), st.dictionaries(_TEXT, _TEXT, max_size=3)),
)
_NESTED: st.SearchStrategy[Any] = st.dictionaries(
    _TEXT, st.one_of(_VALUES, st.tuples(st.just("a{sv}"), st.just({}))), max_size=3
)
_PROPERTIES: st.SearchStrategy[Any] = st.dictionaries(
    _TEXT, st.one_of(_VALUES, st.tuples(st.just("a{sv}"), _NESTED)), max_size=6
)
_OBJECTS = st.lists(
    st.tuples(st.from_regex(r"/[a-z0-9]{1,9}", fullmatch=True), _PROPERTIES),
    max_size=5,
)


@pytest.mark.parametrize("endianness", list(Endianness))
@given(found=_OBJECTS, before=st.integers(0, 3))
def test_it_says_what_jeepney_says(endianness: Endianness, found: list[Any], before: int) -> None:
    raw = b"\xff" * 8 * before
    raw += parse_signature(list(f"({OBJECTS})")).serialise((found,), 0, endianness)
    ((expected,), _) = parse_signature(list(f"({OBJECTS})")).parse_data(raw, 8 * before, endianness)
    assert objects(raw, 8 * before, endianness) == [
        (path, unwrapped(properties)) for path, properties in expected
    ]


def unwrapped(properties: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: unwrapped(value) if signature == "a{sv}" else value
        for name, (signature, value) in properties.items()
    }
