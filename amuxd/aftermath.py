"""What follows the end of a run: it is told, its last lines arrive, and what is left of it goes."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from amuxd import moments, states
from amuxd.hosts import EXIT_STATUS, Home, Host
from amuxd.registry import Entry
from amuxd.states import ENDED, End, Liveness, State
from amuxd.store import StoreError
from amuxd.supervisor import KERNEL, LONGEST_PAUSE, RETRY_PAUSE, Supervisor, now
from amuxd.watch import Watch

if TYPE_CHECKING:
    from amuxd.homes import Homes

logger = logging.getLogger(__name__)

_BEING_ENDED = {State.STOPPING, State.ORPHANED}

# What has lost its terminal is given as long to end by itself as systemd gives it.
WITHOUT_TERMINAL = 5.0
# How long whoever asks how a run ended waits for its last lines: longer than it takes to end what it left
# behind, and shorter than an ordinary call may take.
SETTLED = 8.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Aftermath:
    def __init__(
        self,
        homes: "Homes",
        supervisor: Supervisor,
        host: Host,
        watch: Watch,
        stay: Callable[[Entry], Coroutine[Any, Any, None]],
    ) -> None:
        self._homes = homes
        self._supervisor = supervisor
        self._host = host
        self._watch = watch
        self._stay = stay

    def follow(self, entry: Entry, work: Work, pause: float = RETRY_PAUSE) -> asyncio.Task[None]:
        """All that follows an end begins here, one after the other, and before anybody is told of the end.

        Whoever holds the operation of a session whose run is over, and has waited until it is settled,
        meets nothing of that run any more. What tells of an end while it holds the operation itself may
        come here after it. What fails is begun again, and keeps nobody waiting until then.
        """
        step = self._in_turn(entry, entry.settling, entry.state.run, work, pause)
        settling = entry.settling = self._supervisor.spawn(step)
        return settling

    async def _in_turn(
        self, entry: Entry, before: asyncio.Task[None] | None, run: int, work: Work, pause: float
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        if entry.state.run != run:
            return
        try:
            await work()
        except Exception:
            logger.exception("what follows the end of %s is tried again", entry.session.name)
            self._supervisor.spawn(self._follow_later(entry, run, work, pause))

    async def _follow_later(self, entry: Entry, run: int, work: Work, pause: float) -> None:
        await asyncio.sleep(pause)
        if entry.state.run == run and self._supervisor.registry.get(entry.id) is entry:
            self.follow(entry, work, min(pause * 2, LONGEST_PAUSE))

    async def settled(self, entry: Entry, patience: float | None = None) -> None:
        while (settling := entry.settling) is not None:
            await asyncio.wait([settling], timeout=patience)
            if not settling.done():
                return
            if entry.settling is settling:
                entry.settling = None

    # The end is seen.

    def command_ended(self, entry: Entry, home: Home) -> None:
        if entry.home is home and not entry.ended.is_set():
            self._ended(entry, home, now(), None)

    def run_wrote(self, entry: Entry, home: Home, name: str) -> None:
        if name == EXIT_STATUS and entry.home is home:
            self.look_for_end_in_shell(entry)

    def look_for_end_in_shell(self, entry: Entry) -> None:
        """The command in a shell may have ended, and the shell live on."""
        home, state = entry.home, entry.state
        if not entry.session.shell or home is None or entry.ended.is_set():
            return
        if state.state is not State.RUNNING:
            return
        try:
            end = self._host.end_in_shell(entry.session, state.run)
        except OSError as error:
            # The sweep looks again.
            logger.error("whether the command of %s has ended cannot be read: %s", entry.session.name, error)
            return
        if end is not None:
            self._watch.forget_process(home.command_fd)
            # It may have been written late, on a full disk say, and says itself when it ended.
            directory = self._supervisor.store.run_directory(entry.id, state.run)
            self._ended(entry, home, moments.of_end(state, directory, end, now()).at, end)

    def _ended(self, entry: Entry, home: Home, at: int, end: End | None) -> None:
        entry.checked_at = now()
        entry.ended_at = at
        entry.ended.set()
        self.follow(entry, partial(self._conclude, entry, home, at, end))

    def terminal_ended(self, entry: Entry, home: Home) -> None:
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

    # It is told.

    async def _conclude(self, entry: Entry, home: Home, at: int, end: End | None) -> None:
        def is_told_by_another() -> bool:
            """Whoever stops or parks it tells of the end, when nothing is left, and leaves its home."""
            return entry.home is not home or entry.state.state is State.STOPPING or entry.state.parked

        if is_told_by_another():
            return
        run = entry.state.run
        if end is None:
            end = await self._host.end_of(entry.session, run, home)
        # It may take long, on a full disk say.
        await self._supervisor.apply_surely(
            *(entry, states.CommandEnded(end), KERNEL), end=end, run=run, at=at, unless=is_told_by_another
        )
        await self._settle_left(entry, home, end)

    # And settled.

    def settle_left(self, entry: Entry, home: Home, end: End) -> None:
        """For an end that comes after the run was told to be over."""
        self.follow(entry, partial(self._settle_left, entry, home, end))

    async def _settle_left(self, entry: Entry, home: Home, end: End) -> None:
        if entry.home is not home:
            # Whoever came before has settled it.
            return
        certificate = entry.certificate
        if certificate is not None and not certificate.complete and end.known and certificate.end != end:
            ended_at = max(certificate.ended_at, entry.ended_at)
            entry.certificate = replace(certificate, end=end, ended_at=ended_at)
            self._supervisor.changed(entry, "ExitCode", "ExitSignal", "HowEnded", "CoreDumped", "OomKilled")
        if entry.state.state in ENDED:
            await self.settle(entry)
        else:
            self._stay_if_it_does(entry)

    def settle_if_ended(self, entry: Entry) -> None:
        if entry.state.state in ENDED:
            self.follow(entry, partial(self.settle, entry))
        else:
            self._stay_if_it_does(entry)

    def _stay_if_it_does(self, entry: Entry) -> None:
        """After an end that did not end the run."""
        if entry.state.state is State.RUNNING and entry.session_alive is Liveness.DEAD:
            self._supervisor.spawn(self._stay(entry))

    async def settle(self, entry: Entry) -> None:
        """The end is told; now the last lines arrive, and the home is left unless somebody looks at it."""
        homes = self._homes
        # Before anything is done: a shell of which that is not known must not be ended with what is left.
        keeps_shell = homes.shells.keep(entry)
        if not keeps_shell:
            await tried(entry, homes.drain(entry))
        await tried(entry, homes.look_what_was_said(entry))
        await tried(entry, homes.count_attached(entry))
        entry.keeps_terminal = entry.attached > 0 or entry.shell_open
        homes.leave(entry)
        await tried(entry, self._keep_activity(entry))
        if keeps_shell:
            await tried(entry, homes.drain_command(entry))
        if not entry.keeps_terminal:
            await homes.tear_down(entry)
        elif not entry.shell_open:
            await tried(entry, self._show_end(entry))
        await self._supervisor.certify(entry)
        self._supervisor.changed(entry, "Pid", "Attached", "SessionAlive", "HostAlive")

    async def shell_has_ended(self, entry: Entry) -> None:
        """Its terminal is then as any other whose command has ended."""
        async with entry.operation:
            # It may have been begun again meanwhile, in the same terminal.
            if entry.keeps_terminal and not entry.shell_open and entry.state.state in ENDED:
                await tried(entry, self._homes.drain(entry))
                await tried(entry, self._show_end(entry))

    async def _show_end(self, entry: Entry) -> None:
        shown = f"Process {entry.state.reason}. Click or press R to restart."
        await self._host.show_end(entry.id, shown)

    async def _keep_activity(self, entry: Entry) -> None:
        """What it printed just before its end came after that was written down."""
        if entry.activity_at != entry.state.last_activity_at:
            with contextlib.suppress(StoreError):
                await self._supervisor.amend(entry)


def _is_being_ended(entry: Entry) -> bool:
    """By amuxd, which may just be told to stop and have said that it is suspended."""
    return entry.state.state in _BEING_ENDED or entry.state.parked


async def tried(entry: Entry, step: Awaitable[None]) -> None:
    """Not all of it is done a second time: one step that fails must not cost it the others."""
    try:
        await step
    except Exception:
        logger.exception("the end of %s is told without a part", entry.session.name)
