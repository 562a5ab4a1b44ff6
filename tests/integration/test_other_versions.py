"""What an amuxd of another version wrote: an older one's is read, and a newer one's left alone."""

import json
import shutil
from pathlib import Path

import pytest
from harness.bus import CallFailed
from harness.daemon import Amux

STORED = Path(__file__).parents[1] / "unit/stored"


def test_what_an_older_one_wrote_is_all_there(amux: Amux) -> None:
    amux.stop()
    for version in sorted(STORED.iterdir()):
        shutil.copytree(version, amux.state / "sessions", dirs_exist_ok=True)
    amux.start()
    session = amux.session("über ✨ build")
    assert (session.state, session.get("ExitSignal"), session.get("CoreDumped")) == (
        "failed",
        "SIGSEGV",
        True,
    )
    assert [entry[3] for entry in session.call("History")] == ["created", "starting", "running", "failed"]
    assert session.certificate()["signal"] == "SIGSEGV"
    session.remove()
    assert amux.sessions() == {}


@pytest.mark.parametrize("name", ["session.json", "state.json"])
def test_what_a_newer_one_wrote_is_shown_and_left_as_it_is(amux: Amux, name: str) -> None:
    session, other = amux.create(["sleep", "infinity"]), amux.create(["sleep", "infinity"])
    pid = session.get("Pid")
    amux.stop()
    path = amux.state / "sessions" / session.id / name
    former = path.read_text()
    newer = json.dumps(json.loads(former) | {"schema": 1000, "more": ["of", "it"]})
    path.write_text(newer)
    before = {file: file.read_bytes() for file in path.parent.rglob("*.json*")}
    amux.start()
    assert session.state == "unknown"
    assert "of schema 1000" in session.get("Reason")
    assert amux.sessions()[session.id]["State"] == "unknown"
    for verb in ("Start", "Restart", "Archive"):
        with pytest.raises(CallFailed, match="cannot be read"):
            session.call(verb)
    # Everything else works on.
    assert other.state == "running"
    other.stop()
    other.remove()
    assert {file: file.read_bytes() for file in path.parent.rglob("*.json*")} == before
    # The newer amuxd is back, and nothing has ended.
    amux.stop()
    path.write_text(former)
    amux.start()
    assert (session.state, session.get("Pid")) == ("running", pid)
