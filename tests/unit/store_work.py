"""Sessions in a store of their own, and how they change."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from amuxd.records import HistoryEntry, RunState, Session
from amuxd.states import End, State
from amuxd.store import Store


def a_session(session_id: str = "abc123") -> Session:
    return Session(session_id, "build", ["make"], "/src", 1000)


def a_state(session_id: str = "abc123") -> RunState:
    return RunState(session_id, State.CREATED, 1000, os.getpid(), 1, "boot", "created")


def a_line(state: RunState, by: str = "test") -> HistoryEntry:
    return HistoryEntry(state.state_changed_at, state.run, state.previous, state.state, state.reason, by)


def moved(state: RunState, target: State, at: int) -> RunState:
    return replace(state, state=target, previous=state.state, state_changed_at=at, reason=f"now {target}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def created(store: Store, session_id: str = "abc123") -> RunState:
    state = a_state(session_id)
    store.create(a_session(session_id), state, a_line(state))
    return state


def ended(before: RunState, at: int, end: End) -> RunState:
    return replace(moved(before, State.FAILED, at), end=end)
