"""What is asked of a list and does not exist is refused, and not left out in silence."""

from pathlib import Path
from typing import Any

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux

from amuxd.cli.failures import RemoteError


@pytest.mark.parametrize(
    ("filter", "said"),
    [
        ({"bogus": ("b", True)}, "there is no filter 'bogus'"),
        ({"states": ("as", ["bogus"])}, "there is no state 'bogus'"),
        ({"properties": ("as", ["Id", "Bogus"])}, "there is no property 'Bogus'"),
    ],
)
def test_what_there_is_not_is_refused(amux: Amux, filter: dict[str, Any], said: str) -> None:
    amux.create(["sleep", "infinity"])
    with pytest.raises(CallFailed, match=said) as refused:
        amux.sessions(**filter)
    assert refused.value.name == "org.amux.Amux1.Error.InvalidArgument"


def test_of_workspaces_as_well(amux: Amux, tmp_path: Path) -> None:
    amux.cli("ws", "add", "here", "--path", str(tmp_path))

    def listed(**filter: tuple[str, Any]) -> dict[str, Any]:
        [(_, properties)] = amux.manager.call("ListWorkspaces", "a{sv}", filter)
        return dict(properties)

    assert listed(properties=("as", ["Name"])) == {"Name": ("s", "here")}
    assert set(listed(properties=("as", ["Slots"]), status=("b", True))) == {"Slots", "Status"}
    assert {"Name", "Slots", "CreatedUSec"} <= set(listed())
    with pytest.raises(CallFailed, match="there is no property 'Bogus'"):
        listed(properties=("as", ["Name", "Bogus"]))
    with pytest.raises(CallFailed, match="there is no filter 'bogus'") as refused:
        listed(bogus=("b", True))
    assert refused.value.name == "org.amux.Amux1.Error.InvalidArgument"


def test_a_property_that_amuxd_does_not_know_yet_has_it_called_older(amux: Amux) -> None:
    with pytest.raises(CallFailed) as refused:
        amux.sessions(properties=("as", ["Later"]))
    assert RemoteError(refused.value.name, refused.value.message).is_not_understood
