"""Where live runs are watched: what they print, how they end, and the terminals that outlive them."""

import asyncio
import contextlib
import logging
import os
import signal
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from amuxd import inotify, moments, processes, states
from amuxd.attending import Attending
from amuxd.errors import Internal
from amuxd.hosts import EXIT_STATUS, Home, Host
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.learning import Learning
from amuxd.logs import END_OF_LOG, last_changed, size_of
from amuxd.recording import Recording
from amuxd.registry import Entry
from amuxd.states import ENDED, End, Liveness, State
from amuxd.store import StoreError
from amuxd.supervisor import KERNEL, RETRY_PAUSE, Supervisor, now
from amuxd.watch import Watch

logger = logging.getLogger(__name__)

_BEING_ENDED = {State.STOPPING, State.ORPHANED}

# What has lost its terminal is given as long to end by itself as systemd gives it.
WITHOUT_TERMINAL = 5.0


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
        self._stay = stay
        self._learning = Learning(supervisor, host)
        self._recording = Recording(supervisor, host, watch)
        self._shell_directories: dict[str, int] = {}
        self._open_shells: dict[str, int] = {}
        self._attachments: Path | None = None
        self._uncounted: set[str] = set()

    def take(self, entry: Entry, home: Home) -> None:
        """Holds on to a live run, and lets its command go."""
        self.leave(entry)
        entry.home = home
        entry.ended.clear()
        entry.ended_at = 0
        entry.looked_in_vain, entry.why_in_vain = False, ""
        self._watch.process(home.command_fd, partial(self.command_ended, entry, home))
        self._watch.process(home.server_fd, partial(self._terminal_ended, entry, home))
        log = self._supervisor.store.log(entry.id, entry.state.run)
        self._recording.begin(entry, home)
        self.attending.begin(entry, log)
        replaced = partial(self._recording.log_replaced, entry, home)
        self._watch.log(entry.id, log, partial(self._printed, entry), replaced)
        if entry.session.shell:
            wrote = partial(self._run_wrote, entry, home)
            try:
                watch = self._watch.directory(log.parent, wrote, inotify.MOVED_TO)
                self._shell_directories[entry.id] = watch
            except OSError as error:
                logger.error("the end of %s may be noticed late: %s", entry.session.name, error)
            # It may have been written while nobody watched.
            self.look_for_end_in_shell(entry)
        if self._attachments is not None:
            self.watch_attachments(self._attachments)
        self._host.release(entry.id)
        self._supervisor.changed(entry, "Pid", "SessionAlive", "HostAlive", "LimitsNotEnforced")

    def leave(self, entry: Entry) -> None:
        self._watch.last_look(entry.id)
        self._recording.leave(entry)
        self.attending.leave(entry)
        if (directory := self._shell_directories.pop(entry.id, None)) is not None:
            self._watch.forget_directory(directory)
        if entry.home is not None:
            self._watch.forget_process(entry.home.command_fd)
            self._watch.forget_process(entry.home.server_fd)
            entry.home.close()
            entry.home = None

    async def drain(self, entry: Entry) -> None:
        """Returns once all that the run printed is in its log. The mark of its end counts as no output."""
        seen = self._watch.last_look(entry.id)
        await self._host.drain(entry.id, entry.state.run, entry.state.server)
        log = self._supervisor.store.log(entry.id, entry.state.run)
        if seen is not None and size_of(log) not in {seen, seen + len(END_OF_LOG)}:
            self._printed(entry, last_changed(log), zlib.crc32(b"%d" % size_of(log)))

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

    async def learn_last(self, entry: Entry) -> None:
        """Before its agent is ended, or left alone."""
        await self._learning.look_a_last_time(entry)

    async def learn_said(self, entry: Entry, run: int) -> None:
        """Raises StoreError."""
        await self._learning.learn_said(entry, lambda: entry.state.run == run)

    async def look_what_was_said(self, entry: Entry) -> None:
        await self._learning.look_what_was_said(entry)

    def look_again(self, entry: Entry) -> None:
        self._learning.look_again(entry)

    async def why_lost(self, entry: Entry) -> str:
        return await self._learning.why_lost(entry)

    def command_ended(self, entry: Entry, home: Home) -> None:
        if entry.home is not home:
            return
        entry.ended_at = now()
        entry.ended.set()
        self._supervisor.spawn(self._conclude(entry, home, entry.ended_at))

    def _terminal_ended(self, entry: Entry, home: Home) -> None:
        self._supervisor.spawn(self._end_without_terminal(entry, home))

    async def _end_without_terminal(self, entry: Entry, home: Home) -> None:
        """A command that ignores that its terminal hung up would go on where nobody can see or reach it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHOUT_TERMINAL):
                await entry.ended.wait()
        # Whoever ends it already does that in its own time.
        if entry.home is home and not _is_being_ended(entry):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(home.command_fd, signal.SIGKILL)

    def look_for_end_in_shell(self, entry: Entry) -> None:
        if entry.session.shell and entry.home is not None:
            self._run_wrote(entry, entry.home, EXIT_STATUS)

    def _run_wrote(self, entry: Entry, home: Home, name: str) -> None:
        """The command in a shell has ended, and the shell lives on."""
        if name != EXIT_STATUS or entry.home is not home or entry.ended.is_set():
            return
        if entry.state.state is not State.RUNNING:
            return
        if (end := self._host.end_in_shell(entry.session, entry.state.run)) is not None:
            self._watch.forget_process(home.command_fd)
            # It may have been written late, on a full disk say, and says itself when it ended.
            directory = self._supervisor.store.run_directory(entry.id, entry.state.run)
            entry.ended_at = moments.of_end(entry.state, directory, end, now()).at
            entry.ended.set()
            # Whoever wants the shell, once the end is told, waits until it is known that it stays open.
            telling = self._tell_end(entry, end, entry.state.run, entry.ended_at)
            entry.settling = self._supervisor.spawn(telling)

    async def _conclude(self, entry: Entry, home: Home, at: int) -> None:
        run = entry.state.run
        if not _is_being_ended(entry):
            await self._tell_end(entry, await self._host.end_of(entry.session, run, home), run, at)
        elif entry.state.state is State.ORPHANED and not _settles(entry):
            # Whoever was to end it could not.
            self.settle_late(entry, await self._host.end_of(entry.session, run, home))

    async def _tell_end(self, entry: Entry, end: End, run: int, at: int) -> None:
        """It may take long, on a full disk say: by then the end may be that of an earlier run."""
        told = await self._supervisor.apply_surely(
            # While it is being stopped or parked, the one who does it tells of the end, when nothing is left.
            *(entry, states.CommandEnded(end), KERNEL),
            end=end,
            run=run,
            at=at,
            unless=lambda: entry.state.state is State.STOPPING or entry.state.parked,
        )
        if told or entry.state.state is State.RUNNING:
            self.settle_if_ended(entry)
        elif self._was_not_stopped(entry, run):
            self.settle_late(entry, end)

    def settle_late(self, entry: Entry, end: End) -> None:
        """For an end that comes after the run was told to be over."""
        if end.known and entry.certificate is not None and not entry.certificate.complete:
            entry.certificate = replace(entry.certificate, end=end)
            self._supervisor.changed(entry, "ExitCode", "ExitSignal", "CoreDumped", "OomKilled")
        self.settle_if_ended(entry)

    def _was_not_stopped(self, entry: Entry, run: int) -> bool:
        """It was told to have failed while its command lived on, and nobody has left its home yet."""
        failed = entry.state.state is State.FAILED and entry.state.run == run
        return failed and entry.home is not None and not _settles(entry)

    def settle_if_ended(self, entry: Entry) -> None:
        if entry.state.state in ENDED:
            entry.settling = self._supervisor.spawn(self.settle(entry))
        elif entry.state.state is State.RUNNING and entry.session_alive is Liveness.DEAD:
            # An end that did not end the run.
            self._supervisor.spawn(self._stay(entry))

    async def settle(self, entry: Entry) -> None:
        """The end is told; now the last lines arrive, and the home is left unless somebody looks at it."""
        if not self._keep_shell(entry):
            await _tried(entry, self.drain(entry))
        await self.look_what_was_said(entry)
        await self._count_attached(entry)
        entry.keeps_terminal = entry.attached > 0 or entry.id in self._open_shells
        self.leave(entry)
        await self._keep_activity(entry)
        if not entry.keeps_terminal:
            await self.tear_down(entry)
        elif entry.id not in self._open_shells:
            shown = f"Process {entry.state.reason}. Click or press R to restart."
            await _tried(entry, self._host.show_end(entry.id, shown))
        await self._supervisor.certify(entry)
        self._supervisor.changed(entry, "Pid", "Attached", "SessionAlive", "HostAlive")

    async def _keep_activity(self, entry: Entry) -> None:
        """What it printed just before its end came after that was written down."""
        if entry.activity_at != entry.state.last_activity_at:
            with contextlib.suppress(StoreError):
                await self._supervisor.amend(entry)

    def _keep_shell(self, entry: Entry) -> bool:
        """A shell that outlives the command in it stays open until it ends by itself or the user ends it."""
        state = entry.state
        if not entry.session.shell or state.state not in {State.COMPLETED, State.FAILED}:
            return False
        if state.command is None or state.server is None:
            return False
        if processes.is_dying(state.command) or processes.is_dying(state.server):
            return False
        shell = processes.open_process(state.command)
        if shell is None:
            return False
        self._open_shells[entry.id] = shell
        self._watch.process(shell, partial(self._shell_ended, entry))
        self._supervisor.changed(entry, "ShellOpen")
        return True

    def _shell_ended(self, entry: Entry) -> None:
        self.let_go_of_shell(entry)
        self._supervisor.spawn(self._leave_shell(entry))

    async def _leave_shell(self, entry: Entry) -> None:
        await self.settled(entry)
        await self._attachment_changed(entry)

    def let_go_of_shell(self, entry: Entry) -> None:
        if (shell := self._open_shells.pop(entry.id, None)) is not None:
            self._watch.forget_process(shell)
            os.close(shell)
            self._supervisor.changed(entry, "ShellOpen")

    async def settled(self, entry: Entry, patience: float | None = None) -> None:
        while (settling := entry.settling) is not None:
            await asyncio.wait([settling], timeout=patience)
            if not settling.done():
                return
            if entry.settling is settling:
                entry.settling = None

    async def tear_down(self, entry: Entry) -> None:
        """What does not end is no more than logged: the end of a run is told all the same."""
        self.let_go_of_shell(entry)
        try:
            await self._host.tear_down(entry.id)
        except Exception:
            logger.exception("what is left of %s could not be ended", entry.session.name)
        self._has_no_terminal(entry)

    async def surely_tear_down(self, entry: Entry) -> None:
        """Raises Internal, and then all stands as it did."""
        try:
            await self._host.tear_down(entry.id)
        except Exception as error:
            name = entry.session.name
            logger.exception("what is left of %s could not be ended", name)
            raise Internal(f"what is left of {name} could not be ended: {error}") from error
        self.let_go_of_shell(entry)
        self._has_no_terminal(entry)
        self._supervisor.changed(entry, "Attached", "HostAlive")

    def _has_no_terminal(self, entry: Entry) -> None:
        # Until it was ended it stood.
        entry.keeps_terminal = False
        entry.attached = 0

    async def _count_attached(self, entry: Entry) -> None:
        """Asked one after the other, so that the latest answer is that of the latest question."""
        async with entry.counting:
            try:
                entry.attached = await self._host.attached(entry.id)
            except (TmuxUnreachable, TmuxRefused):
                if entry.state.server is None or processes.is_dying(entry.state.server):
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
            self._watch.directory(directory, self.attachment_changed)
        except OSError as error:
            logger.error("who attaches may go unnoticed: %s", error)

    def attachment_changed(self, session_id: str) -> None:
        if entry := self._supervisor.registry.get(session_id):
            self.attending.redrawn(entry)
            self._supervisor.spawn(self._attachment_changed(entry))

    async def _attachment_changed(self, entry: Entry) -> None:
        if entry.host_alive is not Liveness.ALIVE:
            return
        await self._count_attached(entry)
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
        return entry.keeps_terminal and not entry.attached and entry.id not in self._open_shells

    def has_open_shell(self, entry: Entry) -> bool:
        return entry.id in self._open_shells


def _is_being_ended(entry: Entry) -> bool:
    """By amuxd, which may just be told to stop and have said that it is suspended."""
    return entry.state.state in _BEING_ENDED or entry.state.parked


def _settles(entry: Entry) -> bool:
    """Somebody else does."""
    settling = entry.settling
    return settling not in (None, asyncio.current_task()) and not settling.done()


async def _tried(entry: Entry, step: Awaitable[None]) -> None:
    """Nobody settles an end a second time: one step that fails must not cost it the others."""
    try:
        await step
    except Exception:
        logger.exception("the end of %s is told without a part", entry.session.name)
