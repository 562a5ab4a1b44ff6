"""How a run ended is certified in the store, and never replaced by less."""

# ruff: noqa: F811, a fixture's parameter bears the name of its import

from dataclasses import replace

import pytest
from store_work import (
    a_line,
    a_session,
    created,
    ended,
    moved,
    store,  # noqa: F401
)

from amuxd.records import Certificate
from amuxd.states import End, State
from amuxd.store import Known, Store, Unreadable


def test_an_end_is_certified_by_the_state_until_its_last_lines_are_known(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    certificate = Certificate("abc123", 1, 2000, second.reason, End(code=3))
    assert store.load("abc123") == Known(a_session(), second, certificate)
    assert store.certificate("abc123", 1) is None
    complete = replace(certificate, last_lines=["bye"], complete=True)
    store.certify(complete)
    assert store.load("abc123") == Known(a_session(), second, complete)


@pytest.mark.parametrize("target", [State.CREATED, State.ARCHIVED])
def test_an_end_whose_last_lines_were_never_known_outlives_its_state(store: Store, target: State) -> None:
    first = created(store)
    second = ended(first, 2000, End(signal="SIGSEGV"))
    store.change(first, second, a_line(second))
    third = moved(second, target, 3000)
    if target is State.CREATED:
        third = replace(third, run=2, end=None)
    store.change(second, third, a_line(third))
    assert store.certificate("abc123", 1) == Certificate(
        "abc123", 1, 2000, second.reason, End(signal="SIGSEGV")
    )


def test_what_is_known_of_an_end_is_not_replaced_by_less(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    complete = Certificate("abc123", 1, 2000, second.reason, End(code=3), ["bye"], True)
    store.certify(complete)
    third = replace(moved(second, State.CREATED, 3000), run=2, end=None)
    store.change(second, third, a_line(third))
    assert store.certificate("abc123", 1) == complete


def test_a_certificate_that_cannot_be_read_leaves_the_session_as_it_is(store: Store) -> None:
    first = created(store)
    second = ended(first, 2000, End(code=3))
    store.change(first, second, a_line(second))
    store.certify(Certificate("abc123", 1, 2000, second.reason, End(code=3)))
    path = store.run_directory("abc123", 1) / "exit.json"
    path.write_text("{}")
    assert isinstance(store.load("abc123"), Unreadable)
    assert path.read_text() == "{}"
