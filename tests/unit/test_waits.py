import pytest
from hypothesis import given
from hypothesis import strategies as st

from amuxd.attention import (
    AFTERGLOW,
    LONGEST_MESSAGE,
    Died,
    Fact,
    Kind,
    Pressed,
    Printed,
    Rang,
    Reported,
    Typed,
    Wait,
    Works,
    decide,
    one_line,
)

PERMISSION = Wait(Kind.PERMISSION, "rm?", 100)
BELL = Wait(Kind.BELL, "", 100)
SOON, LATER = 100 + AFTERGLOW, 101 + AFTERGLOW


@pytest.mark.parametrize(
    ("wait", "fact", "after"),
    [
        (None, Reported(Kind.TURN, "done", 5), Wait(Kind.TURN, "done", 5)),
        (PERMISSION, Reported(Kind.TURN, "done", 5), Wait(Kind.TURN, "done", 5)),
        (BELL, Reported(Kind.QUESTION, "", 5), Wait(Kind.QUESTION, "", 5)),
        # What is drawn with the question is no answer; what comes later is.
        (PERMISSION, Printed(SOON), PERMISSION),
        (PERMISSION, Printed(LATER), None),
        (BELL, Printed(LATER), None),
        (None, Printed(LATER), None),
        # A bell says less than the agent did, and the latest more than an earlier one.
        (None, Rang("", 7), Wait(Kind.BELL, "", 7)),
        (PERMISSION, Rang("", LATER), PERMISSION),
        (PERMISSION, Rang("rm?", 7, Kind.QUESTION), Wait(Kind.QUESTION, "rm?", 7)),
        (PERMISSION, Pressed(SOON), PERMISSION),
        (PERMISSION, Pressed(LATER), None),
        (BELL, Rang("look", 7), Wait(Kind.BELL, "look", 7)),
        (Wait(Kind.BELL, "look", 1), Rang("", 7), Wait(Kind.BELL, "look", 7)),
        (PERMISSION, Typed(), None),
        (PERMISSION, Works(), None),
        (PERMISSION, Died(), None),
        (None, Typed(), None),
    ],
)
def test_decisions(wait: Wait | None, fact: Fact, after: Wait | None) -> None:
    assert decide(wait, fact) == after


@given(st.sampled_from(Kind), st.text())
def test_no_report_holds_for_ever(kind: Kind, message: str) -> None:
    wait = decide(None, Reported(kind, message, 100))
    assert wait is not None
    assert decide(wait, Printed(LATER)) is None


@given(st.text(st.characters()))
def test_any_text_becomes_a_line_that_can_be_kept(message: str) -> None:
    line = one_line(message)
    assert len(line) <= LONGEST_MESSAGE
    assert line.isprintable()
    assert line.encode().decode() == line
