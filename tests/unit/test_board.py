from hypothesis import given
from hypothesis import strategies as st

from amuxd.board import CRITICAL, LOW, MANY, SUMMARY, TOGETHER, Board, Note


def note(name: str, kind: str = "failed", urgency: int = CRITICAL) -> Note:
    return Note(kind, name, f"{name} {kind}", "why", urgency)


def test_a_few_stand_alone_and_are_replaced_and_taken() -> None:
    board = Board()
    assert board.put("a", note("a"), 0) == {"a": note("a")}
    assert board.put("a", note("a", "stale"), 0) == {"a": note("a", "stale")}
    assert (board.kind("a"), board.body("a"), board.kind("b")) == ("stale", "why", "")
    assert board.take("a") == {"a": None}
    assert board.take("a") == {}


def test_many_at_once_become_one_and_go_one_by_one() -> None:
    board = Board()
    for number in range(MANY):
        board.put(f"s{number}", note(f"s{number}"), 0.1)
    changes = board.put("last", note("last", "completed", LOW), 0.2)
    assert [changes[f"s{number}"] for number in range(MANY)] == [None] * MANY
    summary = changes[SUMMARY]
    assert summary is not None
    assert summary.title == f"amux: 1 completed, {MANY} failed"
    assert summary.urgency == CRITICAL
    assert summary.body == "last, s0, s1, s2"
    for number in range(20):
        changes = board.put(f"more{number}", note(f"more{number}", "attention"), 0.3)
    assert changes[SUMMARY].title == f"amux: 20 waiting for you, 1 completed, {MANY} failed"  # type: ignore[union-attr]
    assert changes[SUMMARY].body.endswith("and 18 more")  # type: ignore[union-attr]
    members = board.members()
    assert len(members) == 24
    for key in members:
        changes = board.take(key)
    assert changes == {SUMMARY: None}


def test_what_comes_later_stands_alone_again() -> None:
    board = Board()
    for number in range(MANY + 1):
        board.put(f"s{number}", note("s"), 0)
    assert list(board.put("late", note("late"), TOGETHER + 0.1)) == ["late"]


def test_what_the_person_closed_is_gone() -> None:
    board = Board()
    board.put("a", note("a"), 0)
    board.closed("a")
    assert board.take("a") == {}
    board.remember({"b": "failed"}, {"c": "failed", "d": "attention"})
    assert (board.kind("b"), board.kind("d")) == ("failed", "attention")
    board.closed(SUMMARY)
    assert board.members() == {}


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.floats(0, 9))))
def test_there_is_never_more_than_one_for_a_session_and_none_without_reason(
    steps: list[tuple[str, bool, float]],
) -> None:
    board, shown, wanted, at = Board(), set[str](), set[str](), 0.0
    for key, comes, pause in steps:
        at += pause
        changes = board.put(key, note(key), at) if comes else board.take(key)
        (wanted.add if comes else wanted.discard)(key)
        for changed, what in changes.items():
            (shown.discard if what is None else shown.add)(changed)
        together = set(board.members())
        assert (SUMMARY in shown) == bool(together)
        assert shown - {SUMMARY} == wanted - together
        assert together <= wanted
