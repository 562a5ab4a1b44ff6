"""A word that finds a session, or a workspace, never means one that was not meant."""

import asyncio
import secrets
from pathlib import Path

import pytest

from amuxd.errors import Ambiguous, Internal, InvalidTransition, NameTaken, NoSuchSession, NoSuchWorkspace
from amuxd.records import RunState, Session, Workspace
from amuxd.registry import Entry, Registry, UnreadableSession
from amuxd.states import State
from amuxd.store import Store
from amuxd.supervisor import Supervisor
from amuxd.workspaces.ledger import Ledger, UnreadableWorkspace
from amuxd.workspaces.registry import Workspaces


def of(**names: str) -> Registry:
    registry = Registry()
    for session_id, name in names.items():
        state = RunState(session_id, State.STOPPED, 1, 1, 1, "boot", "")
        registry.add(Entry(Session(session_id, name, ["true"], "/", 1), state))
    return registry


def workspaces_of(root: Path, **names: str) -> Workspaces:
    supervisor = Supervisor(Store(root), "boot")
    workspaces = Workspaces(supervisor, Ledger(root, supervisor.store, "boot"))
    for workspace_id, name in names.items():
        workspaces.know(Workspace(workspace_id, name, "/work", 1))
    return workspaces


def test_an_id_is_meant_from_its_third_character_on(tmp_path: Path) -> None:
    registry, workspaces = of(abc123="build"), workspaces_of(tmp_path, abc123="fix")
    for word in ("abc", "abc12", "abc123"):
        assert registry.find(word).id == workspaces.find(word).id == "abc123"
    for word in ("", "a", "ab", "bc1", "abc1234"):
        with pytest.raises(NoSuchSession):
            registry.find(word)
        with pytest.raises(NoSuchWorkspace):
            workspaces.find(word)


def test_a_short_name_is_found_and_once_it_is_removed_nothing_else_is() -> None:
    registry = of(abc123="build", xyz789="a")
    named = registry.find("a")
    assert isinstance(named, Entry)
    assert named.id == "xyz789"
    registry.discard(named)
    with pytest.raises(NoSuchSession):
        registry.find("a")


def test_a_beginning_that_two_ids_have_is_refused(tmp_path: Path) -> None:
    names = {"abc123": "one", "abc456": "two"}
    with pytest.raises(Ambiguous, match=r"abc123 \(one\), abc456 \(two\)"):
        of(**names).find("abc")
    with pytest.raises(Ambiguous, match=r"abc123 \(one\), abc456 \(two\)"):
        workspaces_of(tmp_path, **names).find("abc")


def test_no_name_is_the_id_of_another(tmp_path: Path) -> None:
    registry = of(abc123="build")
    registry.not_readable["xyz789"] = UnreadableSession("xyz789", "lost", "damaged", None, 0)
    for taken in ("abc123", "xyz789"):
        with pytest.raises(NameTaken, match=f"'{taken}' is the id of a session"):
            registry.promise_name(taken, "make")
    assert registry.promise_name("", "/usr/bin/abc123") == "abc123-2"
    workspaces = workspaces_of(tmp_path, abc123="fix")
    with pytest.raises(NameTaken, match="'abc123' is the id of a workspace"), workspaces.promised("abc123"):
        pass


def test_one_that_cannot_be_read_is_known_and_stays_where_its_file_cannot_be_put_aside(
    tmp_path: Path,
) -> None:
    workspaces = workspaces_of(tmp_path, abc123="fix")
    for name in ("xyz789", "no-path"):
        (tmp_path / f"workspaces/{name}.json").write_text('{"schema":99,"name":"lost"}')
    assert asyncio.run(workspaces.load()) == []
    lost = workspaces.find("lost")
    assert lost is workspaces.find("xyz") is workspaces.not_readable["xyz789"]
    assert isinstance(lost, UnreadableWorkspace)
    with pytest.raises(InvalidTransition, match=r"the workspace lost cannot be read: .* schema 99"):
        workspaces.find_readable("lost")
    with pytest.raises(NoSuchWorkspace, match="did you mean 'lost'"):
        workspaces.find("los")
    for taken in ("lost", "xyz789"):
        with pytest.raises(NameTaken), workspaces.promised(taken):
            pass
    (tmp_path / "workspaces/xyz789.json").unlink()
    with pytest.raises(Internal, match="the workspace lost stays: "):
        asyncio.run(workspaces.put_aside(lost))
    assert workspaces.find("lost") is lost


def test_no_id_is_the_name_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, workspaces = of(abc123="aaaaaa"), workspaces_of(tmp_path, abc123="aaaaaa")
    for make in (registry.new_id, workspaces.new_id):
        drawn = iter("aaaaaabaaaaa")
        monkeypatch.setattr(secrets, "choice", lambda _, drawn=drawn: next(drawn))
        assert make() == "baaaaa"
