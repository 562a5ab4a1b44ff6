"""The workspaces on disk: what each is, who holds its slots and who waits, counted under a lock."""

import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from amuxd import files, paths, processes
from amuxd.records import Allowed, NotReadable, Place, RunState, Workspace, is_of_boot, to_text
from amuxd.store import Store
from amuxd.supervisor import now
from amuxd.workspaces import slots

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnreadableWorkspace:
    """Left exactly as it is: an amuxd that can read it may come. Or one of which nobody knows yet how far its
    making came when amuxd ended."""

    id: str
    why: str
    # As far as that can still be made out.
    name: str
    directory: str = ""
    repository: str = ""
    branch: str = ""
    problem: str = "not readable"
    # Of which a sentence can be made.
    state: str = "cannot be read"


def unfinished(workspace: Workspace, why: str) -> UnreadableWorkspace:
    about = workspace.directory, workspace.repository, workspace.branch
    return UnreadableWorkspace(workspace.id, why, workspace.name, *about, "being made", "is not made yet")


_TOLD = re.compile(r'"(name|directory|repository|branch)":\s*("(?:[^"\\]|\\.)*")')


class Ledger:
    def __init__(self, root: Path, store: Store, boot_id: str) -> None:
        self._directory = paths.ensure_private(root / "workspaces")
        self._allowed = paths.ensure_private(root) / "allowed.json"
        self._store = store
        self.set_aside = store.set_aside
        # What is known of a session, of which this is on disk or, for the reason that is given, not readable.
        self.seen_of: Callable[[str, RunState | None, str], RunState | None] = _as_on_disk
        self._boot_id = boot_id
        self._me = processes.identify(os.getpid())
        self._allowed_commands: dict[str, list[str]] = {}
        self._taking: set[tuple[str, int]] = set()

    def _path(self, workspace_id: str) -> Path:
        return self._directory / f"{workspace_id}.json"

    def load_all(self) -> list[Workspace | UnreadableWorkspace]:
        try:
            self._allowed_commands = self._read_allowed().commands
        except NotReadable as error:
            logger.error("no set-up command counts as allowed: %s", error)
        found: list[Workspace | UnreadableWorkspace] = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                workspace = files.read(Workspace, path)
                if workspace.id != path.stem:
                    raise NotReadable(f"{path.name} is that of {workspace.id}")
                found.append(workspace)
            except NotReadable as error:
                found.append(_unreadable(path, str(error)))
        return found

    def put_aside(self, workspace_id: str) -> Path:
        """Out of the way, and lost to nobody: where it is now."""
        with files.locked(self._directory), files.disk_errors("be put aside"):
            aside = paths.ensure_private(self.set_aside) / f"{workspace_id}.json-{time.time_ns()}"
            self._path(workspace_id).rename(aside)
            files.sync_renamed(self.set_aside)
            files.sync_renamed(self._directory)
        return aside

    def define(self, workspace: Workspace) -> Workspace:
        """A new one, or one that is made now; nobody can have taken a slot in it before."""
        if not workspace.being_made:
            workspace = replace(workspace, seen_on=self._boot_id)
        with files.locked(self._directory), files.disk_errors("be written down"):
            files.replace(self._path(workspace.id), to_text(workspace))
        return workspace

    def remove(self, workspace_id: str) -> None:
        with files.locked(self._directory), files.disk_errors("be forgotten"):
            self._path(workspace_id).unlink(missing_ok=True)
            files.sync(self._directory)

    @contextlib.contextmanager
    def taking(self, session_id: str, run: int) -> Iterator[None]:
        """While a session is about to be started its slot is its own, though it is not live yet."""
        self._taking.add((session_id, run))
        try:
            yield
        finally:
            self._taking.discard((session_id, run))

    def take(self, workspace_id: str, session_id: str, run: int, may_wait: bool) -> slots.Outcome:
        assert self._me is not None
        place = Place(session_id, run, self._me, now())
        with files.locked(self._directory), files.disk_errors("take a slot"):
            before = files.read(Workspace, self._path(workspace_id))
            outcome = slots.take(before, place, may_wait, self._facts())
            if not isinstance(outcome, slots.Busy):
                self._write(before, outcome.workspace)
            return outcome

    def would_be_busy(self, workspace_id: str) -> slots.Busy | None:
        """Without a lock, and so only a hint: whoever comes first takes it."""
        assert self._me is not None
        with files.disk_errors("look for a slot"):
            present = files.read(Workspace, self._path(workspace_id))
        outcome = slots.take(present, Place("", 1, self._me, now()), False, self._facts())
        return outcome if isinstance(outcome, slots.Busy) else None

    def tidy(self, workspace_id: str) -> Workspace:
        """Takes back the slots of those that are live no longer."""
        with files.locked(self._directory), files.disk_errors("give a slot back"):
            before = files.read(Workspace, self._path(workspace_id))
            after = slots.tidied(before, self._facts())
            self._write(before, after)
            return after

    def moved(self, workspace_id: str, directory: str) -> Workspace:
        with files.locked(self._directory), files.disk_errors("be written down"):
            before = files.read(Workspace, self._path(workspace_id))
            after = replace(before, directory=directory)
            self._write(before, after)
            return after

    def was_seen(self, workspace: Workspace) -> bool:
        """Its directory, on this boot."""
        return is_of_boot(workspace.seen_on, self._boot_id)

    def saw(self, workspace_id: str) -> Workspace:
        with files.locked(self._directory), files.disk_errors("be written down"):
            before = files.read(Workspace, self._path(workspace_id))
            after = replace(before, seen_on=self._boot_id)
            self._write(before, after)
            return after

    def _write(self, before: Workspace, after: Workspace) -> None:
        if after != before:
            files.replace(self._path(after.id), to_text(after))

    def _facts(self) -> slots.Facts:
        # Each session is read once for a decision.
        return slots.Facts(cache(self._state_of), processes.may_live, self._boot_id, self._is_taking)

    def _state_of(self, session_id: str) -> RunState | None:
        path = self._store.directory(session_id) / "state.json"
        if not session_id:
            return None
        try:
            on_disk, why_unreadable = files.read(RunState, path) if path.exists() else None, ""
        except NotReadable as error:
            on_disk, why_unreadable = None, str(error)
        return self.seen_of(session_id, on_disk, why_unreadable)

    def _is_taking(self, place: Place) -> bool:
        if place.taker == self._me:
            return (place.session_id, place.run) in self._taking
        return processes.may_live(place.taker)

    def is_allowed(self, repository: str, command: str) -> bool:
        return command in self._allowed_commands.get(repository, [])

    def allow(self, repository: str, command: str) -> None:
        with files.locked(self._directory), files.disk_errors("be allowed"):
            allowed = self._read_allowed()
            commands = allowed.commands.get(repository, [])
            if command not in commands:
                allowed = replace(allowed, commands={**allowed.commands, repository: [*commands, command]})
                files.replace(self._allowed, to_text(allowed))
            # Also what could not be read before.
            self._allowed_commands = allowed.commands

    def _read_allowed(self) -> Allowed:
        return files.read(Allowed, self._allowed) if self._allowed.exists() else Allowed()


def _as_on_disk(_: str, on_disk: RunState | None, why_unreadable: str) -> RunState | None:
    if why_unreadable:
        raise slots.NotKnown(why_unreadable)
    return on_disk


def _unreadable(path: Path, why: str) -> UnreadableWorkspace:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        text = ""
    try:
        known = json.loads(text)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        # The first of each: after them there are only those who hold it and who wait.
        known = {key: _unquoted(value) for key, value in reversed(_TOLD.findall(text))}
    told = {
        key: known[key].replace("\0", " ").encode(errors="replace").decode()
        for key in ("name", "directory", "repository", "branch")
        if isinstance(known.get(key), str)
    }
    return UnreadableWorkspace(path.stem, why, told.pop("name", "") or path.stem, **told)


def _unquoted(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return None
