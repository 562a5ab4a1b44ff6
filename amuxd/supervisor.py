"""Facts in, transitions out: the only place that changes a session's state."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from amuxd import processes, states
from amuxd.errors import AmuxError, Internal, InvalidArgument, InvalidTransition
from amuxd.hosts import Home, Host, LaunchRefused
from amuxd.hosts.tmux import TmuxRefused, TmuxUnreachable
from amuxd.logs import last_lines, wait_until_at_rest
from amuxd.records import Certificate, HistoryEntry, RunState, Session
from amuxd.registry import Entry, Registry
from amuxd.states import ENDED, LIVE, End, Fact, Liveness, State, Transition, decide, possible
from amuxd.store import Conflict, Store, StoreError
from amuxd.watch import Watch

logger = logging.getLogger(__name__)

USER = "user"
KERNEL = "kernel"
AMUXD = "amuxd"

RETRY_PAUSE = 5.0

Result = TypeVar("Result")


class Listener(Protocol):
    """Told after the disk was."""

    def appeared(self, entry: Entry) -> None: ...

    def disappeared(self, entry: Entry) -> None: ...

    def moved(self, entry: Entry, transition: Transition) -> None: ...

    def changed(self, entry: Entry, *properties: str) -> None: ...


def now() -> int:
    return time.time_ns() // 1000


class Supervisor:
    def __init__(self, store: Store, host: Host, watch: Watch, boot_id: str) -> None:
        self.registry = Registry()
        self.store = store
        self.host = host
        self.boot_id = boot_id
        self.stop_grace = 10.0
        self._watch = watch
        self._listeners: list[Listener] = []
        self._disk = ThreadPoolExecutor(8, "disk")
        self._tasks: set[asyncio.Task[Any]] = set()

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def on_disk(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, partial(work, *arguments))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("a task failed", exc_info=error)

    # Changes of state.

    async def apply(
        self, entry: Entry, fact: Fact, by: str, end: End | None = None, **changes: Any
    ) -> Transition | None:
        """Brings about what the fact means, step by step: on disk first, in memory next, then told."""
        last = None
        async with entry.writing:
            while transition := decide(entry.situation, fact):
                await self._write(entry, transition, by, end, changes)
                last = transition
        return last

    async def _write(
        self, entry: Entry, transition: Transition, by: str, end: End | None, changes: dict[str, Any]
    ) -> None:
        at = max(now(), entry.state.state_changed_at + 1)
        new = self._standing(
            entry,
            state=transition.target,
            previous=transition.source,
            state_changed_at=at,
            reason=transition.reason,
            changed_for=by,
            run=transition.run,
            **changes,
        )
        line = HistoryEntry(at, transition.run, transition.source, transition.target, transition.reason, by)
        certificate = None
        if transition.target in ENDED:
            certificate = Certificate(
                entry.id, transition.run, at, transition.reason, end or End(), complete=entry.home is None
            )
        try:
            await self.on_disk(self.store.change, entry.state, new, line, certificate)
        except Conflict as conflict:
            entry.state = conflict.present
            raise
        entry.state = new
        if certificate or transition.target is State.CREATED:
            entry.certificate = certificate
        logger.info(
            "%s: %s → %s: %s",
            entry.session.name,
            transition.source,
            transition.target,
            transition.reason,
            extra={"AMUX_SESSION": entry.id, "AMUX_STATE": transition.target.value},
        )
        for listener in self._listeners:
            listener.moved(entry, transition)

    def _standing(self, entry: Entry, **changes: Any) -> RunState:
        return replace(
            entry.state,
            updated_by=os.getpid(),
            boot_id=self.boot_id,
            last_activity_at=entry.activity_at,
            last_activity_hash=entry.activity_hash,
            last_checked_at=entry.checked_at,
            **changes,
        )

    async def apply_surely(self, entry: Entry, fact: Fact, by: str, **changes: Any) -> Transition | None:
        """For what has happened already: a disk that is full now is tried again until it is not."""
        while True:
            try:
                return await self.apply(entry, fact, by, **changes)
            except Conflict as conflict:
                logger.warning("%s: %s", entry.session.name, conflict)
            except StoreError as error:
                logger.error("%s cannot be written: %s", entry.session.name, error)
                await asyncio.sleep(RETRY_PAUSE)

    def changed(self, entry: Entry, *properties: str) -> None:
        for listener in self._listeners:
            listener.changed(entry, *properties)

    # What a person asks for.

    async def create(self, session: Session) -> Entry:
        at = session.created_at
        state = RunState(
            session_id=session.id,
            state=State.CREATED,
            state_changed_at=at,
            updated_by=os.getpid(),
            run=1,
            boot_id=self.boot_id,
            reason="created",
            changed_for=USER,
        )
        line = HistoryEntry(at, 1, None, State.CREATED, "created", USER)
        try:
            await self.on_disk(self.store.create, session, state, line)
        except StoreError as error:
            raise Internal(str(error)) from error
        entry = Entry(session, state, checked_at=at)
        self.registry.add(entry)
        logger.info("%s: created", session.name, extra={"AMUX_SESSION": entry.id, "AMUX_STATE": "created"})
        for listener in self._listeners:
            listener.appeared(entry)
        return entry

    async def start(self, entry: Entry) -> None:
        async with entry.operation:
            await self._request(entry, states.StartRequested(), "start")
            await self.bring_up(entry)

    async def restart(self, entry: Entry) -> None:
        async with entry.operation:
            if decide(entry.situation, states.RestartRequested()):
                await self._settled(entry)
            await self._request(
                entry,
                states.RestartRequested(),
                "restart",
                command=None,
                server=None,
                started_at=0,
                parked=False,
            )
            entry.activity_at = entry.activity_hash = 0
            await self.apply(entry, states.StartRequested(), USER)
            await self.bring_up(entry)

    async def bring_up(self, entry: Entry) -> None:
        """From starting to running, or to failed with the reason."""
        try:
            home = await self.host.launch(entry.session, entry.state.run, entry.keeps_terminal)
        except LaunchRefused as error:
            await self._give_up(entry, str(error))
            return
        except (OSError, StoreError) as error:
            await self._give_up(entry, f"{error}")
            return
        entry.keeps_terminal = False
        try:
            await self.apply(
                entry,
                states.CommandStarted(),
                AMUXD,
                command=home.command,
                server=home.server,
                started_at=now(),
            )
        except StoreError as error:
            # The gate is closed still: nothing has run that the disk does not know of.
            home.close()
            await self._give_up(entry, str(error))
            return
        self.take_home(entry, home)

    async def _give_up(self, entry: Entry, why: str) -> None:
        entry.keeps_terminal = False
        with contextlib.suppress(Exception):
            await self.host.tear_down(entry.id, at_once=True)
        try:
            await self.apply(entry, states.CouldNotStart(why), AMUXD, end=End(not_started=why))
        except StoreError as error:
            self.spawn(self._give_up_later(entry, why))
            raise Internal(f"{entry.session.name} could not start: {why}; {error}") from error

    async def _give_up_later(self, entry: Entry, why: str) -> None:
        await asyncio.sleep(RETRY_PAUSE)
        await self.apply_surely(entry, states.CouldNotStart(why), AMUXD, end=End(not_started=why))

    async def stop(self, entry: Entry, grace: float | None) -> None:
        async with entry.operation:
            await self._request(entry, states.StopRequested(), "stop")
            await self.bring_down(entry, self.stop_grace if grace is None else grace)

    async def bring_down(self, entry: Entry, grace: float) -> None:
        """From stopping to stopped: the command first, then everything that is left."""
        home = entry.home
        end = End()
        in_time = True
        try:
            if home is not None:
                await self.host.ask_to_end(entry.session, home)
                in_time = await _happens(entry.ended, grace)
                if in_time:
                    await self.host.settle(entry.id)
            await self.host.tear_down(entry.id, at_once=not in_time)
            if home is not None:
                await entry.ended.wait()
                end = processes.end_of(home.command_fd, home.command) or end
        except Exception as error:
            logger.exception("%s could not be stopped", entry.session.name)
            await self.apply_surely(entry, states.CouldNotStop(str(error)), AMUXD, end=end)
            raise Internal(f"{entry.session.name} could not be stopped: {error}") from error
        self.leave_home(entry)
        entry.keeps_terminal = False
        fact = states.CommandEnded(end) if end.known else states.HomeGone()
        await self.apply_surely(entry, fact, AMUXD, end=end)
        await self._certify(entry)

    async def archive(self, entry: Entry) -> None:
        async with entry.operation:
            if entry.state.state is State.ARCHIVED:
                raise InvalidTransition(f"{entry.session.name} is archived already")
            await self._request(entry, states.ArchiveRequested(), "archive")
            await self._settled(entry)
            if entry.keeps_terminal:
                await self._tear_down(entry)

    async def remove(self, entry: Entry, force: bool) -> None:
        if entry.state.state in LIVE:
            if not force:
                raise InvalidTransition(
                    f"{entry.session.name} is {entry.state.state}: stop it first, or force its removal"
                )
            if entry.state.state in {State.RUNNING, State.STALE}:
                await self.stop(entry, None)
        async with entry.operation:
            if entry.state.state in LIVE:
                raise InvalidTransition(f"{entry.session.name} is {entry.state.state} again")
            await self._settled(entry)
            if entry.keeps_terminal:
                await self._tear_down(entry)
            try:
                await self.on_disk(self.store.remove, entry.id)
            except StoreError as error:
                raise Internal(str(error)) from error
            self.registry.discard(entry)
            logger.info("%s: removed", entry.session.name, extra={"AMUX_SESSION": entry.id})
            for listener in self._listeners:
                listener.disappeared(entry)

    def kill(self, entry: Entry, name: str) -> None:
        number = processes.signal_number(name)
        if number is None:
            raise InvalidArgument(f"there is no signal {name!r}")
        if entry.home is None or entry.ended.is_set():
            raise self._impossible(entry, "kill")
        signal.pidfd_send_signal(entry.home.command_fd, number)

    async def send(self, entry: Entry, text: str, enter: bool) -> None:
        await self._ask_terminal(entry, "send", self.host.send(entry.id, text, enter))

    async def capture(self, entry: Entry, lines: int) -> str:
        return await self._ask_terminal(entry, "capture", self.host.capture(entry.id, lines))

    def attach_command(self, entry: Entry) -> list[str]:
        if entry.host_alive is not Liveness.ALIVE:
            raise self._impossible(entry, "attach")
        return self.host.attach_command(entry.id)

    async def certificate(self, entry: Entry, run: int) -> Certificate | None:
        """Waits until the last lines are all there."""
        if run in (0, entry.state.run):
            await self._settled(entry)
            if entry.certificate or run:
                return entry.certificate
        for earlier in [run] if run else range(entry.state.run - 1, 0, -1):
            if found := await self.on_disk(self.store.certificate, entry.id, earlier):
                return found
        return None

    async def _ask_terminal(self, entry: Entry, verb: str, question: Coroutine[Any, Any, Result]) -> Result:
        if entry.host_alive is not Liveness.ALIVE:
            question.close()
            raise self._impossible(entry, verb)
        try:
            return await question
        except (TmuxUnreachable, TmuxRefused) as error:
            raise Internal(f"the terminal of {entry.session.name} did not do it: {error}") from error

    async def _request(self, entry: Entry, fact: Fact, verb: str, **changes: Any) -> None:
        try:
            if await self.apply(entry, fact, USER, **changes) is None:
                raise self._impossible(entry, verb)
        except Conflict as conflict:
            raise self._impossible(entry, verb) from conflict
        except StoreError as error:
            raise Internal(f"{entry.session.name} stays {entry.state.state}: {error}") from error

    def _impossible(self, entry: Entry, verb: str) -> AmuxError:
        ways = possible(entry.situation)
        hint = f"; possible: {', '.join(ways)}" if ways else ""
        target = {"start": "starting", "stop": "stopping", "restart": "created", "archive": "archived"}.get(
            verb
        )
        way = f" (from {entry.state.state} to {target})" if target else ""
        return InvalidTransition(
            f"{entry.session.name} is {entry.state.state}, {verb} is not possible{way}{hint}"
        )

    # What is seen to happen.

    def take_home(self, entry: Entry, home: Home) -> None:
        """Holds on to a live run, and lets its command go."""
        entry.home = home
        entry.ended.clear()
        entry.looked_in_vain = False
        self._watch.process(home.command_fd, partial(self.command_ended, entry, home))
        log = self.store.log(entry.id, entry.state.run)
        self._watch.log(entry.id, log, partial(self._printed, entry))
        self.host.release(entry.id)
        self.changed(entry, "Pid", "SessionAlive", "HostAlive")

    def leave_home(self, entry: Entry) -> None:
        self._watch.forget_log(entry.id)
        if entry.home is not None:
            self._watch.forget_process(entry.home.command_fd)
            entry.home.close()
            entry.home = None

    def _printed(self, entry: Entry, at: int, digest: int) -> None:
        entry.activity_at = at
        entry.activity_hash = digest

    def command_ended(self, entry: Entry, home: Home) -> None:
        entry.ended.set()
        # While it is being stopped, the one who stops it tells of the end, when nothing is left.
        if entry.state.state is not State.STOPPING:
            self.spawn(self._conclude(entry, home))

    async def _conclude(self, entry: Entry, home: Home) -> None:
        end = await self.host.end_of(entry.session, entry.state.run, home)
        if entry.state.state is not State.STOPPING:
            await self.conclude(entry, end)

    async def conclude(self, entry: Entry, end: End) -> None:
        await self.apply_surely(entry, states.CommandEnded(end), KERNEL, end=end)
        if entry.state.state in ENDED:
            entry.settling = self.spawn(self.settle(entry))

    async def settle(self, entry: Entry) -> None:
        """The end is told; now the last lines arrive, and the home is left unless somebody looks at it."""
        await self.host.settle(entry.id)
        self.leave_home(entry)
        entry.attached = await self._count_attached(entry)
        entry.keeps_terminal = entry.attached > 0
        if not entry.keeps_terminal:
            await self._tear_down(entry)
        await self._certify(entry)
        self.changed(entry, "Pid", "Attached", "SessionAlive", "HostAlive")

    async def _settled(self, entry: Entry) -> None:
        if entry.settling is not None:
            await asyncio.shield(entry.settling)
            entry.settling = None

    async def _certify(self, entry: Entry) -> None:
        if entry.certificate is None:
            return
        log = self.store.log(entry.id, entry.certificate.run)
        if entry.keeps_terminal:
            await self.on_disk(wait_until_at_rest, log)
        lines = await self.on_disk(last_lines, log)
        certificate = replace(entry.certificate, last_lines=lines, complete=True)
        try:
            await self.on_disk(self.store.amend_certificate, certificate)
        except StoreError as error:
            logger.error("%s: %s", entry.session.name, error)
        entry.certificate = certificate

    async def _tear_down(self, entry: Entry) -> None:
        entry.keeps_terminal = False
        entry.attached = 0
        try:
            await self.host.tear_down(entry.id)
        except Exception:
            logger.exception("what is left of %s could not be ended", entry.session.name)

    async def _count_attached(self, entry: Entry) -> int:
        try:
            return await self.host.attached(entry.id)
        except (TmuxUnreachable, TmuxRefused):
            return 0

    def attachment_changed(self, session_id: str) -> None:
        if entry := self.registry.get(session_id):
            self.spawn(self._attachment_changed(entry))

    async def _attachment_changed(self, entry: Entry) -> None:
        if entry.host_alive is not Liveness.ALIVE:
            return
        entry.attached = await self._count_attached(entry)
        self.changed(entry, "Attached")
        if entry.keeps_terminal and not entry.attached and not entry.operation.locked():
            async with entry.operation:
                await self._tear_down(entry)
                self.changed(entry, "HostAlive")

    async def suspend_all(self) -> None:
        """amuxd is stopping: whatever runs goes on without it, and the disk says so."""
        for task in list(self._tasks):
            task.cancel()
        running = [e for e in self.registry if e.state.state is State.RUNNING]
        outcomes = await asyncio.gather(*(self._suspend(entry) for entry in running), return_exceptions=True)
        for entry, outcome in zip(running, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                logger.error("%s could not be suspended: %s", entry.session.name, outcome)

    async def _suspend(self, entry: Entry) -> None:
        home = entry.home
        if home is not None and entry.ended.is_set():
            end = await self.host.end_of(entry.session, entry.state.run, home)
            await self.apply(entry, states.CommandEnded(end), KERNEL, end=end)
        await self.apply(entry, states.DaemonStopping(), AMUXD)


async def _happens(event: asyncio.Event, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
