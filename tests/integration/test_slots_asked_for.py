"""How many slots a workspace can have, asked for past the command line."""

from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux
from workspace_fixtures import listed


@pytest.mark.parametrize(("kind", "slots"), [("i", -1), ("t", 2**32), ("t", 2**40)])
def test_slots_that_the_bus_cannot_tell_of_are_refused(
    amux: Amux, tmp_path: Path, kind: str, slots: int
) -> None:
    options = {"path": ("s", str(tmp_path)), "slots": (kind, slots)}
    with pytest.raises(CallFailed, match="slots must be from 0") as refused:
        amux.manager.call("AddWorkspace", "sa{sv}", "many", options)
    assert refused.value.name.endswith("InvalidArgument")
    assert listed(amux) == []
    amux.manager.call("AddWorkspace", "sa{sv}", "most", {**options, "slots": ("u", 2**32 - 1)})
    assert "most" in amux.cli("ws", "ls").stdout
    amux.cli("ws", "rm", "most")
