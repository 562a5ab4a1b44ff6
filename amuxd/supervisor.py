"""Facts in, transitions out: the only place that changes a session's state."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from amuxd import attention
from amuxd.agents import Agent
from amuxd.disk import Disk, Together
from amuxd.errors import AmuxError, Busy, Internal
from amuxd.files import Locked
from amuxd.lengths import shortened
from amuxd.logs import LINES, last_lines, shell_mark
from amuxd.possible import impossible
from amuxd.processes import has_ended, uptime
from amuxd.records import (
    Certificate,
    HistoryEntry,
    RunState,
    Session,
    certificate_in,
    ends_later,
    is_of_boot,
)
from amuxd.registry import Entry, Registry
from amuxd.states import ENDED, End, Fact, State, Transition, after, decide
from amuxd.store import Change, Conflict, Missing, Store, StoreError

logger = logging.getLogger(__name__)

USER = "user"
KERNEL = "kernel"
AMUXD = "amuxd"

RETRY_PAUSE = 5.0
# Where it is tried ever less often.
LONGEST_PAUSE = 60.0
LONGEST_REASON = 1024
# Of very many that change at once, so many in one go.
AT_A_TIME = 64
_CHANGED = "it has changed"
UNWRITTEN = ("Unwritten", "Pid", "SessionAlive", "HostAlive")

# One that amuxd only looks away from may still wait when it looks again.
_MAY_WAIT = {State.RUNNING, State.SUSPENDED}

Result = TypeVar("Result")


class Listener(Protocol):
    """Told after the disk was; who inherits this overrides what it listens to."""

    def appeared(self, entry: Entry) -> None:
        return

    def disappeared(self, entry: Entry) -> None:
        return

    def moved(self, entry: Entry, transition: Transition) -> None:
        return

    def exited(self, entry: Entry) -> None:
        """Its present run, once a run: of an orphan it may be later that its process ends."""
        return

    def changed(self, entry: Entry, *properties: str) -> None:
        return

    def attention_changed(self, entry: Entry) -> None:
        return


def now() -> int:
    return time.time_ns() // 1000


class Supervisor:
    def __init__(self, store: Store, boot_id: str) -> None:
        self.registry = Registry()
        self.store = store
        self.boot_id = boot_id
        self._listeners: list[Listener] = []
        disk = Disk(threads=8)
        self.on_disk = disk.run
        self._together = Together(disk, store.change_together, at_most=AT_A_TIME)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changes: set[asyncio.Task[Any]] = set()
        self._many_change = 0

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    async def to_the_end(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Also if nobody waits for it any more: only the end of amuxd leaves a session half way."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def written(self, patience: float) -> None:
        """Returns once nothing is being written any more, also of what nobody waits for."""
        over = asyncio.get_running_loop().time() + patience
        while self._changes and (left := over - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._changes, timeout=left)

    @contextlib.contextmanager
    def many_change(self) -> Iterator[None]:
        """What changes in one turn of the loop is written together meanwhile."""
        self._many_change += 1
        try:
            yield
        finally:
            self._many_change -= 1

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("a task failed", exc_info=error)

    # Changes of state.

    async def apply(
        self,
        entry: Entry,
        fact: Fact,
        by: str,
        end: End | None = None,
        run: int | None = None,
        unless: Callable[[], bool] | None = None,
        at: int = 0,
        then: Fact | None = None,
        **changes: Any,
    ) -> Transition | None:
        """Brings about what the fact means, step by step: on disk first, in memory next, then told.

        A fact of a run that is over, named by its number, means nothing any more. It happened at the given
        moment, or now. What comes of it and then of the other is made as one: neither, if the disk refuses.
        """

        def means_something() -> bool:
            return run in (None, entry.state.run) and not (unless and unless())

        change = partial(self._apply, entry, fact, then, by, end, means_something, at, changes)
        return await self._alone(entry, change)

    async def _alone(self, entry: Entry, change: Callable[[], Coroutine[Any, Any, Result]]) -> Result | None:
        """To the end, also if nobody waits for it any more: disk and memory never disagree.

        What was on its way while the session was removed must not bring it back.
        """

        async def in_turn() -> Result | None:
            async with entry.writing:
                return await change() if self.registry.get(entry.id) is entry else None

        task = asyncio.get_running_loop().create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _apply(
        self,
        entry: Entry,
        fact: Fact,
        then: Fact | None,
        by: str,
        end: End | None,
        means_something: Callable[[], bool],
        at: int,
        changes: dict[str, Any],
    ) -> Transition | None:
        last = None
        while means_something() and (transition := decide(entry.situation, fact)):
            steps = [transition]
            if then and (second := decide(after(entry.situation, transition), then)):
                steps.append(second)
            await self._write(entry, steps, by, end, at, changes)
            last = steps[-1]
        return last

    async def _write(
        self,
        entry: Entry,
        steps: list[Transition],
        by: str,
        end: End | None,
        at: int,
        changes: dict[str, Any],
    ) -> None:
        known_at = now() if at else 0
        at = max(at or now(), entry.state.state_changed_at + 1)
        # It may quote what was asked for, and goes into a line of the history and of the events socket.
        steps = [_with_short_reason(step) for step in steps]
        lines = [
            HistoryEntry(at + number, step.run, step.source, step.target, step.reason, by)
            for number, step in enumerate(steps)
        ]
        transition, line = steps[-1], lines[-1]
        is_next_run = transition.run != entry.state.run
        waited = entry.state.attention
        if transition.target in ENDED:
            end = end or End()
            end = replace(end, not_started=shortened(end.not_started, LONGEST_REASON))
            changes = {"ended_after": 0, "ended_at": 0, **changes, "end": end}
        else:
            changes = {**changes, "ended_after": 0, "ended_at": 0}
        if is_next_run:
            changes = {**changes, "end": None}
        if transition.target not in _MAY_WAIT:
            changes = {**changes, **attention.as_changes(None)}
        new = self._standing(
            entry,
            state=transition.target,
            previous=transition.source,
            state_changed_at=line.at,
            known_at=known_at,
            uptime_at_change=uptime(),
            reason=transition.reason,
            changed_for=by,
            run=transition.run,
            step_before=lines[0] if len(lines) > 1 else None,
            **changes,
        )
        if is_next_run:
            new = replace(new, last_activity_at=0, last_activity_hash=0)
        is_parked = entry.parked
        try:
            await self._put_down(entry, new, line)
        except Conflict as conflict:
            entry.state = conflict.present
            raise
        if is_next_run and entry.ends_later:
            # How it ended could not be written until now.
            self._tell_exit(entry)
        entry.state = new
        # Told with it: whoever tries still and fails again says so again.
        entry.unwritten.clear()
        entry.refused.clear()
        if transition.target in ENDED:
            entry.certificate = certificate_in(new)
            entry.ends_later = ends_later(new) and not is_parked
        elif is_next_run:
            entry.certificate = None
            entry.activity_at = entry.activity_hash = 0
        for step in steps:
            self._tell(entry, step)
        if transition.target in ENDED and not entry.ends_later:
            self._tell_exit(entry)
        if transition.target is State.RUNNING:
            self.spawn(self._keep_history(entry))
        if new.attention != waited:
            self._tell_attention(entry)

    def _tell(self, entry: Entry, step: Transition) -> None:
        logger.info(
            "%s: %s → %s: %s",
            entry.session.name,
            step.source,
            step.target,
            step.reason,
            extra={"AMUX_SESSION": entry.id, "AMUX_STATE": step.target.value},
        )
        for listener in self._listeners:
            listener.moved(entry, step)

    def _tell_exit(self, entry: Entry) -> None:
        entry.ends_later = False
        for listener in self._listeners:
            listener.exited(entry)

    async def _keep_history(self, entry: Entry) -> None:
        """Its end is told the sooner."""
        # What cannot be kept now is tried again before the next change, which says why not.
        with contextlib.suppress(StoreError):
            await self._alone(entry, lambda: self.on_disk(self.store.keep_history, entry.state))

    async def amend(self, entry: Entry, *properties: str, **changes: Any) -> None:
        """Changes what is known of a session beside its state: on disk first, then told."""
        await self.amend_if(entry, lambda: True, *properties, **changes)

    async def amend_if(
        self, entry: Entry, means_something: Callable[[], bool], *properties: str, **changes: Any
    ) -> bool:
        """For what was learnt a while ago: asked once nobody else writes any more."""
        return bool(
            await self._alone(entry, lambda: self._amend(entry, means_something, properties, changes))
        )

    async def _amend(
        self,
        entry: Entry,
        means_something: Callable[[], bool],
        properties: tuple[str, ...],
        changes: dict[str, Any],
    ) -> bool:
        if not means_something():
            return False
        waited = entry.state.attention
        await self._replace(entry, changes)
        if entry.certificate is not None and entry.certificate.complete and not entry.is_certified:
            await self._certify(entry, entry.certificate)
        self.changed(entry, *properties)
        if entry.state.attention != waited:
            self._tell_attention(entry)
        return True

    async def _replace(self, entry: Entry, changes: dict[str, Any]) -> None:
        new = self._standing(entry, **changes)
        try:
            await self._put_down(entry, new, None)
        except Conflict as conflict:
            entry.state = conflict.present
            raise
        entry.state = new

    async def _put_down(self, entry: Entry, new: RunState, line: HistoryEntry | None) -> None:
        """Whatever somebody deleted: only what was removed through amuxd is gone."""
        if self._many_change and await self._together.done(Change(entry.state, new, line)):
            return
        try:
            await self.on_disk(self.store.change, entry.state, new, line)
        except Missing:
            logger.error(
                "%s: its files were deleted, what is known of it is written anew",
                entry.session.name,
                extra={"AMUX_SESSION": entry.id},
            )
            await self.on_disk(self.store.restore, entry.session, entry.state)
            await self.on_disk(self.store.change, entry.state, new, line)

    async def attend(self, entry: Entry, fact: attention.Fact) -> None:
        """Brings about what the fact means for the wait of a session; only one that runs can wait."""
        await self._alone(entry, lambda: self._attend(entry, fact))

    async def _attend(self, entry: Entry, fact: attention.Fact) -> None:
        if entry.state.state is State.SUSPENDED and not isinstance(fact, attention.Died):
            # Whoever looks at it next hears of it too.
            return
        before = attention.wait_of(entry.state)
        if entry.state.parked:
            # Also where amuxd looks away just as it was parked: parked is then in the state alone.
            after = attention.while_parked(before)
        else:
            after = attention.decide(before, fact) if entry.state.state is State.RUNNING else None
        if after == before:
            return
        if before and after and replace(after, since=before.since) == before:
            # It goes on waiting for the same: nothing to tell, and the next write takes the moment along.
            entry.state = replace(entry.state, attention_at=after.since)
            return
        await self._replace(entry, attention.as_changes(after))
        self._tell_attention(entry)

    def _tell_attention(self, entry: Entry) -> None:
        for listener in self._listeners:
            listener.attention_changed(entry)

    async def explain(self, entry: Entry, state: State, reason: str) -> None:
        """Says anew why a session is still in a state, unless it has left it meanwhile."""
        await self._alone(entry, lambda: self._explain(entry, state, reason))

    async def _explain(self, entry: Entry, state: State, reason: str) -> None:
        if entry.state.state is not state or entry.state.reason == reason:
            return
        await self._replace(entry, {"reason": reason})
        self.changed(entry, "Reason")

    def _standing(self, entry: Entry, **changes: Any) -> RunState:
        if not is_of_boot(entry.state.boot_id, self.boot_id):
            # Numbers of processes mean something else on this boot, and it is named from now on.
            changes = {"command": None, "server": None, "uptime_at_change": 0, **changes}
        at = now()
        # Asked after that: of its end amuxd itself may hear later.
        if entry.home is not None and not (entry.ended.is_set() or has_ended(entry.home.command_fd)):
            changes = {"alive_at": at, **changes}
        return replace(
            entry.state,
            updated_by=os.getpid(),
            boot_id=self.boot_id,
            last_activity_at=entry.activity_at,
            last_activity_hash=entry.activity_hash,
            last_checked_at=entry.checked_at,
            **changes,
        )

    async def apply_surely(
        self, entry: Entry, fact: Fact, by: str, at: int = 0, **changes: Any
    ) -> Transition | None:
        """However long it takes to be written, it happened when it did."""
        at = at or now()
        return await self.surely(entry, fact, lambda: self.apply(entry, fact, by, at=at, **changes))

    async def surely(self, entry: Entry, fact: Fact, change: Callable[[], Awaitable[Result]]) -> Result:
        """For a change that brings about what the fact means."""

        def happened() -> str:
            transition = decide(entry.situation, fact)
            return f"it is {transition.target} ({transition.reason})" if transition else _CHANGED

        return await self._surely(entry, change, happened)

    async def amend_surely(
        self, entry: Entry, means_something: Callable[[], bool], *properties: str, **changes: Any
    ) -> bool:
        change = partial(self.amend_if, entry, means_something, *properties, **changes)
        return await self._surely(entry, change, lambda: _CHANGED)

    async def _surely(
        self, entry: Entry, change: Callable[[], Awaitable[Result]], happened: Callable[[], str]
    ) -> Result:
        """For what has happened already: a disk that is full now, say, is tried again until it is not."""
        key, told = object(), ""
        try:
            while True:
                try:
                    return await change()
                except Conflict as conflict:
                    logger.warning("%s: %s", entry.session.name, conflict)
                except Exception as error:
                    logger.error(
                        *("%s cannot be written: %s", entry.session.name, error),
                        extra={"AMUX_SESSION": entry.id},
                        exc_info=not isinstance(error, StoreError),
                    )
                    told = shortened(f"{happened()}, and that is not written down: {error}", LONGEST_REASON)
                    if entry.unwritten.get(key) != told:
                        entry.unwritten[key] = told
                        entry.refused.set()
                        self.changed(entry, *UNWRITTEN)
                    await asyncio.sleep(RETRY_PAUSE)
        finally:
            entry.unwritten.pop(key, None)
            if not entry.unwritten:
                entry.refused.clear()
            if told:
                self.changed(entry, *UNWRITTEN)

    def changed(self, entry: Entry, *properties: str) -> None:
        for listener in self._listeners:
            listener.changed(entry, *properties)

    # What a person asks for.

    async def create(self, session: Session, agent: Agent | None) -> Entry:
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
            raise not_written(str(error), error) from error
        entry = Entry(session, state, agent=agent, checked_at=at)
        self.registry.add(entry)
        logger.info("%s: created", session.name, extra={"AMUX_SESSION": entry.id, "AMUX_STATE": "created"})
        for listener in self._listeners:
            listener.appeared(entry)
        return entry

    async def forget(self, entry: Entry) -> None:
        await self._alone(entry, lambda: self._forget(entry))

    async def _forget(self, entry: Entry) -> None:
        try:
            await self.on_disk(self.store.remove, entry.id)
        except StoreError as error:
            raise not_written(str(error), error) from error
        self.registry.discard(entry)
        logger.info("%s: removed", entry.session.name, extra={"AMUX_SESSION": entry.id})
        for listener in self._listeners:
            listener.disappeared(entry)

    async def request(self, entry: Entry, fact: Fact, verb: str, by: str, **changes: Any) -> None:
        try:
            if await self.apply(entry, fact, by, **changes) is None:
                raise impossible(entry, verb)
        except Conflict as conflict:
            raise impossible(entry, verb) from conflict
        except StoreError as error:
            raise not_written(f"{entry.session.name} stays {entry.state.state}: {error}", error) from error

    async def certify(self, entry: Entry) -> None:
        known = entry.certificate
        if known is None or entry.is_certified:
            return
        try:
            lines = known.last_lines if known.complete else await self.last_lines(entry, known.run)
        except Exception:
            logger.exception("the last lines of %s cannot be read now", entry.session.name)
            self.spawn(self._certify_later(entry, known))
            return
        certificate = replace(known, last_lines=lines, complete=True)
        await self._alone(entry, lambda: self._certify(entry, certificate))

    async def _certify(self, entry: Entry, certificate: Certificate) -> None:
        if certificate.run == entry.state.run:
            # What it was in may be learnt from what it printed last, after its end was told.
            certificate = replace(certificate, conversation_id=entry.state.conversation_id)
        try:
            await self.on_disk(self.store.certify, certificate)
        except Exception as error:
            is_foreseen = isinstance(error, StoreError)
            logger.error("%s: %s", entry.session.name, error, exc_info=not is_foreseen)
            self.spawn(self._certify_later(entry, certificate))
        else:
            if certificate.run == entry.state.run:
                entry.certificate = certificate
                if entry.ends_later:
                    self._tell_exit(entry)
                    self.changed(entry, "SessionAlive")

    async def last_lines(self, entry: Entry, run: int, count: int = LINES) -> list[str]:
        """Of a run that has ended: what a shell prints that opened after that is not the command's."""
        before = shell_mark(entry.id, run) if entry.session.shell else b""
        return await self.on_disk(last_lines, self.store.log(entry.id, run), count, before)

    async def _certify_later(self, entry: Entry, certificate: Certificate) -> None:
        await asyncio.sleep(RETRY_PAUSE)
        if entry.state.run == certificate.run:
            await self.certify(entry)
        elif certificate.complete:
            await self._alone(entry, lambda: self._certify(entry, certificate))

    async def certify_earlier(self, entry: Entry, known: Certificate) -> Certificate:
        """What an amuxd left incomplete that was killed, or begun another run too early."""
        lines = await self.last_lines(entry, known.run)
        certificate = replace(known, last_lines=lines, complete=True)
        await self._alone(entry, lambda: self._certify(entry, certificate))
        return certificate


def _with_short_reason(step: Transition) -> Transition:
    short = shortened(step.reason, LONGEST_REASON)
    return step if short == step.reason else replace(step, reason=short)


def not_written(told: str, error: StoreError) -> AmuxError:
    return Busy(told) if isinstance(error, Locked) else Internal(told)
