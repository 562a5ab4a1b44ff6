"""Where live runs are watched: what they print, that they end, and the terminals that outlive them."""

import asyncio
import logging
import math
import zlib
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from amuxd import inotify, processes
from amuxd.aftermath import Aftermath
from amuxd.attending import Attending
from amuxd.errors import Internal
from amuxd.hosts import Home, Host, StopRefused
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.learning import Learning
from amuxd.logs import END_OF_LOG, last_changed, size_of
from amuxd.memory import MemoryKills
from amuxd.recording import Recording
from amuxd.registry import Entry
from amuxd.shells import OpenShells
from amuxd.states import Liveness
from amuxd.supervisor import LONGEST_PAUSE, RETRY_PAUSE, Supervisor, now
from amuxd.watch import Watch

logger = logging.getLogger(__name__)


class Homes:
    def __init__(
        self,
        supervisor: Supervisor,
        host: Host,
        watch: Watch,
        stay: Callable[[Entry], Coroutine[Any, Any, None]],
    ) -> None:
        self.attending = Attending(supervisor, watch, host)
        self._supervisor = supervisor
        self._host = host
        self._watch = watch
        self.shells = OpenShells(supervisor, watch, self._shell_ended)
        self.aftermath = Aftermath(self, supervisor, host, watch, stay)
        self._learning = Learning(supervisor, host)
        self._recording = Recording(supervisor, host, watch)
        self._memory_kills = MemoryKills(supervisor, host, watch)
        self._shell_directories: dict[str, int] = {}
        self._attachments: Path | None = None
        self._uncounted: set[str] = set()

    def take(self, entry: Entry, home: Home) -> None:
        """Holds on to a live run, and lets its command go."""
        self.leave(entry)
        entry.home = home
        entry.ended.clear()
        entry.ended_at = entry.asked_to_end_at = 0
        entry.looked_in_vain, entry.why_in_vain = False, ""
        self._watch.process(home.command_fd, partial(self.aftermath.command_ended, entry, home))
        self._watch.process(home.server_fd, partial(self.aftermath.terminal_ended, entry, home))
        log = self._supervisor.store.log(entry.id, entry.state.run)
        self._recording.begin(entry, home)
        self._memory_kills.begin(entry, home)
        self.attending.begin(entry, log)
        replaced = partial(self._recording.log_replaced, entry, home)
        self._watch.log(entry.id, log, partial(self._printed, entry), replaced)
        if entry.session.shell:
            wrote = partial(self.aftermath.run_wrote, entry, home)
            missed = partial(self.aftermath.look_for_end_in_shell, entry)
            try:
                watch = self._watch.directory(log.parent, wrote, missed, inotify.MOVED_TO)
                self._shell_directories[entry.id] = watch
            except OSError as error:
                logger.error("the end of %s may be noticed late: %s", entry.session.name, error)
            # It may have been written while nobody watched.
            self.aftermath.look_for_end_in_shell(entry)
        if self._attachments is not None:
            self.watch_attachments(self._attachments)
        self._host.release(entry.id)
        self._supervisor.changed(entry, "Pid", "SessionAlive", "HostAlive", "LimitsNotEnforced")

    def leave(self, entry: Entry) -> None:
        try:
            self._watch.last_look(entry.id)
        except Exception:
            logger.exception("what %s printed last is not seen", entry.session.name)
        self._recording.leave(entry)
        self._memory_kills.leave(entry)
        self.attending.leave(entry)
        if (directory := self._shell_directories.pop(entry.id, None)) is not None:
            self._watch.forget_directory(directory)
        if entry.home is not None:
            self._watch.forget_process(entry.home.command_fd)
            self._watch.forget_process(entry.home.server_fd)
            entry.home.close()
            entry.home = None

    def memory_kills(self, entry: Entry, home: Home) -> int:
        return self._memory_kills.seen(entry, home)

    async def drain(self, entry: Entry) -> None:
        """Returns once all that the run printed is in its log. The mark of its end counts as no output."""
        seen = self._watch.last_look(entry.id)
        await self._host.drain(entry.id, entry.state.run, entry.state.server)
        log = self._supervisor.store.log(entry.id, entry.state.run)
        if seen is not None and size_of(log) not in {seen, seen + len(END_OF_LOG)}:
            self._printed(entry, last_changed(log), zlib.crc32(b"%d" % size_of(log)))

    async def drain_command(self, entry: Entry) -> None:
        state = entry.state
        if state.command is not None and state.server is not None:
            await self._host.drain_command(entry.id, state.run, state.command, state.server)

    def _printed(self, entry: Entry, at: int, digest: int) -> None:
        entry.activity_at = at
        entry.activity_hash = digest
        self.attending.printed(entry, at)
        self._learning.printed(entry)

    async def learn_conversation(self, entry: Entry, conversation: str, run: int) -> bool:
        """For what the agent itself tells. Raises StoreError, and then knows what it knew."""
        return await self._learning.learn(entry, conversation, run)

    async def is_in(self, entry: Entry, conversation: str) -> bool:
        return await self._learning.is_in(entry, conversation)

    async def learn_last(self, entry: Entry, patience: float = math.inf) -> None:
        """Before its agent is ended, or left alone."""
        await self._learning.look_a_last_time(entry, patience)

    async def learn_said(self, entry: Entry, run: int) -> None:
        """Raises StoreError."""
        await self._learning.learn_said(entry, lambda: entry.state.run == run)

    async def look_what_was_said(self, entry: Entry) -> None:
        await self._learning.look_what_was_said(entry)

    def look_again(self, entry: Entry) -> None:
        self._learning.look_again(entry)

    async def why_lost(self, entry: Entry) -> str:
        return await self._learning.why_lost(entry)

    async def why_unanswered(self, entry: Entry) -> str:
        return await self._learning.why_unanswered(entry)

    def _shell_ended(self, entry: Entry) -> None:
        self._supervisor.spawn(self._leave_shell(entry))

    async def _leave_shell(self, entry: Entry) -> None:
        await self.aftermath.settled(entry)
        await self._attachment_changed(entry)
        await self.aftermath.shell_has_ended(entry)

    async def tear_down(self, entry: Entry) -> None:
        """What does not end is no more than logged: the end of a run is told all the same."""
        await self._tear_down(entry, None)

    async def _tear_down(self, entry: Entry, paused: float | None) -> None:
        self.shells.let_go(entry)
        try:
            await self._host.tear_down(entry.id)
        except StopRefused:
            logger.exception("what is left of %s could not be ended", entry.session.name)
        except Exception as error:
            logger.error(
                *("what is left of %s could not be ended now: %s", entry.session.name, error),
                exc_info=paused is None,
            )
            pause = RETRY_PAUSE if paused is None else min(paused * 2, LONGEST_PAUSE)
            self._supervisor.spawn(self._tear_down_later(entry, entry.state.run, pause))
        self._has_no_terminal(entry)

    async def _tear_down_later(self, entry: Entry, run: int, pause: float) -> None:
        await asyncio.sleep(pause)
        async with entry.operation:
            is_known = self._supervisor.registry.get(entry.id) is entry and entry.state.run == run
            is_in_use = entry.home is not None or entry.keeps_terminal or entry.shell_open
            if is_known and not is_in_use and self._host.has_terminal(entry.id):
                await self._tear_down(entry, pause)

    async def surely_tear_down(self, entry: Entry) -> None:
        """Raises Internal, and then all stands as it did."""
        try:
            await self._host.tear_down(entry.id)
        except Exception as error:
            name = entry.session.name
            logger.exception("what is left of %s could not be ended", name)
            raise Internal(f"what is left of {name} could not be ended: {error}") from error
        self.shells.let_go(entry)
        self._has_no_terminal(entry)
        self._supervisor.changed(entry, "Attached", "HostAlive")

    def _has_no_terminal(self, entry: Entry) -> None:
        # Until it was ended it stood.
        entry.keeps_terminal = False
        entry.attached = 0

    async def count_attached(self, entry: Entry) -> None:
        """Asked one after the other, so that the latest answer is that of the latest question."""
        async with entry.counting:
            try:
                entry.attached = await self._host.attached(entry.id)
            except (TmuxUnreachable, TmuxRefused):
                if entry.state.server is None or not processes.may_live(entry.state.server):
                    entry.attached = 0
                elif entry.id not in self._uncounted:
                    # Of a terminal that does not answer it is not known who came or left.
                    self._uncounted.add(entry.id)
                    self._supervisor.spawn(self._count_later(entry))

    async def _count_later(self, entry: Entry) -> None:
        await asyncio.sleep(RETRY_PAUSE)
        self._uncounted.discard(entry.id)
        if self._supervisor.registry.get(entry.id) is entry:
            await self._attachment_changed(entry)

    def watch_attachments(self, directory: Path) -> None:
        """Again with each run: it may be another directory by now; of the same one the watch is the same."""
        self._attachments = directory
        try:
            self._watch.directory(directory, self.attachment_changed, self._attachments_missed)
        except OSError as error:
            logger.error("who attaches may go unnoticed: %s", error)

    def attachment_changed(self, session_id: str) -> None:
        if entry := self._supervisor.registry.get(session_id):
            self.attending.redrawn(entry)
            self._supervisor.spawn(self._attachment_changed(entry))

    def _attachments_missed(self) -> None:
        self._supervisor.spawn(self.count_all())

    async def count_all(self) -> None:
        for entry in list(self._supervisor.registry):
            before = entry.attached
            if entry.host_alive is Liveness.ALIVE:
                await self.count_attached(entry)
            if entry.attached != before:
                self.attachment_changed(entry.id)

    async def _attachment_changed(self, entry: Entry) -> None:
        if entry.host_alive is not Liveness.ALIVE:
            return
        await self.count_attached(entry)
        entry.used_at = now()
        self._supervisor.changed(entry, "Attached")
        if self._keeps_in_vain(entry):
            async with entry.operation:
                # What was done to it meanwhile may have needed its terminal, or ended it.
                if self._keeps_in_vain(entry):
                    await self.tear_down(entry)
                    self._supervisor.changed(entry, "HostAlive")

    def _keeps_in_vain(self, entry: Entry) -> bool:
        """Nobody looks at the terminal that was kept for who did."""
        return entry.keeps_terminal and not entry.attached and not entry.shell_open
