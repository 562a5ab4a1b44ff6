"""Slots that come free, and the sessions that wait for them."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

from amuxd.errors import AmuxError, WorkspaceBusy
from amuxd.files import StoreError
from amuxd.records import Workspace
from amuxd.registry import Entry, UnreadableSession
from amuxd.runs import Runs
from amuxd.states import ENDED, State, Transition
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE, Listener
from amuxd.workspaces.directories import Presence
from amuxd.workspaces.registry import WorkspaceListener, Workspaces
from amuxd.workspaces.slots import free

SWEEP = 60.0

logger = logging.getLogger(__name__)


class Queue(Listener, WorkspaceListener):
    """Listens to what becomes of sessions, for whoever is live no longer has given its slot back, and of the
    directories that they are to work in."""

    def __init__(self, runs: Runs, workspaces: Workspaces) -> None:
        self._runs = runs
        self._supervisor = runs.supervisor
        self._workspaces = workspaces
        # And whether it was its turn once more meanwhile: what keeps it from beginning may be gone by then.
        self._starting: dict[str, bool] = {}
        self._waiting: set[str] = set()

    async def begin(self) -> None:
        """Before anybody asks: who was live when amuxd ended need not be so now."""
        for workspace in self._workspaces:
            if workspace.holders or workspace.queue:
                # The queue tells of a disk that refuses, and tries again.
                with contextlib.suppress(StoreError):
                    await self._workspaces.tidy(workspace.id)

    async def run(self) -> None:
        """At the start, and now and then for the slot whose end nobody told of."""
        while True:
            self.advance_all()
            await asyncio.sleep(SWEEP)

    def advance_all(self) -> None:
        for workspace in self._workspaces:
            self._supervisor.spawn(self.advance(workspace.id))

    def disappeared(self, entry: Entry) -> None:
        self._advance(entry)

    def moved(self, entry: Entry, transition: Transition) -> None:
        entry.obstacle = ""
        if transition.target in ENDED | {State.ARCHIVED}:
            self._advance(entry)

    def unreadable_changed(self, session: UnreadableSession) -> None:
        for workspace in self._workspaces:
            if session.id in {place.session_id for place in workspace.holders}:
                self._supervisor.spawn(self.advance(workspace.id))

    def presence_changed(self, workspace: Workspace) -> None:
        if self._workspaces.waiting_in(workspace.id):
            self._supervisor.spawn(self.advance(workspace.id))

    def _advance(self, entry: Entry) -> None:
        if self._workspaces.of(entry):
            self._supervisor.spawn(self.advance(entry.session.workspace_id))

    async def advance(self, workspace_id: str) -> None:
        """Takes back what is free, and starts those who are next, in their order."""
        pause, said = RETRY_PAUSE, ""
        # One waits for all: a removal that cannot be put back may keep it closed for days.
        while workspace_id not in self._waiting:
            await self._wait(workspace_id, self._workspaces.until_open(workspace_id))
            try:
                workspace = await self._workspaces.tidy(workspace_id)
            except StoreError as error:
                if self._workspaces.get(workspace_id) is None:
                    return
                if str(error) != said:
                    logger.error("the queue of workspace %s stands still: %s", workspace_id, error)
                said = str(error)
                await self._wait(workspace_id, asyncio.sleep(pause))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            presence = self._workspaces.presence.get(workspace_id)
            if presence is Presence.PRESENT:
                self._begin_next(workspace)
            if presence is not None:
                # Where nobody has looked yet, that is about to be told.
                await self._workspaces.tell_positions(workspace_id)
            return

    async def _wait(self, workspace_id: str, event: Awaitable[None]) -> None:
        self._waiting.add(workspace_id)
        try:
            await event
        finally:
            self._waiting.discard(workspace_id)

    def _begin_next(self, workspace: Workspace) -> None:
        for entry in self._workspaces.waiting_in(workspace.id)[: free(workspace)]:
            is_new = entry.id not in self._starting
            self._starting[entry.id] = not is_new
            if is_new:
                self._supervisor.spawn(self._start(entry))

    async def _start(self, entry: Entry) -> None:
        try:
            await self._runs.start(entry)
        except WorkspaceBusy:
            # It is being removed. Where that is refused, the queue goes on.
            self._advance(entry)
        except AmuxError as error:
            # Started by hand meanwhile, put away, or not possible: the session itself says which.
            logger.info("%s was not started from the queue: %s", entry.session.name, error)
            if entry.waits_for_slot:
                entry.obstacle = _obstacle(entry, error)
                await self._tell_obstacle(entry.session.workspace_id)
        finally:
            if self._starting.pop(entry.id) and entry.waits_for_slot:
                self._advance(entry)

    async def _tell_obstacle(self, workspace_id: str) -> None:
        # The slot that it was given in vain is its no more, and its place is again.
        with contextlib.suppress(StoreError):
            await self._workspaces.tidy(workspace_id)
        await self._workspaces.tell_positions(workspace_id)


def _obstacle(entry: Entry, error: AmuxError) -> str:
    has_no_profile = entry.session.agent and entry.agent is None
    return entry.why_no_agent if has_no_profile else str(error)
