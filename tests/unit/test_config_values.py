"""Whatever stands in the configuration, it is settings or refused in a sentence, and amuxd starts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amuxd import config
from amuxd.config import Settings
from amuxd.errors import InvalidArgument

SETTINGS = [
    *(f"sessions.{key}" for key in config._SESSIONS),
    *(f"retention.{key}" for key in config._RETENTION),
    *(f"workspaces.{key}" for key in config._WORKSPACES),
    *(f"agents.{name}.{key}" for name in ("claude", "own") for key in config._AGENT),
]
ODD = [
    "",
    "~",
    "~nobody-here/x",
    "/x/../y",
    "'",
    "infinity",
    "never",
    "SIG",
    "ß",
    "\0",
    "9" * 400,
    "9" * 400 + "P",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.datetimes()
    | st.text(max_size=20)
    | st.sampled_from(ODD)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9) | st.sampled_from(ODD), inner, max_size=3)
    ),
)


@given(st.sampled_from(SETTINGS), VALUES)
@example("workspaces.directory", "~nobody-here/x")
@example("workspaces.setup", {"~nobody-here/x": "make"})
@example("sessions.log_cap", "9" * 400)
@example("sessions.log_cap", 2**64)
def test_a_value_is_taken_or_refused_as_what_it_is(setting: str, value: Any) -> None:
    *sections, key = setting.split(".")
    read: dict[str, Any] = {key: value}
    if sections[-1] == "own":
        read.setdefault("start", ["own"])
    for section in reversed(sections):
        read = {section: read}
    try:
        told, settings = "", config._settings(read)
    except ValueError as error:
        told, settings = str(error), Settings()
    assert not told or told.startswith((setting, ".".join(sections)))
    assert settings.log_cap < 2**64


@pytest.mark.parametrize(
    "text",
    [
        f"x = {'9' * 5000}",
        f"x = {'[' * 5000}{']' * 5000}",
        f"sessions.log_cap{'.a' * 5000} = 1",
        f"sessions.log_cap = -0x{'f' * 5000}",
        json.dumps("\0") + " = 1",
    ],
)
def test_what_is_too_long_or_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as told:
        config.load(path)
    assert str(told.value).startswith(str(path))
    assert len(str(told.value)) < len(str(path)) + 200


def test_what_nobody_foresaw_is_refused_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: dict[str, object]) -> Settings:
        raise OverflowError("too much")

    path = tmp_path / "config.toml"
    path.write_text("[sessions]\n")
    monkeypatch.setattr(config, "_settings", fails)
    with pytest.raises(InvalidArgument, match="cannot be understood: OverflowError"):
        config.load(path)
